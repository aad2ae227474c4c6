"""Newcomer: when a request that comes now would be done, and who of those who wait would be late for it.

Whoever has an earlier deadline than some who wait goes before them. They were let in on an expectation that
knew nothing of it, so it is let in only where they are in time nevertheless.
"""

from typing import Final

from forebay.core import levels
from forebay.core.basin import Asked
from forebay.core.feasibility import Foretold, foretell
from forebay.core.hand import Hand, TaskHand
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.parting import Due, crowded, in_time, spare_s

RUNS_MAX: Final = 16  # from that of a newcomer on, that are looked at: those behind have more time
SHORTER: Final = 1.25  # times as long as the newcomer, and the place of another task's item is worth two
LOOKED_MAX: Final = 1_024  # of the members of these: about a quarter of a millisecond


def foretold(
    hand: Hand, task: TaskHand, asked: Asked, ahead: int, now: float, *, rate_per_s: float | None = None
) -> Foretold | None:
    """Return when a request behind `ahead` others would start and end, None where nobody knows. At
    `rate_per_s` others join its batch; None: as they came of late."""
    others_s = 0.0
    if len(hand.tasks) > 1:
        jobs_wait = hand.basin.smooth.live(now)  # for frames, and for requests with them
        for name, other in hand.tasks.items():
            if other is not task:
                held = 0 if jobs_wait else len(other.held)
                count = held + hand.basin.reservoirs[name].ahead(asked.priority, asked.deadline_at)
                others_s += count * (other.fit.run_s(1) or 0.0)
    rate = hand.basin.rate_per_s(asked.task) if rate_per_s is None else rate_per_s
    fit = task.fit_of(asked.priority)
    if task.ladder is not None and asked.priority >= PRIORITY_NORMAL:
        ahead = round(ahead * levels.slower(hand, task, now))
    told = foretell(hand, task, fit, ahead=ahead, others_s=others_s, rate_per_s=rate, now=now)
    if told is None or told.starts_s <= 0:
        return told
    jobs = next((one for one in hand.tasks.values() if one.held), None)
    if jobs is None or hand.basin.smooth.live(now) or not hand.basin.share.jobs_within(told.starts_s):
        return told
    run_s = jobs.fit.run_s(jobs.spec.batch_max) or 0.0  # of jobs, whose turn comes before this one's
    return told._replace(starts_s=told.starts_s + run_s, ends_s=told.ends_s + run_s)


def keeps_s(hand: Hand, task: TaskHand, asked: Asked, now: float) -> float:
    """Return the seconds that the turn of a request that comes now keeps free before its deadline."""
    waiting = len(hand.basin.reservoirs[asked.task]) + 1
    crowd = crowded(hand.basin, asked.task, waiting=waiting, room=task.spec.batch_max, now=now)
    return spare_s(task.fit_of(asked.priority), asked.deadline_at - asked.created_at, crowd=crowd)


def costs_others(hand: Hand, task: TaskHand, asked: Asked, told: Foretold, ahead: int, now: float) -> bool:
    """Say whether a newcomer that goes before some who wait, with `ahead` before it and so much told of it,
    would cost one of them, or itself, the time. Those of less urgent classes are not asked: they make room.

    Who goes to the end pushes nobody, and is not asked whether its batch becomes too long for the first of
    it: where a model slows down all are nearly late, and batches would stay small for fear of that.
    """
    reservoir, room = hand.basin.reservoirs[asked.task], task.spec.batch_max
    if task.spec.concurrency > 1 or reservoir.newest_first:
        return False
    if len(hand.tasks) > 1 and room == 1 and len(reservoir) < hand.basin.waiting:
        return _costs_others_tasks(hand, task, asked, told, now)
    if ahead == len(reservoir):
        return False
    first, waiting = ahead - ahead % room, len(reservoir)
    crowd = crowded(hand.basin, asked.task, waiting=waiting + 1, room=room, now=now)
    fit = task.fit_of(asked.priority)
    free_s = spare_s(fit, asked.deadline_at - asked.created_at, crowd=crowd) if room > 1 else 0.0
    begins = foretold(hand, task, asked, first, now, rate_per_s=0.0) or told
    last = min(waiting, first + min(RUNS_MAX * room, LOOKED_MAX))
    if ahead > last:  # in a run so long that its end is not looked at
        return False
    line = [due for place in range(first, last) if (due := reservoir.due(place))[0] <= asked.priority]

    def done(line: list[Due]) -> int:
        return in_time(takes, line, room=room, at=at, beside=beside, free_s=free_s, crowd=crowd)

    at, beside = now + begins.starts_s, sum(replica.open for replica in hand.replicas.values())
    takes = fit.likely_s if begins.starts_s > 0 else fit.run_s  # as the one who comes is told
    before = done(line)
    line.insert(ahead - first, (asked.priority, asked.deadline_at))
    return done(line) <= before


def _costs_others_tasks(hand: Hand, task: TaskHand, asked: Asked, told: Foretold, now: float) -> bool:
    """Say the same where single items of several tasks wait for the same replicas: they take turns by their
    class and deadline, each as long as items of its task take. One that takes much longer than the newcomer
    may lose its place to it: else a line of long ones would refuse many that are short."""
    behind: list[tuple[Due, float]] = []
    for name, other in hand.tasks.items():
        reservoir, each_s = hand.basin.reservoirs[name], other.fit_of(asked.priority).run_s(1) or 0.0
        if reservoir.newest_first or other.spec.concurrency > 1:
            continue
        place = reservoir.ahead(asked.priority, asked.deadline_at)
        for at in range(place, min(len(reservoir), place + LOOKED_MAX // len(hand.tasks))):
            if (due := reservoir.due(at))[0] > asked.priority:
                break
            behind.append((due, each_s))
    if not behind:
        return False
    behind.sort()
    beside = sum(replica.open for replica in hand.replicas.values())

    def done(at: float) -> tuple[int, float]:
        count, work_s = 0, 0.0
        for (_, deadline_at), each_s in behind:
            if at + each_s <= deadline_at:
                count += 1
                work_s += each_s
                at += each_s / beside
        return count, work_s

    own_s = task.fit_of(asked.priority).run_s(1) or 0.0
    starts_at = now + told.starts_s
    with_it, with_s = done(starts_at + own_s / beside)
    without, without_s = done(starts_at)
    if 1 + with_it != without:
        return 1 + with_it < without
    return without_s - with_s < SHORTER * own_s
