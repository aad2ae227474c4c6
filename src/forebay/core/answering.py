"""Answering: how requests end: late, gone, done, failed; and which try after a death is worth another."""

from collections.abc import Callable

from forebay.core.actions import CancelItem, ChargeInputs
from forebay.core.breaker import Permit
from forebay.core.hand import Hand
from forebay.core.job import Charge, Job, JobError, Lease, Transition
from forebay.core.lifecycle import Event, State
from forebay.core.quarantine import DeadlyInput, quarantined
from forebay.core.replicas import Item
from forebay.core.requests import End, Request
from forebay.core.shut import closed, tell

_LOST = JobError("worker_lost", "the worker that ran it died, and there was no time to run it again")


def pass_deadlines(hand: Hand, now: float) -> None:
    """Answer what is late. One that runs is asked to stop; nothing is killed for it."""
    due = hand.basin.due(now)
    why = closed(hand, now) if due else None
    for request in due:
        if why is not None and request.tag is None:
            tell(hand, request, why, now=now)
        else:
            late(hand, request)


def permitted(hand: Hand, request: Request, now: float) -> bool:
    """Ask the breaker of its task for a request that is to run; one that it lets not through is answered."""
    guard = hand.tasks[request.job.task].guard
    if guard is None or guard.guest:
        return True
    answer = guard.breaker.ask(now=now)
    if isinstance(answer, Permit):
        guard.note(answer.change)
        guard.permit = request.permit = answer
        return True
    hand.basin.end(request, End.BARRED, retry_after_s=answer.retry_after_s)
    return False


def runs_as(hand: Hand, request: Request, item: Item) -> None:
    """Give the item of a request the request's permit, and book it."""
    guard = hand.tasks[request.job.task].guard
    request.tag, item.permit = item.tag, request.permit
    if guard is not None and request.permit is not None and request.permit.probe:
        guard.probe_tag = item.tag


def withdraw(hand: Hand, request: Request) -> None:
    """Whoever waited has gone: it costs no replica, or its output is dropped."""
    if request.end is not None:
        return
    hand.basin.end(request, End.GONE)
    _let_go(hand, request)


def close(hand: Hand) -> None:
    """The server goes: answer all that still waits."""
    for request in list(hand.basin.open.values()):
        item = None if request.tag is None else hand.items.get(request.tag)
        if item is None or item.run is None:
            hand.basin.end(request, End.CLOSED)
            _let_go(hand, request)


def settle_all(hand: Hand) -> None:
    """Take the ends of requests out of what is to be stored, and answer them. What they say of their inputs
    is stored all the same."""
    if not any(lease.request for lease in hand.settled):
        return
    pairs = list(zip(hand.transitions, hand.settled, strict=True))
    hand.transitions = [transition for transition, lease in pairs if not lease.request]
    hand.settled = [lease for lease in hand.settled if not lease.request]
    charges: list[tuple[Job, Charge, float]] = []
    for transition, lease in pairs:
        if lease.request:
            _settle(hand, transition, lease)
            if transition.charge is not None:
                charges.append((lease.job, transition.charge, transition.at))
    if charges:
        hand.actions.append(ChargeInputs(charges))


def _settle(hand: Hand, transition: Transition, lease: Lease) -> None:
    """Take in how a try of a request ended: it is answered, or waits again while there is time."""
    basin = hand.basin
    request = basin.open.get(lease.job.id)
    if request is None:
        return
    request.level = transition.degraded
    if transition.state is State.SUCCEEDED:
        basin.end(request, End.DONE, output=transition.output)
    elif transition.event is Event.DEADLINE_PASSED:
        basin.end(request, End.LATE)
    elif _tries_again(transition, lease):
        _try_again(hand, request, transition)
    else:
        basin.end(request, End.FAILED, error=transition.error, retry_after_s=_after_s(transition))


def bar_waiting(hand: Hand, held: Callable[[Job], DeadlyInput | None]) -> None:
    """End the waiting requests whose input is in quarantine: none of them costs another worker."""
    for request in list(hand.basin.open.values()):
        if request.tag is None and (deadly := held(request.job)) is not None:
            hand.basin.end(request, End.FAILED, error=quarantined(deadly, attempt=request.attempt))


def lease_of(hand: Hand, request: Request, now: float) -> Lease:
    """Take a request out of its reservoir and return the lease it runs under."""
    hand.basin.start(request, now=now)
    job = request.job
    return Lease(
        job, 0, request.attempt, float("inf"), "", now, job.created_at, request.deaths, request.releases,
        request.suspect, request=True,
    )  # fmt: skip


def late(hand: Hand, request: Request) -> None:
    """Answer a request that cannot be in time; one that runs is asked to stop."""
    if request.deaths or request.suspect:
        hand.basin.end(request, End.LOST, error=_LOST)
    else:
        hand.basin.end(request, End.LATE)
    _let_go(hand, request)


def _let_go(hand: Hand, request: Request) -> None:
    """Drop what a replica still does for a request that has ended."""
    item = None if request.tag is None else hand.items.get(request.tag)
    if item is None:
        return
    if item.run is None:
        hand.drop_waiting(item)
        return
    hand.settle(item, None)
    hand.actions.append(CancelItem(item.run.replica.id, item.tag))


def _tries_again(transition: Transition, lease: Lease) -> bool:
    """Say whether it was none of its doing: a handler that failed is not asked again."""
    if transition.event in (Event.SUSPECTED, Event.RELEASED):
        return True
    return transition.state is State.RETRYING and transition.deaths > lease.deaths


def _after_s(transition: Transition) -> float | None:
    """Return in how long the handler, or what it needs, asked to be tried again; None when nothing did."""
    retry = transition.error is not None and transition.error.type == "Retry"
    asked = retry or transition.event is Event.DEFERRED
    return max(0.0, transition.ready_at - transition.at) if asked else None


def _try_again(hand: Hand, request: Request, transition: Transition) -> None:
    request.deaths = transition.deaths
    request.releases = transition.releases
    request.suspect = request.suspect or transition.suspect
    if transition.event is not Event.FAILED:  # it was not charged
        request.attempt = max(0, request.attempt - 1)
    alone_s = hand.tasks[request.job.task].fit_of(request.job.priority).run_s(1) or 0.0
    if transition.at + alone_s > request.deadline_at:
        hand.basin.end(request, End.LOST, error=transition.error or _LOST)
    elif request.suspect:
        if not permitted(hand, request, transition.at):
            return
        item = hand.take_in(lease_of(hand, request, transition.at), transition.at)
        runs_as(hand, request, item)
        hand.suspects.append(item)
    else:
        hand.basin.wait(request)
