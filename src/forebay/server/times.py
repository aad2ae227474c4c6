"""Times on the wire: RFC 3339 UTC with microseconds out, RFC 3339 with a zone in."""

import re
from datetime import UTC, datetime
from functools import lru_cache

_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_YEAR_9999 = 253_402_300_799.0


def stamp(at: float) -> str:
    """Return an instant as text, for example 2026-03-01T09:30:00.250000Z."""
    if not 0.0 <= at <= _YEAR_9999:
        at = 0.0 if at < 0.0 else _YEAR_9999
    whole = int(at)
    return f"{_to_seconds(whole)}{str(1_000_000 + int((at - whole) * 1e6))[1:]}Z"


@lru_cache(maxsize=4096)
def _to_seconds(whole: int) -> str:
    """Return the text of a whole second, with the point behind it."""
    return datetime.fromtimestamp(whole, UTC).isoformat()[:19] + "."


def instant(text: str) -> float:
    """Return seconds since the epoch. Raises ValueError saying what it must be."""
    if len(text) > 40 or _RFC3339.fullmatch(text) is None:
        raise ValueError("an RFC 3339 time with a zone, like 2026-03-01T09:30:00Z")
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("a day and a time that exist") from None
