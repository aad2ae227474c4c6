"""Waking: when a Dispatcher wants to be polled next if nothing happens before."""

from forebay.core import breaking, levels, serving, stopping
from forebay.core.hand import Hand
from forebay.core.keeping import look_again_at
from forebay.core.lateness import late_at, overrun_at
from forebay.core.planning import next_start_at


def next_wake(hand: Hand, renew_at: float | None, *, dry_s: float | None, now: float) -> float | None:
    """Return the first instant after `now` at which time alone decides something, None when none is known.

    `dry_s`: so long after an engine had nothing more it is asked again; None: never."""
    times: list[float | None] = [next_start_at(hand, now), renew_at]
    times += [serving.closes(hand, now), hand.basin.due_at()]
    for replica in hand.replicas.values():
        times += (stopping.timeout_at(hand, replica), late_at(hand, replica), overrun_at(hand, replica))
    times += [item.cancel_by for item in hand.cancelling.values()]
    times += breaking.wake_at(hand)
    times += levels.wake_at(hand, now)
    times.append(look_again_at(hand, now))
    if hand.deadlines:
        times.append(hand.deadlines[0][0])
    if dry_s is not None and hand.replicas:
        times += [task.dry_at + dry_s for task in hand.tasks.values() if task.dry_at is not None]
    # What is due already waits for an input (a replica that gets free), not for the time.
    return min((at for at in times if at is not None and at > now), default=None)
