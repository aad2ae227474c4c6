"""`forebay top`: queues, workers, streams and alerts of a server, drawn again and again."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from forebay.cli.options import ApiKey, JsonLines, Url, connect, seconds_of
from forebay.cli.show import CELL_MAX, Stop, clean, say
from forebay.core.sizing import words
from forebay.errors import ForebayError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Generator

    from forebay.client import Client

View = dict[str, Any]
Asked = dict[str, list[View]]
EVERY_MIN_S, EVERY_MAX_S = 0.1, 3600.0
ROWS_MAX = 200  # of one table
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
SCREEN, NO_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # a screen of its own, without a cursor


def top(
    every: Annotated[str, typer.Option(metavar="TIME", help="Between two looks.")] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after so long. [Ctrl-C ends it]")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json_: JsonLines = False,
) -> int:
    """Watch a server: how full its queues are, what its workers do, and what should wake somebody.

    Ctrl-C ends it well. With --json each look is one line. Answers 3 when the server is not there at first.
    """
    every_s = seconds_of("--every", every)
    if not EVERY_MIN_S <= every_s <= EVERY_MAX_S:
        raise Stop(f"--every: {every!r} is not from 100ms to 1h", 2)
    ends_at = None if for_ is None else time.monotonic() + seconds_of("--for", for_)
    with connect(url, api_key, "0s") as client, _screen(not once and not json_):
        _watch(client, every_s, ends_at=ends_at, once=once, json_=json_)
    return 0


def _watch(client: "Client", every_s: float, *, ends_at: float | None, once: bool, json_: bool) -> None:
    asked = ask(client)
    lost = ""
    while True:
        began = time.monotonic()
        _show(client, asked, lost, json_=json_, live=not once)
        left_s = every_s if ends_at is None else min(every_s, ends_at - began)
        if once or left_s <= 0 or (ends_at is not None and began + left_s >= ends_at):
            return
        try:
            time.sleep(left_s)
        except KeyboardInterrupt:
            return
        try:
            asked, lost = ask(client), ""
        except ForebayError as error:
            lost = f"{error}; what is shown is old"


def ask(client: "Client") -> Asked:
    """Return what a server shows of itself; what a key may not see is left out.

    Raises UnreachableError, or what the server said of its queues.
    """
    found: Asked = {"queues": client.queues()}
    for name, verb in (("workers", client.workers), ("streams", client.streams), ("alerts", client.alerts)):
        found[name] = _allowed(verb)
    return found


def _allowed(verb: Callable[[], list[View]]) -> list[View]:
    try:
        return verb()
    except UnreachableError:
        raise
    except ForebayError:
        return []


def _show(client: "Client", asked: Asked, lost: str, *, json_: bool, live: bool) -> None:
    if json_:
        import json

        said = {"at": time.time(), **asked, **({"lost": lost} if lost else {})}
        say(json.dumps(said))
        sys.stdout.flush()
        return
    lines = picture(asked, client.terms.url, time.strftime("%H:%M:%S"), lost)
    if live and sys.stdout.isatty():
        sys.stdout.write(HOME + "".join(f"{line}{CLEAR_LINE}\r\n" for line in lines) + CLEAR_BELOW)
    else:
        say("\n".join(lines))
        say()
    sys.stdout.flush()


@contextmanager
def _screen(wanted: bool) -> "Generator[None]":
    """Have a screen of our own while it lasts, where there is a terminal."""
    live = wanted and sys.stdout.isatty()
    if live:
        sys.stdout.write(SCREEN)
    try:
        yield
    finally:
        if live:
            sys.stdout.write(NO_SCREEN)
            sys.stdout.flush()


def picture(asked: Asked, url: str, at: str, lost: str = "") -> list[str]:
    """Return one look as lines of plain text, safe for a terminal."""
    queues, workers, streams, alerts = (asked[name] for name in ("queues", "workers", "streams", "alerts"))
    waiting, running = (sum(row.get(name) or 0 for row in queues) for name in ("depth", "running"))
    busy = sum(1 for row in workers if row.get("batch"))
    lines = [
        clean(f"{url}  {at}  {waiting:,} wait, {running:,} run; {busy} of {len(workers)} workers are busy"),
        *([clean(f"! {lost}")] if lost else []),
        *(clean(f"! {row.get('severity')}: {row.get('says')} ({row.get('look')})") for row in alerts[:20]),
        "",
        *_table(_QUEUE, [_queue(row) for row in queues]),
    ]
    if workers:
        lines += ["", *_table(_WORKER, [_worker(row) for row in workers])]
    if streams:
        lines += ["", *_table(_STREAM, [_stream(row) for row in streams])]
    return lines


_QUEUE = ("task", "wait", "peak", "run", "in", "out", "can", "oldest", "full", "eta", "dead", "state")
_WORKER = ("worker", "state", "runs", "memory", "restarts", "last crash")
_STREAM = ("stream", "depth", "served", "dropped", "degraded", "p50", "p95", "p99")


def _queue(row: View) -> list[str]:
    rates, eta, marks, guard = (_part(row, name) for name in ("rates", "eta", "watermarks", "breaker"))
    level, breaker = marks.get("level"), guard.get("state")
    state = [word for word in ("paused", "draining") if row.get(word)]
    state += [f"breaker {breaker}"] if breaker not in (None, "closed") else []
    return [
        str(row.get("task")),
        _number(row.get("depth")),
        _number(row.get("depth_peak")),
        _number(row.get("running")),
        _rate(rates.get("arrivals_per_s")),
        _rate(rates.get("drain_per_s")),
        _rate(rates.get("capacity_per_s")),
        _span(row.get("oldest_age_s")),
        "-" if level is None else f"{level:.0%}",
        _span(eta.get("p90_s")),
        _number(row.get("dead")),
        ", ".join(state) or "open",
    ]


def _part(row: View, name: str) -> View:
    return cast("View", row.get(name) or {})


def _worker(row: View) -> list[str]:
    batch: Any = row.get("batch")
    crash = row.get("last_crash")
    return [
        str(row.get("worker")),
        str(row.get("state")),
        _number(batch if isinstance(batch, int) else len(batch or ())),
        "-" if row.get("memory_bytes") is None else words.size(row["memory_bytes"]),
        _number(row.get("restarts")),
        "" if crash is None else str(crash),
    ]


def _stream(row: View) -> list[str]:
    return [
        f"{row.get('pipeline')}/{row.get('stream')}",
        _number(row.get("depth")),
        _number(row.get("served")),
        f"{row.get('drop_ratio') or 0:.2%}" + (" !" if row.get("alert") else ""),
        f"{row.get('degraded_ratio') or 0:.0%}",
        *(_span(row.get(name)) for name in ("p50_s", "p95_s", "p99_s")),
    ]


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else "-"


def _rate(value: object) -> str:
    return words.rate(value) if isinstance(value, int | float) else "-"


def _span(value: object) -> str:
    return words.span(value) if isinstance(value, int | float) else "-"


def _table(names: Sequence[str], rows: list[list[str]]) -> list[str]:
    """Return aligned columns; numbers stand to the right."""
    cells = [
        [name.upper() for name in names],
        *([clean(cell, CELL_MAX) for cell in row] for row in rows[:ROWS_MAX]),
    ]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    last = len(names) - 1
    lines = [
        "  ".join(
            cell.ljust(width) if place in {0, last} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    more = len(rows) - ROWS_MAX
    return [*lines, *([f"and {more:,} more"] if more > 0 else [])]
