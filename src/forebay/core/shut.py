"""Shut: an upstream takes no calls now: which requests are refused for it, at the door and while they wait.

Nobody knows how long a gate stays closed. So a request waits for it a little, where its deadline allows, and
hears why it was not called rather than that it was late. Jobs wait.
"""

from typing import Final, NamedTuple

from forebay.core.admission import SPREAD_SHARE, Reason, Rejected
from forebay.core.basin import Asked
from forebay.core.hand import Hand, TaskHand
from forebay.core.job import JobError
from forebay.core.replicas import Replica, Shut
from forebay.core.requests import End, Request
from forebay.core.shedding import GOLDEN, book, item_s

SHUT_WAIT_S: Final = 2.0  # closed for longer than this, nothing is let in to wait until it opens
CODE: Final = "upstream_busy"


class Closed(NamedTuple):
    """It takes no calls, and when it may do so again: in `opens_s` at the earliest, likely in `likely_s`."""

    shut: Shut
    opens_s: float
    likely_s: float


def closed(hand: Hand, now: float) -> Closed | None:
    """Return why no replica takes calls now; None where one does, or where nobody said why."""
    found: Shut | None = None
    for replica in hand.replicas.values():
        if replica.shut is None:
            return None
        found = replica.shut
    if found is None:
        return None
    opens_s = max(0.0, found.opens_at - now)
    # What has been closed for long is not likely to open at the next look.
    return Closed(found, opens_s, opens_s if found.sure else max(opens_s, now - found.since))


def refusal(hand: Hand, task: TaskHand, asked: Asked, *, now: float, jitter: float) -> Rejected | None:
    """Return why a request is not let in to wait for an upstream that takes no calls, None where it may."""
    if (why := closed(hand, now)) is None:
        return None
    hopeless = now + why.opens_s + _call_s(task) > asked.deadline_at
    if not hopeless and (why.shut.sure or now - why.shut.since <= SHUT_WAIT_S):
        return None
    after_s = _after_s(hand, task, why, now, jitter)
    return Rejected(Reason.UPSTREAM_BUSY, after_s, told=why.shut.why)


def shut(hand: Hand, replica: Replica, why: Shut | None, *, now: float) -> None:
    """It takes no calls, or takes some again (None). Who cannot be in time when it may open hears it now."""
    replica.shut = why
    if why is None or (found := closed(hand, now)) is None:
        return
    for task in hand.tasks.values():
        least_at = now + found.opens_s + _call_s(task)
        for request in [one for one in hand.basin.reservoirs[task.spec.name] if one.deadline_at < least_at]:
            tell(hand, request, found, now=now)


def tell(hand: Hand, request: Request, why: Closed, *, now: float) -> None:
    """End a request that waits: it was not called, and why. It is told when to come back."""
    task = hand.tasks[request.job.task]
    after_s = _after_s(hand, task, why, now, request.seq * GOLDEN % 1.0)
    hand.basin.end(request, End.BARRED, error=JobError(CODE, why.shut.why), retry_after_s=after_s)


def _call_s(task: TaskHand) -> float:
    return task.fit.run_s(1) or 0.0


def _after_s(hand: Hand, task: TaskHand, why: Closed, now: float, jitter: float) -> float:
    """Return when to come back: each a time of its own, and not before an upstream that said so opens."""
    after_s = book(hand.basin, task.spec.name, item_s(hand, task), why.likely_s, now, jitter)
    return max(after_s, why.opens_s * (1.0 + SPREAD_SHARE * jitter))
