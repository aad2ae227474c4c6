"""Ladder: steps at which a crowded stage takes frames smaller or fewer; and the thresholds of old settings,
read so that every one of them does something."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay.core.buffer import CALM_SHARE
from forebay.core.watermark import Watermark
from forebay.errors import InvalidError

STEPS_MAX: Final = 8
EVERY_MAX: Final = 1_000
SCALE_MIN: Final = 0.01


class Step(NamedTuple):
    """From this share of the capacity on: frames at this scale, one in `every`."""

    at: float
    scale: float = 1.0
    every: int = 1


NONE: Final = Step(0.0)


class Ladder:
    """Which step a stage is on. A step is left when the depth has fallen to CALM_SHARE of where it began."""

    __slots__ = ("_above", "_below", "_found", "_marks", "steps")

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.steps = tuple(steps)
        self._found = 0
        self._marks = [Watermark(low=step.at * CALM_SHARE, high=step.at) for step in self.steps]
        self._look()

    def see(self, share: float) -> int:
        """Take in how full the stage is and return the step it is on now, 0 for none."""
        if not self._above < share < self._below:
            self._found = 0
            for number, mark in enumerate(self._marks, 1):
                if mark.see(share):
                    self._found = number
            self._look()
        return self._found

    def _look(self) -> None:
        """Note between which shares no mark moves: most frames change nothing, and need not ask each."""
        self._above = max((mark.low for mark in self._marks if mark.raised), default=-math.inf)
        self._below = min((mark.high for mark in self._marks if not mark.raised), default=math.inf)

    def step(self, number: int) -> Step:
        """Return a step by its number, the one that changes nothing for 0."""
        return self.steps[number - 1] if number else NONE


def check_steps(steps: Sequence[Step], drop_at: float | None) -> None:
    """Raise InvalidError with one line for steps that make no sense, or that nothing would reach."""
    if len(steps) > STEPS_MAX:
        raise InvalidError(f"degrade: {STEPS_MAX} steps at most, not {len(steps)}")
    before = 0.0
    for step in steps:
        if type(step.at) not in (int, float) or not 0 < step.at <= 1:
            raise InvalidError(f"degrade: a step begins at a share above 0, at most 1, not {step.at!r:.60}")
        if step.at <= before:
            raise InvalidError(f"degrade: each step begins above the one before; {step.at} follows {before}")
        if type(step.scale) not in (int, float) or not SCALE_MIN <= step.scale <= 1:
            raise InvalidError(f"degrade: Scale must be from {SCALE_MIN} to 1, not {step.scale!r:.60}")
        if type(step.every) is not int or not 1 <= step.every <= EVERY_MAX:
            raise InvalidError(f"degrade: Decimate must be from 1 to {EVERY_MAX}, not {step.every!r:.60}")
        before = step.at
    if steps and drop_at is not None and steps[-1].at >= drop_at:
        raise InvalidError(
            f"degrade: the step at {steps[-1].at} must lie below drop_at ({drop_at}): from there on no frame"
            " comes in beside those that wait, so none would be degraded"
        )


class Thresholds(NamedTuple):
    """Thresholds in items, as shares of a capacity; `note` says what was changed, empty where nothing was."""

    degrade_at: float
    drop_at: float
    note: str = ""


def thresholds(maxsize: int, *, drop: int, degrade: int) -> Thresholds:
    """Return where to degrade and where to drop. Both are whole numbers of items, `maxsize` at most.

    `drop=900, degrade=950` of 1000 contradicts itself: what is dropped from 900 on never reaches 950, so
    nothing is ever degraded. The milder measure then takes the lower mark: degrade from 900, drop from 950.
    Raises InvalidError with one line.
    """
    for name, mark in (("drop", drop), ("degrade", degrade)):
        if type(mark) is not int or not 1 <= mark <= maxsize:
            raise InvalidError(
                f"{name} must be a whole number from 1 to maxsize ({maxsize}), not {mark!r:.60}"
            )
    if degrade < drop:
        return Thresholds(degrade / maxsize, drop / maxsize)
    if degrade == drop:
        raise InvalidError(f"drop and degrade are both {drop}: at one mark only one of them can happen")
    note = (
        f"drop={drop} below degrade={degrade} contradicts itself: a queue that drops from {drop} on never"
        f" holds {degrade}, so nothing would be degraded. Taken as: degrade from {drop} on, drop from"
        f" {degrade} on; {maxsize} stays the bound"
    )
    return Thresholds(drop / maxsize, degrade / maxsize, note)


def scaled(length: int, scale: float) -> int:
    """Return a length at a scale, at least 1."""
    return max(1, math.floor(length * scale + 0.5))
