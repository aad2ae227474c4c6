"""outlook(): what is to be said to a producer that announces so many jobs: do they fit, and at which rate."""

from collections.abc import Iterable
from typing import NamedTuple

KEEP_SHARE = 0.95  # of the measured drain that is counted on: it varies


class Outlook(NamedTuple):
    """`fits`: all at once. `rate_per_s` is the most to send at, and `takes_s` how long that is; None: as fast
    as one likes where they fit, else nothing is known to go by."""

    fits: bool
    rate_per_s: float | None
    takes_s: float | None


def outlook(
    *,
    jobs: int,
    room: int,
    spare: float,
    drain_per_s: float | None,
    limits_per_s: Iterable[float | None] = (),
) -> Outlook:
    """Return what becomes of `jobs` that begin to come now.

    `room` places are free to the bound, `spare` to the soft watermark below it; `limits_per_s` are rates that
    hold whatever the queue does. At the told rate the queue fills to the watermark by the last job, if it
    drains as measured: not a promise.
    """
    fits = jobs <= room
    rates = [rate for rate in limits_per_s if rate is not None]
    if not fits and drain_per_s:
        over = jobs - max(0.0, min(spare, room))  # what has to leave while they come
        rates.append(KEEP_SHARE * drain_per_s * jobs / over)
    elif not fits:
        return Outlook(fits, None, None)
    if not rates:
        return Outlook(fits, None, None)
    rate = min(rates)
    return Outlook(fits, rate, jobs / rate)
