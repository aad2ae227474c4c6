"""Serving: which requests start on which replica now, in batches that all their members can be in time for.

A request stays in its reservoir until a replica takes it: so who is next, and how large the batch may be, is
decided at the last moment. What cannot be done in time any more is answered then and costs no replica.
"""

from forebay.core.answering import late, lease_of, permitted, runs_as
from forebay.core.batching import DEADLINE_MARGIN_S, Trigger, closes_at, trigger
from forebay.core.hand import Hand, TaskHand
from forebay.core.keeping import note_use, riders
from forebay.core.levels import look_all
from forebay.core.live_fit import LiveFit
from forebay.core.parting import best_part, crowded, fitting, may_run, spare_s
from forebay.core.planning import piece_of, send, sendable, start_runs, start_suspects, wait_is_short
from forebay.core.replicas import Replica
from forebay.core.requests import Request, Reservoir
from forebay.core.shedding import tend

RUNS_AHEAD_MAX = 8  # with one replica, where they are short and the way to it is long
GATHER_MAX_S = 0.005  # a run that could start waits so long for those who have just connected
GATHER_SHARE = 0.2  # and no longer than this share of what one item takes: it must pay


def start(hand: Hand, *, now: float) -> None:
    """Send everything that should start now, requests and jobs; appends RunBatch actions."""
    basin = hand.basin
    look_all(hand, now)
    start_suspects(hand, now)
    if not basin.waiting:
        start_runs(hand, now=now)
        return
    while True:
        both = any(task.held for task in hand.tasks.values())
        jobs_first = both and basin.share.jobs_next() and not basin.smooth.live(now)
        began = _jobs(hand, now) if jobs_first else _requests(hand, now)
        if not began:  # the turn of the jobs is not taken from them ahead of time
            if not jobs_first and any(task.gathers_since is not None for task in hand.tasks.values()):
                return  # in a moment requests need the replica
            began = _requests(hand, now, idle_only=True) if jobs_first else _jobs(hand, now)
        if not began:
            return


def could_start(hand: Hand, task: str, now: float) -> bool:
    """Say whether a poll now could start a request of this task."""
    entry = hand.tasks[task]
    waiting = len(hand.basin.reservoirs[task])
    return any(_takes(hand, entry, replica, waiting, now) for replica in hand.replicas.values())


def closes(hand: Hand, now: float) -> float | None:
    """Return when a batch of waiting requests closes by itself, None when none waits for company."""
    soonest: float | None = None
    for name, reservoir in hand.basin.reservoirs.items():
        first, task = reservoir.first(), hand.tasks[name]
        if first is None:
            continue
        times = [] if task.gathers_since is None else [_gathers_until(hand, task, reservoir, first)]
        if task.spec.batch_wait_s > 0:
            times.append(_closes_at(task, reservoir, first))
        for at in times:
            if at > now:
                soonest = at if soonest is None else min(soonest, at)
    return soonest


def _jobs(hand: Hand, now: float) -> bool:
    """Start one run of jobs; book its time where requests wait for it."""
    sent = start_runs(hand, now=now, limit=1)
    for task, items in sent if not hand.basin.smooth.live(now) else ():
        hand.basin.share.had(jobs=True, run_s=task.fit.run_s(items) or 0.0)
    return bool(sent)


def _requests(hand: Hand, now: float, *, idle_only: bool = False) -> bool:
    """Start one run of requests: of the task whose next one is the most urgent."""
    basin = hand.basin
    waiting = [
        (first.key, name) for name, one in basin.reservoirs.items() if (first := one.first()) is not None
    ]
    for _, name in sorted(waiting) if len(waiting) > 1 else waiting:
        task, reservoir = hand.tasks[name], basin.reservoirs[name]
        replica = _replica_for(hand, task, len(reservoir), now)
        if replica is None and basin.smooth.live(now):
            note_use(hand, now, beyond=1)
        if replica is None or (idle_only and replica.runs):
            continue
        first = reservoir.first()
        assert first is not None
        at = now if replica.head() is None else max(now, replica.busy_until)
        if task.spec.batch_max > 1 and (
            _waits_for_company(task, reservoir, first, now)
            or _gathers(hand, task, replica, reservoir, first, now)
        ):
            continue
        tend(hand, task, at, now)
        members = _members(hand, task, reservoir, _takes(hand, task, replica, len(reservoir), now), at, now)
        members = [one for one in members if permitted(hand, one, now)]
        if members:
            _begin(hand, task, replica, members, now)
            return True
        if reservoir.first() is not first:  # some were answered: look again
            return True
    return False


def _replica_for(hand: Hand, task: TaskHand, waiting: int, now: float) -> Replica | None:
    """Return the replica that may take requests now with the least to do before it."""
    best: Replica | None = None
    for replica in hand.replicas.values():
        if _takes(hand, task, replica, waiting, now):
            if not replica.runs:
                return replica
            if best is None or (replica.busy_until, replica.unfinished()) < (
                best.busy_until,
                best.unfinished(),
            ):
                best = replica
    return best


def _takes(hand: Hand, task: TaskHand, replica: Replica, waiting: int, now: float) -> int:
    """Return how many requests of the task this replica may be sent now."""
    room = sendable(task, replica, now)
    spec = task.spec
    if room or spec.concurrency > 1 or replica.calls_max is not None:
        return room
    # The next piece is with the child before the one it runs ends, so that no time passes between them; a
    # batch not before it is full, as others may come until then.
    size = piece_of(task)
    if waiting >= (size if spec.batch_max > 1 else 1) and replica.open:
        few = 0 < len(replica.runs) < RUNS_AHEAD_MAX and not replica.runs[0].alone
        return size if few and wait_is_short(hand, replica, now) else 0
    return 0


def _waits_for_company(task: TaskHand, reservoir: Reservoir, first: Request, now: float) -> bool:
    if task.spec.batch_wait_s <= 0:
        return False
    quiet = not task.wait_pays or now - task.last_run_at >= task.spec.batch_wait_s
    why = trigger(
        size=min(len(reservoir), task.spec.batch_max),
        oldest_at=first.job.created_at,
        tightest_at=first.deadline_at,
        spec=task.spec,
        fit=task.fit,
        idle=task.runs_out == 0 and quiet,
        now=now,
    )
    return why is None


def _gathers(
    hand: Hand, task: TaskHand, replica: Replica, reservoir: Reservoir, first: Request, now: float
) -> bool:
    """Say whether a run that could start now waits a moment for those who have just connected: the calls of a
    burst come one after another, and the first of them alone would keep the replica from all others."""
    most = may_run(task.fit_of(first.job.priority), task.spec.batch_max, first.deadline_at - now)
    if replica.runs or len(reservoir) >= most or hand.basin.knocks.until() is None:
        task.gathers_since = None
        return False
    if task.gathers_since is None:
        task.gathers_since = now
    return now < _gathers_until(hand, task, reservoir, first)


def _gathers_until(hand: Hand, task: TaskHand, reservoir: Reservoir, first: Request) -> float:
    """Return when a run that gathers starts at the latest."""
    since, until = task.gathers_since, hand.basin.knocks.until()
    if since is None or until is None:
        return float("-inf")
    fit = task.fit_of(first.job.priority)
    wait_s = min(GATHER_MAX_S, GATHER_SHARE * (fit.run_s(1) or 0.0))
    last_s = (fit.run_s(len(reservoir)) or 0.0) + DEADLINE_MARGIN_S
    return min(until, since + wait_s, first.deadline_at - last_s)


def _closes_at(task: TaskHand, reservoir: Reservoir, first: Request) -> float:
    return closes_at(
        size=min(len(reservoir), task.spec.batch_max),
        oldest_at=first.job.created_at,
        tightest_at=first.deadline_at,
        spec=task.spec,
        fit=task.fit,
    )


def _members(
    hand: Hand, task: TaskHand, reservoir: Reservoir, room: int, at: float, now: float
) -> list[Request]:
    """Return who starts at `at`, in order; answers those that cannot be in time for it."""
    if task.spec.batch_max == 1:
        return _singles(hand, task, reservoir, room, at)
    while (first := reservoir.first()) is not None:
        most = may_run(task.fit_of(first.job.priority), room, first.deadline_at - at)
        members = [reservoir.at(place) for place in range(min(most, len(reservoir)))]
        if reservoir.newest_first:
            members.sort(key=lambda one: one.key)
        fit = task.fit_of(members[0].job.priority)  # all run at the level of the most urgent
        crowd = crowded(hand.basin, task.spec.name, waiting=len(reservoir), room=most, now=now)
        free_s = spare_s(fit, members[0].deadline_at - members[0].job.created_at, crowd=crowd)
        due = [(one.job.priority, one.deadline_at) for one in members]
        skip, size = best_part(fit.run_s, due, at, free_s) if crowd else (0, 1)
        if not size:
            beyond = len(reservoir) - most  # who is one of few has other margins
            hopeless = _late_ones(fit, members[: max(1, min(skip, beyond))], at)
            size = 1
        else:
            least_s = (fit.run_s(size) or 0.0) + free_s
            hopeless = [
                one for one in members[: skip + size] if at + least_s > one.deadline_at and not one.probe
            ]
        if not hopeless:
            tightest = min((one.deadline_at for one in members if not one.probe), default=float("inf"))
            return members[: size if crowd else fitting(fit.run_s, len(members), tightest - at)]
        for one in hopeless:
            late(hand, one)
    return []


def _late_ones(fit: LiveFit, members: list[Request], at: float) -> list[Request]:
    """Return those of a crowd who are late even alone, each by its own time. All at once: of thousands each
    would look at a whole batch."""
    ends_at = at + (fit.run_s(1) or 0.0)
    return [
        one
        for one in members
        if ends_at + spare_s(fit, one.deadline_at - one.job.created_at, crowd=True) > one.deadline_at
        and not one.probe
    ]


def _singles(hand: Hand, task: TaskHand, reservoir: Reservoir, room: int, at: float) -> list[Request]:
    """Return those that run one after another, or beside each other, from `at` on."""
    first = reservoir.first()
    level = 0 if first is None else task.level_of(first.job.priority)
    each_s = task.fit_at(level).run_s(1) or 0.0
    step_s = 0.0 if task.spec.concurrency > 1 else each_s
    members: list[Request] = []
    hopeless: list[Request] = []
    ends_at = at + each_s
    for request in reservoir:
        if len(members) >= room or task.level_of(request.job.priority) != level:
            break
        if ends_at > request.deadline_at and not request.probe:
            hopeless.append(request)
            continue
        members.append(request)
        ends_at += step_s
    for request in hopeless:
        late(hand, request)
    return members


def _begin(hand: Hand, task: TaskHand, replica: Replica, members: list[Request], now: float) -> None:
    items = [hand.take_in(lease_of(hand, request, now), now) for request in members]
    for request, item in zip(members, items, strict=True):
        runs_as(hand, request, item)
    task.gathers_since = None
    live = hand.basin.smooth.live(now)
    if live:
        items += riders(hand, task, members, now)
    full = len(items) >= task.spec.batch_max
    if not live and any(one.held for one in hand.tasks.values()):
        fit = task.fit_of(members[0].job.priority)
        hand.basin.share.had(jobs=False, run_s=fit.run_s(len(items)) or 0.0)
    send(hand, task, replica, items, Trigger.SIZE if full else Trigger.IDLE, now)
    if live:
        note_use(hand, now)
