"""Levels: what the ladder of a task is shown of its reservoir, and what follows from a step of it."""

from forebay.core.hand import Hand, TaskHand
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.variants import Seen


def look(hand: Hand, task: TaskHand, now: float) -> None:
    """Let the ladder of a task, where it has one, make a step; the law of its service follows."""
    ladder = task.ladder
    if ladder is None:
        return
    fill = max(task.filled, ladder.strain(now=now), hand.basin.reservoirs[task.spec.name].fill)
    urgent = _urgent(hand, task, now)
    busy = _busy_above(hand, task, now) if ladder.step else 0.0
    moved = ladder.see(Seen(fill, busy, urgent), now=now)
    if moved is not None:
        task.refit()
        hand.moved.append((task.spec.name, moved))


def look_all(hand: Hand, now: float) -> None:
    """The same for every task of the set."""
    for task in hand.laddered:
        look(hand, task, now)


def wake_at(hand: Hand, now: float) -> list[float | None]:
    """Return when to look again if nothing happens before."""
    return [task.ladder.wake_at(now) for task in hand.laddered if task.ladder is not None]


def fill_of(*, queued: int, open_jobs: int, bytes_open: int, jobs_max: int, bytes_max: int) -> float:
    """Return how full a queue is of jobs that could run: in items or in bytes, whichever is more."""
    bytes_queued = bytes_open * queued / max(1, open_jobs)
    return max(queued / jobs_max, bytes_queued / bytes_max)


def _urgent(hand: Hand, task: TaskHand, now: float) -> bool:
    """Say whether there is work above normal priority."""
    if hand.basin.lately(task.spec.name, urgent=True, now=now) > 0.0:
        return True
    return any(item.lease.job.priority < PRIORITY_NORMAL for item in task.held)


def slower(hand: Hand, task: TaskHand, now: float) -> float:
    """Return how many times as long as at their own level ordinary requests take: some are in one batch with
    urgent ones and run at the level of those."""
    ladder = task.ladder
    if ladder is None or not ladder.step:
        return 1.0
    urgent, own = ladder.level(0), ladder.level(PRIORITY_NORMAL)
    own_s = _full_s(task, own)
    return _mixed_s(hand, task, urgent, own, now) / own_s if own_s > 0.0 else 1.0


def _busy_above(hand: Hand, task: TaskHand, now: float) -> float:
    """Return the share of the replicas' time that the requests which come now would take one step up."""
    replicas = sum(replica.open for replica in hand.replicas.values())
    if not replicas:
        return float("inf")
    busy = 0.0
    for name, other in hand.tasks.items():
        rate = sum(hand.basin.lately(name, urgent=urgent, now=now) for urgent in (False, True))
        if rate <= 0.0:
            continue
        ladder = other.ladder
        if ladder is None:
            urgent, own = 0, 0
        elif other is task:
            urgent, own = ladder.level_above(urgent=True), ladder.level_above(urgent=False)
        else:
            urgent, own = ladder.level(0), ladder.level(PRIORITY_NORMAL)
        size = other.spec.batch_max * other.spec.concurrency
        busy += rate * _mixed_s(hand, other, urgent, own, now) / size
    return busy / replicas


def _mixed_s(hand: Hand, task: TaskHand, urgent: int, own: int, now: float) -> float:
    """Return the mean seconds of a full batch where urgent requests have one level and all others another."""
    own_s, urgent_s = _full_s(task, own), _full_s(task, urgent)
    above = hand.basin.lately(task.spec.name, urgent=True, now=now)
    if task.spec.batch_max == 1:  # each runs by itself
        share = above / max(1e-9, above + hand.basin.lately(task.spec.name, urgent=False, now=now))
    else:
        share = min(1.0, above * urgent_s)  # of the batches, that have an urgent one
    return own_s + share * (urgent_s - own_s)


def _full_s(task: TaskHand, level: int) -> float:
    return task.fit_at(level).run_s(task.spec.batch_max) or 0.0
