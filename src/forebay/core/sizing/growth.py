"""Growth: what becomes of a queue that gets more than it can give away."""

import math
from typing import NamedTuple


class Growth(NamedTuple):
    """A queue after a time of too much. Times are seconds; infinity for never."""

    grows_per_s: float  # negative: it has room to spare
    items: int  # waiting at the end of that time
    bytes: int
    empties_s: float  # until the line is empty once nothing more comes
    done_s: float  # from the first arrival to the end of the last


def growth(in_per_s: float, out_per_s: float, for_s: float, item_b: int = 0) -> Growth:
    """Return (λ − μ) × t items (a fluid queue: bursts within the time do not matter to it).

    1,000/s in and 800/s out for 60 s are 12,000 items, at 1 KB 12 MB; 5 minutes 60 MB, an hour 720 MB.
    5,000/s for 10 s are 42,000. 1,000 within a minute at 10 a minute are done after 100 minutes.
    """
    grows = in_per_s - out_per_s
    items = max(0, round(grows * for_s))
    empties_s = 0.0 if items == 0 else items / out_per_s if out_per_s > 0 else math.inf
    return Growth(grows, items, items * item_b, empties_s, for_s + empties_s)


def full_after_s(items_max: float, in_per_s: float, out_per_s: float) -> float:
    """Return when an empty queue reaches a bound: items / (λ − μ); infinity when it never does."""
    grows = in_per_s - out_per_s
    return items_max / grows if grows > 0 else math.inf


def lost_share(in_per_s: float, out_per_s: float) -> float:
    """Return the share that no queue can keep at a lasting rate: 1 − μ / λ, 0 when all can be served.

    10,000/s on one GPU of 4,000/s loses 60 %, however long the queue is.
    """
    return max(0.0, 1.0 - out_per_s / in_per_s) if in_per_s > 0 else 0.0
