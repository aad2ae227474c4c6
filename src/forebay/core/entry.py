"""Entry: whether a request is let in, by when it would be done; what is refused is told when to come back.

What is let in is expected to be done in time. So a reservoir is as deep as the deadlines allow at the pace
of the moment, and no bound has to be found by anybody.
"""

from forebay.core import levels
from forebay.core.admission import Offer, Reason, Rejected
from forebay.core.basin import Asked, Basin, Looked
from forebay.core.feasibility import Foretold
from forebay.core.hand import Hand, TaskHand
from forebay.core.job import PRIORITY_NORMAL, Job
from forebay.core.newcomer import costs_others, foretold, keeps_s
from forebay.core.requests import Request, Reservoir
from forebay.core.shedding import SPREAD_SHARE, book, bounds_s, excess_s, item_s, shed
from forebay.core.shut import refusal
from forebay.core.variants import Ladder

MARGIN_SHARE = 0.1  # of the time a request has: kept free for its way here and back
MARGIN_MAX_S = 0.25
WAY_IN_SHARE = 0.5  # of this: for the way here, less what is known to have passed on it
SURE = 2.0  # times the doubt is kept free, where the deadline leaves room for a line nevertheless
LAGS = 2.0  # and for a process that is late itself: on the way in, and on the way out
LAG_SHARE_MAX = 0.2  # of the time a request has: one stall must not shut the door
PROBE_S = 1.0  # after so long without a run, what was measured is old: one request goes and sees
NO_WORKER_S = 2.0  # without a replica for longer than this nothing is let in to wait for one
NO_WORKER_RETRY_S = 2.0
SHED_MAX = 8  # requests that one more urgent may push out


def look(hand: Hand, asked: Asked, *, now: float, jitter: float) -> Rejected | None:
    """Return why this request would be refused, None when it would be let in. Nothing is taken in.

    `jitter` in [0, 1) spreads refused callers.
    """
    verdict, victim, probe = _judge(hand, asked, now=now, jitter=jitter)
    if verdict is not None:
        hand.basin.came(asked.task, now=now, priority=asked.priority)
    else:
        hand.basin.looked = Looked(asked, now, victim, probe)
    return verdict


def admit(hand: Hand, job: Job, *, now: float, jitter: float, frame: bool = False) -> Request | Rejected:
    """Let a request in, or say why not. What makes room for it ends as shed. `frame`: it is one of a stream,
    and others will follow it."""
    basin = hand.basin
    if frame:
        basin.smooth.came(now)
    assert job.deadline_at is not None
    asked = Asked(job.task, job.tenant, job.priority, job.size, job.created_at, job.deadline_at)
    looked, basin.looked = basin.looked, None
    if looked is not None and looked.stands_for(asked, now=now):
        refused, victim, probe = None, looked.victim, looked.probe
    else:
        refused, victim, probe = _judge(hand, asked, now=now, jitter=jitter)
    basin.came(job.task, now=now, priority=job.priority)
    if refused is not None:
        return refused
    if victim is not None:
        shed(hand, victim, now, jitter)
    request = basin.new(job)
    request.probe = probe
    reservoir = basin.reservoirs[job.task]
    if reservoir.last() is not request:
        _shed_tail(hand, reservoir, job.priority, now, jitter)
    return request


def expected_wait_s(hand: Hand, task: str, *, now: float) -> float | None:
    """Return in how long a request that comes now would start, None where nobody knows."""
    asked = Asked(task, "", PRIORITY_NORMAL, 0, now, float("inf"))
    ahead = hand.basin.reservoirs[task].ahead(PRIORITY_NORMAL, float("inf"))
    told = foretold(hand, hand.tasks[task], asked, ahead, now)
    return None if told is None else told.starts_s


def _judge(
    hand: Hand, asked: Asked, *, now: float, jitter: float
) -> tuple[Rejected | None, Request | None, bool]:
    """Return (why it is refused, who makes room for it, whether it is a probe)."""
    basin = hand.basin
    reservoir, task = basin.reservoirs[asked.task], hand.tasks[asked.task]
    no_worker = _no_worker(hand, now)
    if no_worker is not None:
        return no_worker, None, False
    if task.guard is not None and not task.guard.guest:
        wait_s = task.guard.breaker.retry_after_s(now=now)
        if wait_s > 0:
            return Rejected(Reason.BREAKER_OPEN, wait_s * (1.0 + SPREAD_SHARE * jitter)), None, False
    shut = refusal(hand, task, asked, now=now, jitter=jitter) or _over(hand, task, asked, now, jitter)
    if shut is not None:
        return shut, None, False
    victim = None
    full = _full(reservoir, asked)
    if full is not None:
        victim = _lesser(reservoir, asked)
        if victim is None or asked.size_b > victim.job.size + reservoir.policy.bytes_max - reservoir.bytes:
            after_s = book(basin, asked.task, item_s(hand, task), 0.0, now, jitter)
            return full._replace(retry_after_s=after_s), None, False
    if not basin.waiting and not task.runs_out and now - task.last_run_at > PROBE_S:
        return None, None, True
    ahead = reservoir.ahead(asked.priority, asked.deadline_at)
    told = foretold(hand, task, asked, ahead, now)
    if told is None:
        return None, victim, False
    if task.ladder is not None:
        _press(task, task.ladder, asked, told, now)
        levels.look(hand, task, now)
        told = foretold(hand, task, asked, ahead, now) or told
    late_s = _missed_s(hand, asked, told, now)
    costs = late_s <= 0 and costs_others(hand, task, asked, told, ahead, now)
    if late_s <= 0 and not costs:
        stands_s = 0.0 if reservoir.newest_first else excess_s(task, told)
        if stands_s <= 0:
            return None, victim, False
        after_s = book(basin, asked.task, item_s(hand, task), stands_s, now, jitter)
        return Rejected(Reason.SHED, after_s), None, False
    if not reservoir.newest_first:  # else it would go before all others of its class
        instead_of = _makes_room(hand, task, asked, ahead, now, costs=costs)
        if instead_of is not None:
            return None, instead_of, False
    if costs:
        told, late_s = _behind(hand, task, asked, told, now)
    return _infeasible(hand, task, asked, told, late_s, now, jitter), None, False


def _makes_room(
    hand: Hand, task: TaskHand, asked: Asked, ahead: int, now: float, *, costs: bool
) -> Request | None:
    """Return the newest of a tenant that crowds, where a request of another would be in time in its stead."""
    reservoir = hand.basin.reservoirs[asked.task]
    crowd = reservoir.crowd(asked.tenant)
    newest = None if crowd is None else reservoir.newest_of(crowd, asked.priority)
    if newest is None:
        return None
    before = newest.key < (asked.priority, asked.deadline_at, 1 << 62)
    if not (before or costs):  # without it the request would not be done any earlier
        return None
    instead = foretold(hand, task, asked, ahead - before, now)
    return newest if instead is None or _missed_s(hand, asked, instead, now) <= 0 else None


def _over(hand: Hand, task: TaskHand, asked: Asked, now: float, jitter: float) -> Rejected | None:
    """Return the refusal of a request whose time has passed: nobody waits for it, whatever is expected."""
    if asked.deadline_at > now:
        return None
    after_s = book(hand.basin, asked.task, item_s(hand, task), 0.0, now, jitter)
    passed = f"{now - asked.created_at:.3g} s had passed when it was read"
    return Rejected(Reason.TOO_LATE, after_s, told=passed)


def _missed_s(hand: Hand, asked: Asked, told: Foretold, now: float) -> float:
    """Return by how much a request would miss what it may take of its time, 0 or less when it would not.

    What would start at once is let in by what its turn, in a moment, will ask: nothing is gained by more.
    """
    if told.starts_s > 0:
        return _late_s(hand.basin, asked, told, now)
    return now + told.ends_s + keeps_s(hand, hand.tasks[asked.task], asked, now) - asked.deadline_at


def _behind(hand: Hand, task: TaskHand, asked: Asked, told: Foretold, now: float) -> tuple[Foretold, float]:
    """Return when a request would be done behind all that wait, with a full batch, where it costs nobody
    anything; and by how much that is later than it asks."""
    size = task.spec.batch_max
    last = -(-len(hand.basin.reservoirs[asked.task]) // size) * size + size - 1
    told = foretold(hand, task, asked._replace(deadline_at=float("inf")), last, now) or told
    return told, max(1e-6, now + told.ends_s - asked.deadline_at)


def _late_s(basin: Basin, asked: Asked, told: Foretold, now: float) -> float:
    """Return the same of one that has to wait: its time is not all its run's, nor is all foreseen."""
    has_s = asked.deadline_at - now
    whole_s = asked.deadline_at - asked.created_at
    ways_s = min(MARGIN_MAX_S, MARGIN_SHARE * whole_s)
    ways_s -= min(WAY_IN_SHARE * ways_s, max(0.0, now - asked.created_at))
    spare_s = ways_s + min(LAGS * basin.lag_s, LAG_SHARE_MAX * whole_s)
    if asked.priority > PRIORITY_NORMAL:
        spare_s += (1.0 - basin.reservoirs[asked.task].policy.soft_share) * has_s
    # Who comes too late has taken the time of two, so it pays to be sure; but where a run nearly fills the
    # deadline there would be no line left, and with none the batches are small.
    room_s = has_s - spare_s - 2.0 * (told.ends_s - told.starts_s)
    doubt_s = max(told.doubt_s, min(SURE * told.doubt_s, room_s))
    return told.ends_s + doubt_s + spare_s - has_s


def _press(task: TaskHand, ladder: Ladder, asked: Asked, told: Foretold, now: float) -> None:
    """Tell the ladder how full a request finds the reservoir: by what share of its time it needs, and of the
    longest wait where the discipline of the task bounds it. Where it would start at once it is empty."""
    if told.starts_s <= 0:
        return
    spare_s = min(MARGIN_MAX_S, MARGIN_SHARE * (asked.deadline_at - asked.created_at))
    share = (told.ends_s + told.doubt_s + spare_s) / max(1e-9, asked.deadline_at - now)
    if task.codel is not None:
        share = max(share, told.starts_s / bounds_s(task)[1])
    ladder.press(share, now=now)


def _no_worker(hand: Hand, now: float) -> Rejected | None:
    basin = hand.basin
    for replica in hand.replicas.values():
        if replica.open:
            basin.dry_at = None
            return None
    if basin.dry_at is None:
        basin.dry_at = now
    if now - basin.dry_at < NO_WORKER_S:
        return None
    return Rejected(Reason.NO_WORKER, NO_WORKER_RETRY_S)


def _full(reservoir: Reservoir, asked: Asked) -> Rejected | None:
    policy = reservoir.policy
    share = policy.soft_share if asked.priority > PRIORITY_NORMAL else 1.0
    if len(reservoir) + 1 > share * policy.requests_max:
        return Rejected(Reason.FULL, None, policy.requests_max)
    if reservoir.bytes + asked.size_b > share * policy.bytes_max:
        return Rejected(Reason.BYTES_FULL, None, policy.bytes_max)
    return None


def _lesser(reservoir: Reservoir, asked: Asked) -> Request | None:
    """Return who makes room in a reservoir at its bound: the last of a less urgent class, else the newest
    of a tenant that has more waiting. Where the newest go first the oldest of its own class does."""
    last = reservoir.last()
    if last is not None and last.job.priority + reservoir.newest_first > asked.priority:
        return last
    crowd = reservoir.crowd(asked.tenant)
    return None if crowd is None else reservoir.newest_of(crowd, asked.priority)


def _shed_tail(hand: Hand, reservoir: Reservoir, priority: int, now: float, jitter: float) -> None:
    """End what cannot be done in time any more, because others go first: it should not wait to hear it."""
    for _ in range(SHED_MAX):
        last = reservoir.last()
        if last is None or last.probe or last.job.priority <= priority:
            return
        task = hand.tasks[last.job.task]
        job = last.job
        asked = Asked(job.task, job.tenant, job.priority, 0, job.created_at, last.deadline_at)
        told = foretold(hand, task, asked, len(reservoir) - 1, now)
        if told is None or now + told.ends_s <= last.deadline_at:
            return
        shed(hand, last, now, jitter)


def _infeasible(
    hand: Hand, task: TaskHand, asked: Asked, told: Foretold, late_s: float, now: float, jitter: float
) -> Rejected:
    hand.basin.refused_at[asked.task] = now
    after_s = book(hand.basin, asked.task, item_s(hand, task), late_s, now, jitter)
    needed_s = (told.ends_s + SURE * told.doubt_s) / (1.0 - MARGIN_SHARE)
    offer = Offer(
        earliest_p50_at=now + told.ends_s,
        earliest_p90_at=now + told.ends_s + told.doubt_s,
        deadline_needed_at=now + needed_s,
    )
    return Rejected(Reason.TOO_LATE, after_s, offer=offer)
