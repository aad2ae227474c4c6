"""Numbers of sizing as short texts: for people, and for settings to paste."""

import math

_UNITS = ((1.0, "s"), (60.0, "m"), (3600.0, "h"), (86_400.0, "d"))
NOTHING_S = 5e-7  # a time below is shown as none
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def span(seconds: float) -> str:
    """Return a time with up to three digits: "2.1 ms", "250 ms", "1.5 s", "100 min", "2.1 h"; "for ever"."""
    if math.isinf(seconds):
        return "for ever"
    if seconds < NOTHING_S:
        return "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 300:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def rate(per_s: float) -> str:
    """Return a rate: "60/s", "307.7/s", "10,000/s"; below one a second by the minute: "10/min"."""
    if 0 < per_s < 1:
        return f"{per_s * 60:.3g}/min"
    return f"{per_s:,.0f}/s" if per_s >= 1000 or per_s == round(per_s) else f"{per_s:,.1f}/s"


def size(size_b: float) -> str:
    """Return bytes by thousands: "12 MB", "1.5 KB", "720 MB", "80 B"."""
    for least, unit in _SIZES:
        if size_b >= least * 0.9995:
            return f"{size_b / least:.3g} {unit}"
    return f"{size_b:.0f} B"


def count(items: float) -> str:
    """Return a number of items: "12", "0.5", "12,000"."""
    return f"{items:,.0f}" if items >= 100 or items == round(items) else f"{items:.3g}"


def share(part: float) -> str:
    """Return a share in percent: "60 %", "0.5 %"."""
    return f"{part * 100:.3g} %"


def setting_s(seconds: float) -> str:
    """Return a duration for a setting, rounded up to two digits of a fitting unit: "250ms", "15m", "1.5h"."""
    if seconds < 1:
        return f"{_up(seconds * 1000)}ms"
    scale, unit = max(one for one in _UNITS if seconds >= one[0])
    return f"{_up(seconds / scale)}{unit}"


def _up(number: float) -> str:
    """Return a number rounded up to two digits."""
    if number <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / step - 1e-9) * step:.6g}"
