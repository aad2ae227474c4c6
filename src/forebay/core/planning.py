"""Which run starts on which replica now, and how much more to lease: the plan of one moment.

Leasing ahead follows the measured service time: a replica may have as much expected work beyond what it
runs as a lease takes (core.ahead); a run of up to `FORESEEN_S` lets the next piece be leased when it is about
to end, a longer one when it has ended. So short work keeps the replicas busy, and long jobs are never held
back from an idle replica elsewhere. Where the estimate was wrong, what waits is asked back (core.lateness).
"""

from collections.abc import Iterable

from forebay.core.actions import RunBatch
from forebay.core.ahead import AHEAD_S
from forebay.core.batching import Trigger, closes_at, tightest, trigger
from forebay.core.hand import FRAME_MAX, Hand, TaskHand
from forebay.core.keeping import left_to_jobs, lends
from forebay.core.replicas import Item, Replica, Run

WAKE_S = 1e-6  # whoever was woken for an instant is there, whatever the rounding of its sums
UNSURE_MAX_S = 0.025  # and so much more of requests, where runs are known to end earlier than expected
LEASE_MAX = 1024  # jobs asked for at once
RUNS_MAX = 3  # runs one replica may have, the running one included
FORESEEN_S = 0.25  # the end of a longer run is not foreseen: one round trip to the store is nothing to it


def room(hand: Hand, task: TaskHand, now: float) -> int:
    """Return how many more jobs of `task` the replicas can use soon."""
    replicas = [replica for replica in hand.replicas.values() if replica.open]
    capacities = [_capacity(task, replica, now) for replica in replicas]
    live = hand.basin.smooth.live(now)
    if live:
        capacities = capacities[: len(replicas) - hand.basin.smooth.kept(len(replicas), now)] or [0]
    # Beside requests jobs wait in hand for their share; where all replicas are late they would be given back,
    # and before an upstream that takes no calls they would wait as long as that lasts.
    idle = all(replica.late or replica.calls_max == 0 for replica in replicas)
    if (hand.basin.open or live) and not task.held and not idle:
        capacities[0] = max(capacities[0], piece_of(task))
    if len(hand.tasks) > 1:  # what other functions hold or ask for takes replicas too
        taken = sum(_pieces(other) for other in hand.tasks.values() if other is not task)
        capacities = sorted(filter(None, capacities))
        capacities = capacities[: max(0, len(capacities) - taken)]
    return min(LEASE_MAX, sum(capacities) - len(task.held) - len(hand.suspects))


def start_runs(hand: Hand, *, now: float, limit: int | None = None) -> list[tuple[TaskHand, int]]:
    """Send the jobs that should start now, `limit` runs at most; appends RunBatch actions. Returns how many
    jobs of which task each run has."""
    sent: list[tuple[TaskHand, int]] = []
    live = hand.basin.smooth.live(now)
    for task in _oldest_first(hand.tasks.values()):
        while task.held:
            replica, most = _best(hand, task, now, left_to_jobs(hand, now) if live else None), len(task.held)
            if replica is None and live and lends(hand, task, now):
                replica, most = _best(hand, task, now), 1
            if replica is None:
                break
            size = min(sendable(task, replica, now), most)
            if task.spec.batch_max == 1 and size > 1:
                size = min(size, _fair_share(hand, task, now))
            if task.spec.batch_max == 1:
                size = _of_one_level(task, size)
            why = _why(task, size, now=now)
            if why is None:
                break
            if live and most == 1:
                hand.basin.smooth.lent(now)
            items = [task.held.popleft() for _ in range(size)]
            send(hand, task, replica, items, why, now)
            sent.append((task, size))
            if limit is not None and len(sent) >= limit:
                return sent
    return sent


def next_start_at(hand: Hand, now: float) -> float | None:
    """Return when a waiting batch closes by itself, or a run is expected to be about to end."""
    soonest: float | None = None
    for task in hand.tasks.values():
        if task.held and task.spec.batch_max > 1:
            first = task.held[0]
            closes = closes_at(
                size=min(len(task.held), task.spec.batch_max),
                oldest_at=first.held_at,
                tightest_at=_tightest(task),
                spec=task.spec,
                fit=task.fit,
            )
            if closes > now:  # a batch that is due already waits for a replica, not for the time
                soonest = closes if soonest is None else min(soonest, closes)
    for replica in hand.replicas.values():
        ends = _ends_at(replica)
        if ends is not None:
            instants = (ends - _unsure_s(hand, replica), ends - hand.ahead.s)
            if coming := [at for at in instants if at > now]:
                soonest = min(coming) if soonest is None else min(soonest, *coming)
    return soonest


def _capacity(task: TaskHand, replica: Replica, now: float) -> int:
    """Items of `task` worth having in hand for this replica, sent or not."""
    now_sendable = sendable(task, replica, now)
    if now_sendable or task.spec.concurrency > 1:
        return now_sendable
    ends = _ends_at(replica)
    if ends is None or now < ends - task.ahead.s:
        return 0
    return piece_of(task)  # about to be free: have the next piece ready


def wait_is_short(hand: Hand, replica: Replica, now: float) -> bool:
    """Say whether a replica is about to end all that it runs, or may well be."""
    return not replica.late and abs(replica.busy_until - now) <= _unsure_s(hand, replica) + WAKE_S


def _unsure_s(hand: Hand, replica: Replica) -> float:
    """Return how long before the expected end of what a replica runs the next piece should leave for it."""
    head = replica.head()
    unsure_s = 0.0 if head is None else hand.tasks[head.task].fit.deviation_s
    return AHEAD_S + replica.way_s + min(UNSURE_MAX_S, unsure_s)


def sendable(task: TaskHand, replica: Replica, now: float) -> int:
    """Return how many items of `task` this replica may be sent now."""
    if not replica.open or replica.late:
        return 0
    spec = task.spec
    if not replica.runs:
        return piece_of(task) if replica.calls_max is None else min(replica.calls_max, spec.concurrency)
    if any(run.alone for run in replica.runs):
        return 0
    if replica.calls_max is not None:
        return max(0, min(replica.calls_max, spec.concurrency) - replica.unfinished())
    if spec.concurrency > 1:
        return max(0, spec.concurrency - replica.unfinished())
    if replica.head() is None:  # async calls only: they do not stand in the way
        return piece_of(task)
    unit_s = task.fit.run_s(spec.batch_max)
    if unit_s is None or len(replica.runs) >= RUNS_MAX or now - replica.since > 2 * task.ahead.s:
        return 0
    left_s = 2 * task.ahead.s - max(0.0, replica.busy_until - now)
    if left_s < unit_s:
        return 0
    if spec.batch_max > 1:
        return spec.batch_max
    return min(piece_of(task), int(left_s / max(unit_s, 1e-7)))


def _fair_share(hand: Hand, task: TaskHand, now: float) -> int:
    """Items for one replica when all that are free share what is in hand."""
    free = sum(
        sendable(task, replica, now) > 0
        for replica in hand.replicas.values()
        if task.spec.concurrency > 1 or not replica.runs
    )
    return -(-len(task.held) // max(1, free))


def _of_one_level(task: TaskHand, size: int) -> int:
    """Return how many of the first `size` single calls start at the level of the first."""
    if task.ladder is None or not task.ladder.step:
        return size
    level = task.level_of(task.held[0].lease.job.priority)
    for place, item in enumerate(task.held):
        if place >= size or task.level_of(item.lease.job.priority) != level:
            return place
    return size


def _pieces(task: TaskHand) -> int:
    """Replicas that what the task holds and asks for will take."""
    return -(-(len(task.held) + task.asked) // piece_of(task))


def _oldest_first(tasks: Iterable[TaskHand]) -> list[TaskHand]:
    """Return the tasks that hold something, the longest waiting first."""
    holding = [task for task in tasks if task.held]
    if len(holding) > 1:
        holding.sort(key=lambda task: task.held[0].held_at)
    return holding


def piece_of(task: TaskHand) -> int:
    """Return the items of one piece: a batch, what may run at once, or single items for a lease's time."""
    spec = task.spec
    if spec.batch_max > 1:
        return spec.batch_max
    if spec.concurrency > 1:
        return spec.concurrency
    each_s = task.fit.run_s(1)
    if each_s is None:
        return 1
    most = int(task.ahead.s / max(each_s + task.fit.deviation_s / FRAME_MAX, 1e-6))
    return max(1, min(task.frame_max, most))


def _ends_at(replica: Replica) -> float | None:
    """When all the replica runs is expected to be done; None when it runs nothing or nobody can say."""
    head = replica.head()
    if head is None or not replica.open or replica.late:
        return None
    return replica.busy_until if replica.busy_until - replica.since <= FORESEEN_S else None


def _best(hand: Hand, task: TaskHand, now: float, among: list[Replica] | None = None) -> Replica | None:
    """The replica that may take a piece of `task` now with the least to do before it."""
    best: Replica | None = None
    for replica in hand.replicas.values() if among is None else among:
        if sendable(task, replica, now) and not (hand.suspects and _reserved(hand) is replica):
            if not replica.runs:
                return replica
            if best is None or _load(replica) < _load(best):
                best = replica
    return best


def _load(replica: Replica) -> tuple[float, int]:
    return replica.busy_until, replica.unfinished()


def _reserved(hand: Hand) -> Replica | None:
    """The replica kept free for the next suspect: the one with the least unfinished."""
    candidates = [replica for replica in hand.replicas.values() if replica.open]
    return min(candidates, key=lambda one: (one.late, len(one.runs), one.busy_until, one.id), default=None)


def start_suspects(hand: Hand, now: float) -> None:
    """Send each suspect alone to a replica that has nothing else; appends RunBatch actions."""
    while hand.suspects:
        replica = _reserved(hand)
        if replica is None or replica.runs:
            return
        item = hand.suspects.popleft()
        task = hand.tasks[item.lease.job.task]
        send(hand, task, replica, [item], Trigger.ALONE, now)


def _tightest(task: TaskHand) -> float | None:
    first = list(task.held)[: task.spec.batch_max] if len(task.held) > task.spec.batch_max else task.held
    return tightest([item.lease.job.deadline_at for item in first])


def _why(task: TaskHand, size: int, *, now: float) -> Trigger | None:
    spec = task.spec
    if spec.batch_max == 1:
        return Trigger.SIZE
    quiet = not task.wait_pays or now - task.last_run_at >= spec.batch_wait_s
    idle = task.runs_out == 0 and quiet
    return trigger(
        size=size,
        oldest_at=task.held[0].held_at,
        tightest_at=_tightest(task),
        spec=spec,
        fit=task.fit,
        idle=idle,
        now=now,
    )


def send(hand: Hand, task: TaskHand, replica: Replica, items: list[Item], why: Trigger, now: float) -> None:
    """Send these items to the replica as one run; appends its RunBatch action."""
    alone = why is Trigger.ALONE
    run: Run = hand.new_run(task.spec.name, replica, singles=task.spec.batch_max == 1, alone=alone)
    run.level = min(task.level_of(item.lease.job.priority) for item in items) if task.ladder else 0
    run.size = len(items)
    run.sent_at = now
    size_b = 0
    for item in items:
        item.run, item.level = run, run.level
        run.items[item.tag] = item
        size_b += len(item.lease.job.payload)
    run.size_b = size_b
    if run.parallel:
        run.started_at = now
        replica.runs.append(run)
    else:
        idle = replica.head() is None
        fit = task.fit_at(run.level)
        expected_s = fit.run_s(run.size)
        run.likely_s = None if fit.knows(run.size) else fit.likely_s(run.size)
        until = now if idle else max(now, replica.busy_until)
        replica.busy_until = until + (float("inf") if expected_s is None else expected_s)
        replica.runs.append(run)
        if idle:
            replica.restart(now)
    if run.size > 1:
        task.wait_pays = True
    elif (
        not items[0].lease.request and now >= items[0].held_at + task.spec.batch_wait_s
    ):  # nobody came: do not wait for nobody again
        task.wait_pays = False
    task.runs_out += 1
    sent = [(item.tag, item.lease) for item in items]
    run.sent = sent
    hand.actions.append(
        RunBatch(
            replica=replica.id,
            run=run.id,
            task=run.task,
            items=sent,
            singles=run.singles,
            trigger=why,
            level=run.level,
        )
    )
