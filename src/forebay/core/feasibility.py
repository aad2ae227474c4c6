"""Feasibility: when a request that comes now would be done, by what waits, runs and was measured."""

from typing import NamedTuple

from forebay.core.estimator.crew import start_after
from forebay.core.hand import Hand, TaskHand
from forebay.core.replicas import Replica
from forebay.core.service import ServiceFit

OVERRUN_SHARE = 0.25  # of how long it has run already: what a run is believed to need that is overdue
DOUBT_SPREADS = 1.5  # mean deviations of a run that are kept free, for what has to wait


class Foretold(NamedTuple):
    """Seconds from now, and how much later it may well be."""

    starts_s: float
    ends_s: float
    doubt_s: float


def foretell(
    hand: Hand,
    task: TaskHand,
    fit: ServiceFit,
    *,
    ahead: int,
    others_s: float,
    rate_per_s: float,
    now: float,
) -> Foretold | None:
    """Return when one more request of `task` would start and end behind `ahead` others of the task.

    `fit` is the law of the level at which it would run; `others_s` the time of what goes before it of other
    tasks of the lane; at `rate_per_s` others come and join its batch. None where nothing was measured or no
    replica can be foreseen.
    """
    spec = task.spec
    each_s = fit.run_s(1)
    if each_s is None:
        return None
    offsets = [
        in_s
        for replica in hand.replicas.values()
        if replica.open and (in_s := free_in(replica, now)) is not None
    ]
    if not offsets:
        return None
    if len(offsets) > 1:
        offsets.sort()
    if spec.concurrency > 1:
        return _beside(hand, task, ahead, others_s, each_s, fit.deviation_s)
    if spec.batch_max > 1:
        full_s = fit.likely_s(spec.batch_max) or 0.0
        runs, place = divmod(ahead, spec.batch_max)
        wait_s = start_after(offsets, runs, full_s)
        size = min(spec.batch_max, place + 1 + round(rate_per_s * wait_s))
        # What starts at once goes by what is sure, as nothing is found out before it has run. By the turn of
        # what waits the run before it has told more, and only who can be in time by that is run.
        run_s = (fit.likely_s(size) if wait_s > 0 else fit.run_s(size)) or 0.0
    else:
        runs = ahead + 1
        wait_s = _filled(offsets, ahead * each_s + others_s)
        run_s = each_s
    doubt_s = DOUBT_SPREADS * fit.deviation_s * (runs / len(offsets) + 1) ** 0.5 if wait_s > 0 else 0.0
    return Foretold(wait_s, wait_s + run_s, doubt_s)


def free_in(replica: Replica, now: float) -> float | None:
    """Return in how many seconds a replica is expected to have done all it was sent; None: nobody knows."""
    if not replica.runs:
        return 0.0
    left_s = replica.busy_until - now
    if len(replica.runs) == 1 and replica.runs[0].likely_s is not None:
        left_s = replica.since + replica.runs[0].likely_s - now
    if left_s == float("inf"):
        return None
    if left_s > 0:
        return left_s
    return OVERRUN_SHARE * max(0.0, now - replica.since)


def _beside(
    hand: Hand, task: TaskHand, ahead: int, others_s: float, each_s: float, deviation_s: float
) -> Foretold:
    """Of async handlers and of upstreams: so many run beside each other, and one ends every so often."""
    slots = free = 0
    for replica in hand.replicas.values():
        if replica.open:
            beside = replica.beside(task.spec.concurrency)
            slots += beside
            free += beside - min(beside, replica.unfinished())
    over = ahead + 1 - free
    wait_s = 0.0 if over <= 0 and not others_s else (max(0, over) * each_s + others_s) / slots
    return Foretold(wait_s, wait_s + each_s, DOUBT_SPREADS * deviation_s if wait_s > 0 else 0.0)


def _filled(offsets: list[float], work_s: float) -> float:
    """Return when replicas that get free at `offsets` (sorted) have done `work_s` together and the next of
    them gets free."""
    if len(offsets) == 1:
        return offsets[0] + work_s
    level = offsets[0]
    for count, offset in enumerate(offsets[1:], 1):
        if work_s <= (offset - level) * count:
            return level + work_s / count
        work_s -= (offset - level) * count
        level = offset
    return level + work_s / len(offsets)
