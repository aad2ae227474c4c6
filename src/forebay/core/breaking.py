"""What a task's breaker does in a Dispatcher: what may run, what goes back, what each end tells it.

While the breaker is open the task's own replicas get nothing but one probe. Jobs wait, are answered with a
canned answer, or are run by the replicas of the fallback: there they are guests, leased under their own
name and run as the other task.
"""

from collections.abc import Sequence

from forebay.core import settle
from forebay.core.actions import GiveBack, Outcome
from forebay.core.answering import permitted, runs_as
from forebay.core.breaker import BreakerState, Ending, Permit
from forebay.core.degraded import FALLBACK
from forebay.core.guard import Guard
from forebay.core.hand import Hand, TaskHand
from forebay.core.job import Lease, Transition
from forebay.core.lifecycle import Event, State
from forebay.core.replicas import Item

PROBES_FREE_MAX = 10  # failed probes of one job that are hand-backs and no attempts

_FAILURES = frozenset({Event.FAILED, Event.EXHAUSTED, Event.SUSPECTED})


def admit(hand: Hand, guard: Guard, leases: Sequence[Lease], now: float) -> Sequence[Lease]:
    """Return the leases that may be run; the others are answered or handed back."""
    if guard.guest:
        return leases
    kept: list[Lease] = []
    for lease in leases:
        closed = guard.breaker.state(now=now) is BreakerState.CLOSED
        answer = guard.breaker.ask(now=now) if closed or guard.may_probe else None
        if isinstance(answer, Permit):
            guard.permit, guard.may_probe = answer, guard.may_probe and not answer.probe
            guard.note(answer.change)
            kept.append(lease)
        else:
            hand.transitions.append(_turned_away(hand, guard, lease, now))
            hand.settled.append(lease)
    return kept


def heard(
    hand: Hand, item: Item, outcome: Outcome, transition: Transition, each_s: float, now: float
) -> Transition:
    """Tell the breaker how the call for an item ended, and return what becomes of the job. `each_s`: of
    single calls, as the child measured.

    A result that guests got says so. A probe was sent to find out: when it fails it is not charged for it,
    PROBES_FREE_MAX times, so that a job that never works does not probe for ever. Who allows one attempt
    wants no second run, and is charged.
    """
    entry = hand.tasks[item.lease.job.task]
    guard, run = entry.guard, item.run
    if guard is None:
        return transition
    if guard.guest:
        degraded = transition.state is State.SUCCEEDED
        return transition._replace(degraded=FALLBACK) if degraded else transition
    if outcome.output is not None:
        ending = Ending.GOOD
    elif outcome.ignored or outcome.alone or outcome.permanent or item.cancel_by is not None:
        ending = Ending.IGNORED
    else:
        ending = Ending.BAD
        job = item.lease.job
        again = job.attempts_max > 1 and not item.lease.request  # nobody waits for a second run of a request
        free = again and item.lease.releases < PROBES_FREE_MAX
        probed = guard.probe_tag == item.tag and transition.event in _FAILURES
        if free and probed and transition.error is not None:
            until, policy = now + guard.breaker.policy.open_s, entry.spec.settle
            transition = settle.defer(
                item.ran_as(), until=until, policy=policy, now=now, error=transition.error
            )
    took_s = each_s
    if run is not None and (run.parallel or not run.singles or not each_s):
        took_s = now - (run.replica.since if run.started_at is None else run.started_at)
    _ended(hand, item, ending, took_s, now)
    return transition


def died(hand: Hand, item: Item, end: Transition, now: float) -> None:
    """Tell the breaker of an item whose process died, or was killed for running too long."""
    _ended(hand, item, Ending.BAD if end.event in _FAILURES else Ending.IGNORED, 0.0, now)


def tend(hand: Hand, now: float) -> None:
    """Free the place of a probe that is gone, and hand back what waits behind an open breaker."""
    for guard, entry in hand.guarded:
        if guard.guest:
            continue
        if guard.probe_tag is not None and guard.probe_tag not in hand.items:
            guard.probe_tag = None
            if guard.permit is not None:
                guard.note(guard.breaker.ended(guard.permit, Ending.IGNORED, now=now))
        if guard.breaker.state(now=now) is BreakerState.CLOSED:
            continue
        name = entry.spec.name
        waiting = [*entry.held, *(one for one in hand.suspects if one.lease.job.task == name)]
        for item in waiting:
            if item.lease.request:  # nobody else could run it: it is the probe, or is told
                _ask_for(hand, item, now)
            elif item.tag != guard.probe_tag:
                hand.drop_waiting(item)
                hand.decide(item, _turned_away(hand, guard, item.lease, now))


def wake_at(hand: Hand) -> list[float]:
    """Return when breakers let a probe through; instants that are past too."""
    return [guard.breaker.open_until for guard, _ in hand.guarded if not guard.guest]


def _ended(hand: Hand, item: Item, ending: Ending, took_s: float, now: float) -> None:
    entry = hand.tasks[item.lease.job.task]
    guard, permit = entry.guard, item.permit
    if guard is None or permit is None:
        return
    if guard.probe_tag == item.tag:
        guard.probe_tag = None
    change = guard.breaker.ended(permit, ending, now=now, took_s=took_s)
    guard.note(change)
    if change is not None and change.state is BreakerState.OPEN:
        _ask_back(hand, entry)


def _ask_for(hand: Hand, item: Item, now: float) -> None:
    """Ask once more for a request that waits alone: its breaker has opened since."""
    guard, request = hand.tasks[item.lease.job.task].guard, hand.basin.open.get(item.lease.job.id)
    if guard is None or item.tag == guard.probe_tag:
        return
    if request is not None and permitted(hand, request, now):
        runs_as(hand, request, item)
    else:
        hand.drop_waiting(item)


def _ask_back(hand: Hand, entry: TaskHand) -> None:
    """Ask the replicas for what they have not started of a task whose breaker has just opened."""
    for replica in hand.replicas.values():
        if replica.has_unstarted() and any(run.task == entry.spec.name for run in replica.runs):
            hand.actions.append(GiveBack(replica.id))


def _turned_away(hand: Hand, guard: Guard, lease: Lease, now: float) -> Transition:
    if guard.canned is not None:
        answered = settle.complete(lease, output=guard.canned, now=now)
        return answered._replace(degraded=FALLBACK)
    return settle.release(lease, policy=hand.tasks[lease.job.task].spec.settle, now=now)
