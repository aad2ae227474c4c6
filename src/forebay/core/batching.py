"""When a batch closes, and why: Trigger and the two rules that decide it."""

from collections.abc import Sequence
from enum import Enum

from forebay.core.service import ServiceFit
from forebay.core.task import TaskSpec

DEADLINE_MARGIN_S = 0.005  # a batch closed for a deadline starts this much before the last moment


class Trigger(str, Enum):
    """Why a batch started now."""

    SIZE = "size"  # full
    WAIT = "wait"  # its oldest item waited batch_wait
    DEADLINE = "deadline"  # waiting longer would miss the tightest deadline in it
    IDLE = "idle"  # nothing ran: latency first
    ALONE = "alone"  # a suspect runs by itself


def trigger(
    *,
    size: int,
    oldest_at: float,
    tightest_at: float | None,
    spec: TaskSpec,
    fit: ServiceFit,
    idle: bool,
    now: float,
) -> Trigger | None:
    """Return why a batch of `size` waiting items starts now, or None when it waits for more.

    `oldest_at` is when the oldest of them was taken in hand. `idle`: no replica of the task ran
    anything within the last batch_wait, so waiting would cost latency and save nothing.
    """
    if size >= spec.batch_max:
        return Trigger.SIZE
    if idle:
        return Trigger.IDLE
    closes = closes_at(size=size, oldest_at=oldest_at, tightest_at=tightest_at, spec=spec, fit=fit)
    if now < closes:
        return None
    return Trigger.WAIT if now >= oldest_at + spec.batch_wait_s else Trigger.DEADLINE


def closes_at(
    *, size: int, oldest_at: float, tightest_at: float | None, spec: TaskSpec, fit: ServiceFit
) -> float:
    """Return the instant at which a batch that is not full starts anyway."""
    closes = oldest_at + spec.batch_wait_s
    if tightest_at is not None:
        run_s = fit.run_s(size) or 0.0
        closes = min(closes, tightest_at - run_s - DEADLINE_MARGIN_S)
    return closes


def tightest(deadlines: Sequence[float | None]) -> float | None:
    """Return the earliest deadline, None when there is none."""
    present = [deadline for deadline in deadlines if deadline is not None]
    return min(present) if present else None
