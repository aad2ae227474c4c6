"""Lateness: where work takes much longer than expected, what waits behind it is free for others.

A head that hangs makes its replica late: nothing is planned on it. A frame of single items that takes much
longer as a whole teaches how long they take now, and what was leased by the old figure goes back: with two
nodes, a burst of long jobs after short ones would else be done by the one that asked first.
"""

from itertools import islice

from forebay.core.actions import GiveBack
from forebay.core.hand import Hand, TaskHand
from forebay.core.replicas import Item, Replica

LATE_S = 0.25  # a head that runs this long ...
OVERRUN = 2.0  # ... and this many times its estimate is late


def late_at(hand: Hand, replica: Replica) -> float | None:
    """Return when the replica's head will be late, None when it has none or is late already."""
    head = replica.head()
    if head is None or replica.late or replica.kill is not None:
        return None
    fit = hand.tasks[head.task].fit_at(head.level)
    return replica.since + _bound_s(fit.run_s(1 if head.singles else head.size))


def overrun_at(hand: Hand, replica: Replica) -> float | None:
    """Return when the frame at the replica's head will have taken much longer than all of it should; None
    where nothing of it waits, or that was asked back already."""
    head = replica.head()
    if head is None or head.started_at is None or head.overran or replica.late or replica.kill is not None:
        return None
    if not head.singles or len(head.items) < 2:
        return None
    return head.started_at + _bound_s(hand.tasks[head.task].fit_at(head.level).run_s(head.size))


def note_late(hand: Hand, now: float) -> None:
    """Mark the replicas whose head is late, and ask back what waits behind it or is left of such a frame."""
    for replica in hand.replicas.values():
        late, over = late_at(hand, replica), overrun_at(hand, replica)
        if late is not None and now >= late:
            replica.late = True
            if replica.has_unstarted():
                _shorten(hand, replica)
                hand.actions.append(GiveBack(replica.id))
        elif over is not None and now >= over:
            _shorten(hand, replica)
            _learn(hand, replica, now)
            hand.actions.append(GiveBack(replica.id))


def surplus(hand: Hand) -> list[Item]:
    """Return the jobs in hand that no replica here will begin within `LATE_S`: what was leased by an estimate
    that has turned out to be wrong."""
    replicas = sum(replica.open and not replica.late for replica in hand.replicas.values())
    return [item for task in hand.tasks.values() for item in _beyond(task, replicas)]


def _beyond(task: TaskHand, replicas: int) -> list[Item]:
    if len(task.held) <= replicas or task.spec.batch_max > 1 or task.spec.concurrency > 1:
        return []
    each_s = task.fit.run_s(1)
    soon = replicas * max(1, int(LATE_S / each_s)) if each_s else len(task.held)
    return list(islice(task.held, soon, None)) if len(task.held) > soon else []


def _shorten(hand: Hand, replica: Replica) -> None:
    """The next frames are as long as this one was until it was late, and up to twice as long each time one
    ends: of calls some of which take a thousand times as long, each would else go back for every slow one
    before it."""
    head = replica.head()
    assert head is not None
    head.overran = True
    if head.singles:
        hand.tasks[head.task].frame_max = max(1, head.size - len(head.items))


def _learn(hand: Hand, replica: Replica, now: float) -> None:
    head = replica.head()
    assert head is not None and head.started_at is not None
    done = head.size - len(head.items)
    if done > 0:
        hand.tasks[head.task].fit_at(head.level).correct(done, head.busy_s or now - head.started_at)


def _bound_s(expected_s: float | None) -> float:
    return max(LATE_S, OVERRUN * (expected_s or 0.0))
