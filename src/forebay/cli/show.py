"""Output: text that cannot act on the terminal, plain tables, JSON, and Stop for a clear end."""

import contextlib
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

from forebay.core.units import print_duration

CELL_MAX = 60  # characters of one cell of a table
LINE_MAX = 1000  # characters of one complaint


class Stop(Exception):
    """The command ends here with this code and this one line."""

    def __init__(self, message: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def clean(text: object, most: int = LINE_MAX) -> str:
    """Return text from elsewhere on one line, with everything that is not a printing sign escaped."""
    shown = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in str(text)[: most + 1]
    )
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def complain(message: str) -> None:
    """Print one line on standard error. A standard error that is gone is nobody's fault."""
    with contextlib.suppress(OSError, ValueError):  # of one screen or file, in the order it was said
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        print(f"forebay: {clean(message)}", file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    """Print one line of the answer."""
    print(text)


def print_json(value: object) -> None:
    """Print one JSON document, ASCII only."""
    print(json.dumps(value, indent=2))


def readable(value: object) -> str:
    """Return JSON on one line with its letters as they are, where standard output can show them; signs that
    do not print stay escaped, so that a result cannot act on the terminal."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = json.dumps(value)
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if sign <= "\uffff" else json.dumps(sign)[1:-1]


def about(seconds: object) -> str:
    """Return a measured time for people: "6 minutes"; "an unknown time" for what is no number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return "an unknown time"
    return print_duration(seconds)


def estimate(eta: object) -> str | None:
    """Return the ETA of a job for people, None when there is none."""
    if not isinstance(eta, dict):
        return None
    known: dict[str, object] = cast("dict[str, object]", eta)
    return f"about {about(known.get('p50_s'))} (9 of 10 times within {about(known.get('p90_s'))})"


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns under their names, aligned, plain text."""
    cells = [[name.upper() for name in names]]
    cells += [["-" if cell is None else clean(cell, CELL_MAX) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one pair a line; None is left out."""
    kept = [(name, value) for name, value in rows if value not in (None, {}, [])]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        plain: object = value
        text = readable(plain) if isinstance(value, dict | list | bool) else plain
        print(f"{name.ljust(width)}  {clean(text)}")
