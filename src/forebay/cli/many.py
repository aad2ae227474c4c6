"""Many: submit a stream of lines at one pace, keep a record of each, and go on where a run was cut off."""

import asyncio
import base64
import contextlib
import json
import sys
import threading
import time
import uuid
from collections import deque
from typing import Any

from forebay.cli.options import connect_async
from forebay.cli.reading import Input, Row, key_of
from forebay.cli.results import Results
from forebay.cli.show import Stop, clean, complain, print_json, say
from forebay.client.arguments import one
from forebay.client.bulk import Line
from forebay.client.carry import Carrier, Progress
from forebay.client.encode import Options, Raw, submission
from forebay.client.faults import JobFailedError, said_of
from forebay.client.records import Mapped
from forebay.client.wire import object_of
from forebay.errors import ForebayError, InvalidError

AHEAD_MAX = 512  # lines read before they are wanted
AHEAD_BYTES_MAX = 16 * 1024 * 1024  # and what they hold; one line may be alone above it
SHOWN_MAX = 5  # refusals told on the terminal; all are in --out
BAR_EVERY_S = 0.1
LINE_SHOWN_MAX = 200  # characters of one job on standard output


class Reader:
    """Reads rows in a thread, so that a slow pipe does not hold up answers."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._room = threading.Condition()
        self._held_b = 0  # in rows that are ready
        self._ready: deque[Row | BaseException | None] = deque()
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="forebay-reader", daemon=True).start()

    async def take(self, count: int) -> list[Row]:
        """Return the rows there are, up to `count`, at least one; none at the end."""
        while not self._ready:
            self._bell.clear()
            await self._bell.wait()
        found: list[Row] = []
        while self._ready and len(found) < count:
            row = self._ready[0]
            if isinstance(row, BaseException):
                raise row
            if row is None:
                break
            found.append(row)
            self._ready.popleft()
            with self._room:
                self._held_b -= len(row.text)
                self._room.notify()
        return found

    def _read(self) -> None:
        try:
            for row in self._rows:
                with self._room:
                    self._room.wait_for(self._has_room)
                    self._held_b += len(row.text)
                self._give(row)
            self._give(None)
        except BaseException as error:
            self._give(error)

    def _has_room(self) -> bool:
        return len(self._ready) < AHEAD_MAX and self._held_b < AHEAD_BYTES_MAX

    def _give(self, row: Row | BaseException | None) -> None:
        self._ready.append(row)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._bell.set)


class Many:
    """One run of `forebay submit` over many lines."""

    def __init__(
        self,
        task: str,
        options: Options,
        found: Input,
        rate_per_s: float | None,
        concurrency: int,
        wait: bool,
        out: str | None,
        key: str | None,
        json_: bool = False,
    ) -> None:
        self._task = task
        self._options = options
        self._found = found
        self._rate_per_s = rate_per_s
        self._concurrency = concurrency
        self._wait = wait
        if key is not None:
            _check_key(key)
        elif not found.name:
            key = uuid.uuid4().hex  # a stream has no identity of its own
        run = {"task": task, "source": found.name or "-", "key": key}
        self._results = None if out is None else Results(out, run=run, wait=wait)
        self._key: str | None = run["key"]
        self._progress = Progress(0, 0, 0)
        self._json = json_
        self._skipped = self._failed_before = self._good = self._bad = self._refused = 0

    def run(self, url: str | None, api_key: str | None, retry_for: str, budget: str | None = None) -> int:
        """Run to the end. Returns the exit code; says what was done also when it is cut short."""
        start = time.monotonic()
        try:
            asyncio.run(self._main(url, api_key, retry_for, budget))
        except KeyboardInterrupt:
            complain(f"interrupted: {self._told()}; {self._how_to_go_on()}")
            raise
        except ForebayError:
            if self._progress.submitted:
                complain(f"stopped: {self._told()}; {self._how_to_go_on()}")
            raise
        finally:
            if self._results is not None:
                self._results.close()
        self._summary(time.monotonic() - start)
        return 1 if self._bad or self._refused or self._failed_before else 0

    async def _main(self, url: str | None, api_key: str | None, retry_for: str, budget: str | None) -> None:
        client = connect_async(url, api_key, retry_for, budget)
        async with client:
            carrier = Carrier(
                client.transport,
                client.terms,
                rate_per_s=self._rate_per_s,
                concurrency=self._concurrency,
                wait=self._wait,
                progress=self._note,
                task=self._task,
                ordered=self._options.ordering_key is not None,
            )
            reader = Reader(self._found.many)

            async def source(count: int) -> list[Line | Mapped]:
                while rows := await reader.take(count):
                    lines = [self._line(row) for row in rows if not self._done(row)]
                    if lines:
                        return lines
                return []

            # A line of its own per job and a live line would overwrite each other on one terminal.
            listed_here = self._results is None and sys.stdout.isatty()
            with contextlib.nullcontext() if listed_here else _bar(self._caption):
                async for item in carrier.run(source):
                    self._record(item)
                    carrier.release()

    def _done(self, row: Row) -> bool:
        if self._results is None or row.number not in self._results.done:
            return False
        if row.number in self._results.failed:
            self._failed_before += 1
        else:
            self._skipped += 1
        return True

    def _line(self, row: Row) -> Line | Mapped:
        if row.problem is not None:
            return Mapped(row.number, None, None, InvalidError(f"line {row.number}: {row.problem}"))
        plain = submission(self._task, Raw(row.text), self._options)
        key = key_of(self._key, self._found.name, row.number, plain)
        return Line(row.number, submission(self._task, Raw(row.text), self._options, key))

    def _record(self, item: Mapped) -> None:
        record: dict[str, Any] = {"line": item.place, "status": "PENDING", "job_id": item.job_id}
        if item.view is not None:
            record["status"] = item.view.get("status")
        elif item.error is not None:
            record["status"] = "REFUSED" if item.job_id is None else "UNKNOWN"
        if item.error is not None:
            told = _told_of(item.error)
            record["error"] = {"code": item.error.code, "message": told}
            self._complain(item, told)
        elif self._wait:
            is_bytes = isinstance(item.result, bytes)
            value = base64.b64encode(item.result).decode() if is_bytes else item.result
            record["result"] = {"$base64": value} if is_bytes else value
            self._good += 1
        if self._results is not None:
            self._results.write(record)
        else:
            print(json.dumps(record) if self._json else _shown(record), flush=True)

    def _complain(self, item: Mapped, told: str) -> None:
        if item.job_id is None:
            self._refused += 1
        else:
            self._bad += 1
        count = self._refused + self._bad
        if self._results is None:
            return  # its line on standard output says so
        if count <= SHOWN_MAX:
            where = "" if told.startswith("line ") else f"line {item.place}: "
            complain(f"{where}{told}")
        elif count == SHOWN_MAX + 1:
            complain("further refusals and failures are in --out")

    def _note(self, progress: Progress) -> None:
        self._progress = progress

    def _caption(self) -> str:
        held = f", held back {self._progress.pressed} times" if self._progress.pressed else ""
        ended = f", {self._progress.ended} ended" if self._wait else ""
        return f"{self._progress.submitted} submitted{ended}{held}"

    def _told(self) -> str:
        parts = [f"{self._progress.submitted} submitted"]
        if self._skipped:
            parts.append(f"{self._skipped} done before")
        if self._failed_before:
            parts.append(f"{self._failed_before} failed before")
        if self._refused:
            parts.append(f"{self._refused} refused")
        if self._wait:
            parts.append(f"{self._good} completed, {self._bad} failed")
        return ", ".join(parts)

    def _how_to_go_on(self) -> str:
        if self._found.name or self._results is not None:
            return "the same command goes on and submits nothing twice"
        return f"the same lines with --idempotency-key {self._key} go on and submit nothing twice"

    def _summary(self, took_s: float) -> None:
        if self._results is None or self._results.path == "-":  # standard output has the jobs
            print(f"{self._told()} in {took_s:.1f} s", file=sys.stderr)
        elif self._json:
            print_json(
                {
                    "submitted": self._progress.submitted,
                    "done_before": self._skipped,
                    "failed_before": self._failed_before,
                    "refused": self._refused,
                    "completed": self._good if self._wait else None,
                    "failed": self._bad if self._wait else None,
                    "held_back": self._progress.pressed,
                    "took_s": round(took_s, 3),
                }
            )
        else:
            say(f"{self._told()} in {took_s:.1f} s")


def _told_of(error: ForebayError) -> str:
    """Return why an item has no result, without the id that stands beside it."""
    if isinstance(error, JobFailedError):
        return said_of(object_of(error.view.get("error")) or {}) or error.message
    return getattr(error, "message", None) or str(error)


def _shown(record: dict[str, Any]) -> str:
    """Return one job on one line: id, status, and for a failure its line and short error."""
    text = f"{record['job_id'] or '-'}  {record['status']}"
    error = record.get("error")
    if error is not None:
        told = str(error["message"])
        where = "" if told.startswith("line ") else f"line {record['line']}: "
        text += f"  {where}{error['code']}: {told}"
    return clean(text, LINE_SHOWN_MAX)


@contextlib.contextmanager
def _bar(caption: Any) -> Any:
    """A live line on standard error, on a terminal only."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        row = bar.add_task("0 submitted", total=None)

        async def redraw() -> None:
            while True:
                bar.update(row, description=caption())
                await asyncio.sleep(BAR_EVERY_S)

        drawing = asyncio.create_task(redraw())
        try:
            yield
        finally:
            drawing.cancel()


def _check_key(key: str) -> None:
    try:
        one("-", None, Options(), f"{key}-{10**9}")
    except InvalidError as error:
        raise Stop(f"--{str(error).replace('idempotency_key', 'idempotency-key')}", 2) from None
