"""Parting: how many of those who wait run together, and who is given up so that the most are in time.

The door asks by the same rules as the turn: who is let in is not given up by a stricter one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from forebay.core.basin import Basin
from forebay.core.service import ServiceFit

RETURN_S: Final = 0.002  # for the way of an output back to whoever waits
CROWDED_S: Final = 0.25  # after a refusal requests are taken for more than can be done
SURE_SHARE: Final = 0.03  # and of the time of the most urgent, RETURN_MAX_S at most: who knows the way back
RETURN_MAX_S: Final = 0.025
SURE_SPREADS: Final = 1.0  # mean deviations of a run that are kept free when it is sent, where more waits
PAYS: Final = 1.02  # giving one more up must do more than this times as many a second
UNSEEN_SHARE: Final = 0.5  # of its most urgent member's time: what a run of an unseen size may surely take

Due = tuple[int, float]  # the priority and the deadline of one who waits
Takes = Callable[[int], float | None]  # how long a run of so many takes, in seconds


def crowded(basin: Basin, task: str, *, waiting: int, room: int, now: float) -> bool:
    """Say whether more requests of a task wait, or came of late, than one run or the time can take."""
    return waiting > room or now - basin.refused_at.get(task, float("-inf")) < CROWDED_S


def spare_s(fit: ServiceFit, whole_s: float, *, crowd: bool) -> float:
    """Return the seconds that a run keeps free before the deadline of a member who has `whole_s` in all."""
    if not crowd:
        return RETURN_S
    return RETURN_S + SURE_SPREADS * fit.deviation_s + min(RETURN_MAX_S, SURE_SHARE * whole_s)


def may_run(fit: ServiceFit, room: int, left_s: float) -> int:
    """Return how many may run together: all for whom there is room. Where runs of one size alone were seen,
    as many as surely take half of the time that is left: what they tell is worth more to those behind them
    than places in a run that may take that much longer."""
    if not fit.guesses(room):
        return room
    size = 1
    while size < room and (
        not fit.guesses(size)  # the next larger one is always tried, or nothing would be told
        or (fit.run_s(size + 1) or 0.0) <= UNSEEN_SHARE * left_s
    ):
        size += 1
    return size


def fitting(takes: Takes, size: int, left_s: float) -> int:
    """Return the largest run of up to `size` that ends within `left_s`, at least 1."""
    while size > 1 and (takes(size) or 0.0) + RETURN_S > left_s:
        size -= 1
    return size


def best_part(takes: Takes, members: Sequence[Due], at: float, free_s: float) -> tuple[int, int]:
    """Return how many of the first to give up, and how many to run together then, so that the most are done
    in their time. A small batch for the sake of one that is nearly late costs those behind it theirs, and
    leaves the next batch with members that are nearly late as well.

    Where none of the most urgent class can be in time, all of it is given up and nothing runs.
    """
    best, best_rate, size, looked = (0, 0), 0.0, 1, 0
    for skip, (priority, deadline_at) in enumerate(members):
        if priority != members[0][0]:
            break  # nobody is given up for less urgent ones
        looked = skip + 1
        most = len(members) - skip
        while size < most and at + (takes(size + 1) or 0.0) + free_s <= deadline_at:
            size += 1
        size = min(size, most)
        rate = size / max(takes(size) or 0.0, 1e-9)
        if at + (takes(size) or 0.0) + free_s <= deadline_at and rate > best_rate * PAYS:
            best, best_rate = (skip, size), rate
    return best if best_rate else (looked, 0)


def in_time(
    takes: Takes, line: Sequence[Due], *, room: int, at: float, beside: int, free_s: float, crowd: bool
) -> int:
    """Return how many of a line would be done in their time by runs of up to `room`, the first of which
    starts at `at`, on so many replicas beside each other."""
    done, place = 0, 0
    while place < len(line):
        members = line[place : place + room]
        skip, size = 0, 1
        if crowd:
            skip, size = best_part(takes, members, at, free_s)
            if not size:
                place += skip
                continue
        elif room > 1:
            size = fitting(takes, len(members), min(deadline_at for _, deadline_at in members) - at)
        run_s = takes(size) or 0.0
        if at + run_s + free_s > members[skip][1]:
            place += 1  # it is answered, and costs no replica
            continue
        done += size
        place += skip + size
        at += run_s / beside
    return done
