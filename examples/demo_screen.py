"""What the demo shows while it runs: a live line on a terminal, plain lines anywhere else."""

import sys
import time
from types import TracebackType
from typing import Any, Self

PLAIN_EVERY_S = 2.0


class Screen:
    """Plain lines: a log file, a pipe, a terminal that knows no more than text."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told_at = float("-inf")
        self._told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        """One line that stays."""
        self._print(f"{time.monotonic() - self._began:6.1f} s  {line}")

    def progress(self, ended: int, total: int, waiting: int, running: int) -> None:
        """How far it is. Told when it changed, and not too often."""
        line = f"{ended:3} of {total} done, {running} being read, {waiting} waiting"
        now = time.monotonic()
        if line != self._told and (now - self._told_at >= PLAIN_EVERY_S or ended == total):
            self._told, self._told_at = line, now
            self.say(line)

    def _print(self, line: str) -> None:
        print(line, flush=True)


class LiveScreen(Screen):
    """The same lines above a bar that moves."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("pages"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(), transient=True,
        )  # fmt: skip
        self._row: Any = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def progress(self, ended: int, total: int, waiting: int, running: int) -> None:
        told = f"{running} being read, {waiting} waiting"
        if self._row is None:
            self._row = self._bar.add_task(told, total=total)
        self._bar.update(self._row, completed=ended, description=told)

    def _print(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False)


def make_screen() -> Screen:
    """The live one where there is a terminal that can show it."""
    if sys.stdout.isatty():
        try:
            return LiveScreen()
        except ImportError:  # rich comes with typer, mostly
            pass
    return Screen()
