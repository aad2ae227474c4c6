"""Arrivals from a file, a pipe or a URL: times or counts, line by line, in bounded memory."""

import csv
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from forebay.cli.reading import READ_B, lines_of, open_path, parts_of
from forebay.cli.show import Stop, clean
from forebay.core.arrivals import ArrivalPeaks, ArrivalWindows

LINE_MAX_B = 64 * 1024
TOLD_MAX = 5  # bad rows named one by one
SHUFFLED_MAX_S = 1.0  # rows may be so much out of order
COUNT_MAX = 10**9  # of one row
TIME_MAX_S = 1e11  # larger numbers are milliseconds, microseconds or nanoseconds
ANSWER_TIMEOUT_S = 30.0
TIMES = ("at", "time", "timestamp", "ts", "@timestamp", "created_at", "date")
COUNTS = ("count", "arrivals", "requests", "n")


class Arrived(NamedTuple):
    """What a file says of arrivals."""

    source: str
    rows: int
    arrivals: int
    mean_per_s: float
    peaks: ArrivalPeaks


class Row(NamedTuple):
    """What one row says. `at` None: it stands for the second with its number."""

    at: float | None
    arrivals: int


def read_arrivals(source: str) -> Arrived:
    """Return what a file of arrivals holds: CSV or NDJSON, of times or of counts by the second.

    `source` is a path, "-" for standard input, or a URL. Raises Stop that names the rows that cannot be read.
    """
    windows, reader = ArrivalWindows(keep=True), _Rows()
    rows = arrivals = 0
    first = last = -math.inf
    for number, text in enumerate(_lines(source), 1):
        if text is not None and not text.strip():
            continue
        row = reader.read(number, text)
        if row is None:
            continue
        at = float(rows) if row.at is None else row.at
        if at < last - SHUFFLED_MAX_S:
            reader.bad(number, f"is {last - at:.3g} s before the row above it; sort the file")
            continue
        first, last = (at if rows == 0 else first), max(last, at)
        rows, arrivals = rows + 1, arrivals + row.arrivals
        windows.arrived(row.arrivals, now=at)
    reader.check(source, rows)
    lasted_s = max(1.0, last - first + reader.second_s)
    return Arrived(source, rows, arrivals, arrivals / lasted_s, windows.peaks(now=last + 2.0))


class _Rows:
    """Reads rows in the form that the first one has, and remembers what it could not read."""

    def __init__(self) -> None:
        self.second_s = 0.0  # 1 where rows stand for whole seconds
        self._columns: tuple[int | None, int | None] | None = (
            None  # of time and of count; None: not known yet
        )
        self._bad: list[str] = []
        self._bad_count = 0

    def read(self, number: int, text: bytes | None) -> Row | None:
        """Return what a row says; None for a header, and for what cannot be read: see `check`."""
        if text is None:
            self.bad(number, f"is longer than {LINE_MAX_B} bytes")
            return None
        row = None
        try:
            line = text.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            row = self._json(line) if line[:1] in ("{", '"') else self._csv(line)
        except UnicodeDecodeError:
            self.bad(number, "is not UTF-8")
        except (ValueError, RecursionError, csv.Error) as error:
            self.bad(number, str(error))
        if row is not None and row.at is None:
            self.second_s = 1.0
        return row

    def bad(self, number: int, why: str) -> None:
        """Remember a row that cannot be used."""
        self._bad_count += 1
        if len(self._bad) < TOLD_MAX:
            self._bad.append(f"line {number} {clean(why, 160)}")

    def check(self, source: str, rows: int) -> None:
        """Raise Stop when a row could not be read, or there was none."""
        name = clean("standard input" if source == "-" else source, 100)
        if self._bad:
            more = (
                f"; and {self._bad_count - len(self._bad)} more" if self._bad_count > len(self._bad) else ""
            )
            raise Stop(f"--arrivals {name}: {'; '.join(self._bad)}{more}", 2)
        if rows == 0:
            raise Stop(f"--arrivals {name}: there are no rows", 2)

    def _json(self, line: str) -> Row:
        found: Any = json.loads(line)
        if isinstance(found, str):
            return Row(time_of(found), 1)
        names = cast("dict[str, Any]", found)
        at = next((names[name] for name in TIMES if name in names), None)
        count = next((names[name] for name in COUNTS if name in names), None)
        if at is None and count is None:
            raise ValueError(f"has none of {', '.join((*TIMES, *COUNTS))}")
        return Row(None if at is None else time_of(at), 1 if count is None else count_of(count))

    def _csv(self, line: str) -> Row | None:
        delimiter = next((sign for sign in (",", ";", "\t") if sign in line), ",")
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
        if self._columns is None:
            self._columns = _columns(cells)
            if _is_header(cells):
                return None
        at, count = self._columns
        if max(at if at is not None else 0, count or 0) >= len(cells):
            raise ValueError(f"has {len(cells)} columns")
        return Row(None if at is None else time_of(cells[at]), 1 if count is None else count_of(cells[count]))


def time_of(value: object) -> float:
    """Return seconds since the epoch (or since any start) from a number or an RFC 3339 text.

    Large numbers are taken for milliseconds, microseconds or nanoseconds. Raises ValueError.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a time")
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            raise ValueError(f"{value!r} is not a time: seconds, or like 2026-03-01T09:30:00Z") from None
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{value!r} is not a time")
    for _ in range(3):
        if seconds > TIME_MAX_S:
            seconds /= 1000.0
    return seconds


def count_of(value: object) -> int:
    """Return a whole number of arrivals. Raises ValueError."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    whole = text.removesuffix(".0")
    if not whole.isascii() or not whole.isdecimal() or len(whole) > 12 or int(whole) > COUNT_MAX:
        raise ValueError(f"{value!r} is not a count: a whole number up to {COUNT_MAX:,}")
    return int(whole)


def _is_header(cells: list[str]) -> bool:
    """Say whether the first row names its columns: one of our names is there, and no cell is a number."""
    return any(cell.lower() in (*TIMES, *COUNTS) for cell in cells)


def _columns(cells: list[str]) -> tuple[int | None, int | None]:
    """Return where time and count stand: by the names of a header, else the first and the second column."""
    names = [cell.lower() for cell in cells]
    if _is_header(cells):
        at = next((names.index(name) for name in TIMES if name in names), None)
        return at, next((names.index(name) for name in COUNTS if name in names), None)
    return 0, 1 if len(cells) > 1 else None


def _lines(source: str) -> Iterator[bytes | None]:
    if source.startswith(("http://", "https://")):
        yield from lines_of(_fetched(source), LINE_MAX_B)
        return
    yield from lines_of(parts_of(open_path(source)), LINE_MAX_B)


def _fetched(url: str) -> Iterator[bytes]:
    import urllib.error
    import urllib.request

    try:
        # The scheme is http or https: checked by the caller.
        with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
            while part := answer.read(READ_B):
                yield part
    except (OSError, ValueError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Stop(f"--arrivals {clean(url, 100)}: {clean(why, 200)}", 3) from None
