"""Command: a pipeline as `forebay stream` runs it: until its sources end, a signal, or so many seconds."""

import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from forebay.errors import ForebayError
from forebay.pipeline.board import Board
from forebay.pipeline.live import Rates
from forebay.pipeline.loading import load_pipeline, source_of_text
from forebay.pipeline.pages import Pages
from forebay.pipeline.report import Report
from forebay.pipeline.running import Running
from forebay.sources.camera import Camera
from forebay.sources.pushed import Push

LOOK_S: Final = 1.0


class Wanted(NamedTuple):
    """What was asked for."""

    target: str
    sources: Sequence[str]
    data: Path
    for_s: float | None = None  # None: until the sources end
    grace_s: float = 10.0
    port: int | None = None  # of the pages; None: none
    push_token: str | None = None


def run(wanted: Wanted, *, say: Callable[[str], None], live: Callable[[str], None]) -> Report:
    """Run the pipeline and return what was done. `say` is told once where it listens, and at the end which
    cameras were away; `live` a line each second. SIGINT and SIGTERM close the sources and serve what waits;
    a second one ends at once. Raises ForebayError, and the error of a source that failed."""
    pipeline = load_pipeline(wanted.target)
    sources = [source_of_text(text, wanted.push_token) for text in wanted.sources]
    stopping = threading.Event()
    signals = 0

    def stop(*_: object) -> None:
        nonlocal signals
        signals += 1
        stopping.set()
        if signals > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    running = pipeline.start(*sources)
    board, pages = Board(wanted.data), None
    try:
        for url in (source.url for source in sources if isinstance(source, Push)):
            say(f"listening: frames at {url}")
        if wanted.port is not None:
            pages = Pages(running.report, wanted.port)
            say(f"listening: {pages.url}/v1/streams {pages.url}/metrics")
        _watch(running, stopping, wanted.for_s, board, lambda line: live(" | ".join([line, *away(sources)])))
        for one in away(sources):
            say(one)
        running.stop(wanted.grace_s)
    except BaseException:
        running.stop(0.0)
        raise
    finally:
        if pages is not None:
            pages.close()
        quietly(lambda: board.take_down(pipeline.name))
        for number, handler in before.items():
            signal.signal(number, handler)
    if running.errors:
        raise running.errors[0]
    return running.report()


def away(sources: Sequence[Any]) -> list[str]:
    """Return which sources give no frames now, and why they were lost the last time."""
    return [
        f"{one.stream} {one.state}: {one.says}"
        for one in sources
        if isinstance(one, Camera) and one.says and one.state != "streaming"
    ]


def _watch(
    running: Running,
    stopping: threading.Event,
    for_s: float | None,
    board: Board,
    live: Callable[[str], None],
) -> None:
    rates, ends_at = Rates(), None if for_s is None else running.clock.now() + for_s
    while not stopping.is_set():
        left_s = LOOK_S if ends_at is None else min(LOOK_S, ends_at - running.clock.now())
        if left_s <= 0 or running.wait(left_s):
            return
        report = running.report()
        live(rates.line(report))
        quietly(lambda report=report: board.post(report))  # type: ignore[misc]


def quietly(act: Callable[[], None]) -> None:
    """Do it; a board that cannot be written is no reason to stop serving frames."""
    try:
        act()
    except (OSError, ForebayError):
        return
