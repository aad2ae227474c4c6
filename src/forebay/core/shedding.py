"""Shedding: who among waiting requests makes room, and when the refused come back.

What a task's discipline does to a queue that stands is decided here, as its turn comes and at the door.
"""

from forebay.core.basin import Basin
from forebay.core.codel import INTERVAL_MIN_S, INTERVAL_TARGETS, TARGET_MIN_S, Discipline
from forebay.core.feasibility import Foretold
from forebay.core.hand import Hand, TaskHand
from forebay.core.requests import End, Request, Reservoir

UNMEASURED_RETRY_S = 0.5
RETRY_MIN_S, RETRY_MAX_S = 0.01, 10.0
SPREAD_SHARE = 0.5  # refused callers are spread over this much more of the wait
GOLDEN = 0.6180339887498949  # spreads those that are shed in one turn, where nothing was drawn


def tend(hand: Hand, task: TaskHand, at: float, now: float) -> None:
    """See who would start at `at`; end those that the discipline of the task gives up."""
    codel, reservoir = task.codel, hand.basin.reservoirs[task.spec.name]
    if codel is None:
        return
    target_s, interval_s = bounds_s(task)
    newest = task.spec.discipline is Discipline.NEWEST
    beside = max((one.beside(task.spec.concurrency) for one in hand.replicas.values() if one.open), default=1)
    while (first := reservoir.oldest() if newest else reservoir.first()) is not None:
        few = len(reservoir) <= task.spec.batch_max * beside
        drops = codel.drops(
            at - first.job.created_at, few=few, target_s=target_s, interval_s=interval_s, now=now
        )
        if newest or not drops:
            break
        shed(hand, _least(reservoir), now)
    if newest:
        reservoir.turn(newest_first=codel.standing)
        while codel.standing and (oldest := reservoir.oldest()) is not None:
            if at - oldest.job.created_at <= interval_s:
                break
            shed(hand, oldest, now)


def excess_s(task: TaskHand, told: Foretold) -> float:
    """Return by how much one that comes now would wait longer than a standing queue lets anybody wait."""
    codel = task.codel
    if codel is None or not codel.standing:
        return 0.0
    return max(0.0, told.starts_s - bounds_s(task)[1])


def bounds_s(task: TaskHand) -> tuple[float, float]:
    """Return target and interval: as the task says, else by how long a full batch of it takes."""
    spec = task.spec
    target_s, interval_s = spec.wait_target_s, spec.wait_interval_s
    if target_s is None:
        target_s = max(TARGET_MIN_S, task.fit.run_s(spec.batch_max) or 0.0)
        if interval_s is not None:
            target_s = min(target_s, interval_s)
    if interval_s is None:
        interval_s = max(INTERVAL_MIN_S, INTERVAL_TARGETS * target_s)
    return target_s, interval_s


def shed(hand: Hand, request: Request, now: float, jitter: float | None = None) -> None:
    """End a request that waits: it makes room. It is told when to come back."""
    if jitter is None:
        jitter = request.seq * GOLDEN % 1.0
    task = hand.tasks[request.job.task]
    after_s = book(hand.basin, request.job.task, item_s(hand, task), 0.0, now, jitter)
    hand.basin.end(request, End.SHED, retry_after_s=after_s)


def _least(reservoir: Reservoir) -> Request:
    """Return who is given up: of the least urgent class, and of a tenant that crowds it, the one that has
    waited the longest."""
    last = reservoir.last()
    assert last is not None
    priority = last.job.priority
    first = reservoir.first_of(priority)
    crowd = reservoir.crowd(first.job.tenant)
    return (reservoir.newest_of(crowd, priority) if crowd is not None else None) or first


def item_s(hand: Hand, task: TaskHand) -> float:
    """Return the seconds between two departures of the task at its best."""
    spec = task.spec
    beside = sum(replica.beside(spec.concurrency) for replica in hand.replicas.values() if replica.open)
    run_s = task.fit.run_s(spec.batch_max)
    return UNMEASURED_RETRY_S if run_s is None else run_s / (spec.batch_max * (beside or spec.concurrency))


def book(basin: Basin, task: str, each_s: float, late_s: float, now: float, jitter: float) -> float:
    """Return when this refused caller should come back: each is told a time of its own, at the pace at which
    requests leave, so that they do not come back as one wave."""
    booked = max(now, basin.booked.get(task, 0.0)) + each_s
    basin.booked[task] = min(booked, now + RETRY_MAX_S)
    after_s = max(RETRY_MIN_S, late_s, booked - now)
    return min(RETRY_MAX_S, after_s) * (1.0 + SPREAD_SHARE * jitter)
