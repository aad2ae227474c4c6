"""Parse and print durations, sizes and rates: "250ms", "64MiB", "300/s"."""

import math
import re

_DURATION_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_SIZE_B = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)


def duration_s(value: object) -> float:
    """Return seconds from a number of seconds or a text like "250ms", "5m", "1.5h".

    Raises ValueError with one sentence for anything else, for NaN, infinity and negative values.
    """
    seconds = _scaled(value, _DURATION_S, 'a duration: seconds or a text like "250ms", "5m", "6h"')
    if not math.isfinite(seconds):
        raise ValueError(f"{_shown(value)} is not finite")
    return seconds


def size_b(value: object) -> int:
    """Return bytes from a number of bytes or a text like "64MiB", "1KB".

    Raises ValueError with one sentence for anything else.
    """
    size = _scaled(value, _SIZE_B, 'a size: bytes or a text like "1KB", "64MiB"')
    if not math.isfinite(size):
        raise ValueError(f"{_shown(value)} is not finite")
    return int(size)


def rate_per_s(value: object) -> float:
    """Return a rate per second from a number or a text like "300/s", "10/m".

    Raises ValueError with one sentence for anything else and for zero.
    """
    rule = 'a rate like "300/s", "10/m" or a number per second'
    count, period_s = value, 1.0
    if isinstance(value, str) and "/" in value:
        count, _, unit = value.partition("/")
        if unit.strip().lower() not in _DURATION_S or not unit.strip():
            raise ValueError(f"{_shown(value)} is not {rule}")
        period_s = _DURATION_S[unit.strip().lower()]
    rate = _scaled(count, {"": 1.0}, rule) / period_s
    if not math.isfinite(rate) or rate <= 0:
        raise ValueError(f"{_shown(value)} is not {rule}")
    return rate


def print_duration(seconds: float) -> str:
    """Return a short text for people: "250 ms", "41 s", "5 minutes", "2 h"."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        minutes = round(seconds / 60)
        return f"{minutes} minute{'s' if minutes != 1 else ''}"
    return f"{seconds / 3600:.1f} h"


def _scaled(value: object, units: "dict[str, float] | dict[str, int]", rule: str) -> float:
    if isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not {rule}")
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"{_shown(value)} is too large") from None
        if math.isnan(number) or number < 0:
            raise ValueError(f"{_shown(value)} is not {rule}")
        return number
    if isinstance(value, str) and len(value) <= 40:
        match = _NUMBER.fullmatch(value)
        if match is not None and match[2].lower() in units:
            return float(match[1]) * units[match[2].lower()]
    raise ValueError(f"{_shown(value)} is not {rule}")


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "the number"
    return text if len(text) <= 60 else text[:57] + "..."
