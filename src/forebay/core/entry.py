"""Entry: whether a request is let in, by when it would be done; what is refused is told when to come back.

What is let in is expected to be done in time. So a reservoir is as deep as the deadlines allow at the pace
of the moment, and no bound has to be found by anybody.
"""

from forebay.core import levels
from forebay.core.admission import Offer, Reason, Rejected
from forebay.core.basin import Asked, Basin, Looked
from forebay.core.feasibility import Foretold, foretell
from forebay.core.hand import Hand, TaskHand
from forebay.core.job import PRIORITY_NORMAL, Job
from forebay.core.requests import Request, Reservoir
from forebay.core.shedding import SPREAD_SHARE, book, bounds_s, excess_s, item_s, shed
from forebay.core.variants import Ladder

MARGIN_SHARE = 0.1  # of the time a request has: kept free for its way here and back
MARGIN_MAX_S = 0.25
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
    told = _foretold(hand, hand.tasks[task], asked, ahead, now)
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
    told = _foretold(hand, task, asked, ahead, now)
    if told is None:
        return None, victim, False
    if task.ladder is not None:
        _press(task, task.ladder, asked, told, now)
        levels.look(hand, task, now)
        told = _foretold(hand, task, asked, ahead, now) or told
    late_s = _late_s(basin, asked, told, now)
    if late_s <= 0:
        stands_s = 0.0 if reservoir.newest_first else excess_s(task, told)
        if stands_s <= 0:
            return None, victim, False
        after_s = book(basin, asked.task, item_s(hand, task), stands_s, now, jitter)
        return Rejected(Reason.SHED, after_s), None, False
    if reservoir.newest_first:  # it would go before all others of its class
        return _infeasible(hand, task, asked, told, late_s, now, jitter), None, False
    crowd = reservoir.crowd(asked.tenant)
    pushed = None if crowd is None else reservoir.newest_of(crowd, asked.priority)
    if pushed is not None and pushed.key < (asked.priority, asked.deadline_at, 1 << 62):
        instead = _foretold(hand, task, asked, ahead - 1, now)
        if instead is None or _late_s(basin, asked, instead, now) <= 0:
            return None, pushed, False
    return _infeasible(hand, task, asked, told, late_s, now, jitter), None, False


def _late_s(basin: Basin, asked: Asked, told: Foretold, now: float) -> float:
    """Return by how much a request would miss what it may take of its time, 0 or less when it would not.

    What would start at once is let in on the expectation alone: nothing is gained by refusing it.
    """
    has_s = asked.deadline_at - now
    if told.starts_s <= 0:
        return told.ends_s - has_s
    whole_s = asked.deadline_at - asked.created_at
    spare_s = min(MARGIN_MAX_S, MARGIN_SHARE * whole_s) + min(LAGS * basin.lag_s, LAG_SHARE_MAX * whole_s)
    if asked.priority > PRIORITY_NORMAL:
        spare_s += (1.0 - basin.reservoirs[asked.task].policy.soft_share) * has_s
    return told.ends_s + told.doubt_s + spare_s - has_s


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


def _foretold(hand: Hand, task: TaskHand, asked: Asked, ahead: int, now: float) -> Foretold | None:
    others_s = 0.0
    if len(hand.tasks) > 1:
        jobs_wait = hand.basin.smooth.live(now)  # for frames, and for requests with them
        for name, other in hand.tasks.items():
            if other is not task:
                held = 0 if jobs_wait else len(other.held)
                count = held + hand.basin.reservoirs[name].ahead(asked.priority, asked.deadline_at)
                others_s += count * (other.fit.run_s(1) or 0.0)
    rate = hand.basin.rate_per_s(asked.task)
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
        told = _foretold(hand, task, asked, len(reservoir) - 1, now)
        if told is None or now + told.ends_s <= last.deadline_at:
            return
        shed(hand, last, now, jitter)


def _infeasible(
    hand: Hand, task: TaskHand, asked: Asked, told: Foretold, late_s: float, now: float, jitter: float
) -> Rejected:
    hand.basin.refused_at[asked.task] = now
    after_s = book(hand.basin, asked.task, item_s(hand, task), late_s, now, jitter)
    needed_s = (told.ends_s + told.doubt_s) / (1.0 - MARGIN_SHARE)
    offer = Offer(
        earliest_p50_at=now + told.ends_s,
        earliest_p90_at=now + told.ends_s + told.doubt_s,
        deadline_needed_at=now + needed_s,
    )
    return Rejected(Reason.TOO_LATE, after_s, offer=offer)
