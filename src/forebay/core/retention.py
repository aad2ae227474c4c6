"""Retention: how long a job is kept after its end, by how it ended and by its task."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from forebay.core.lifecycle import State

WEEK_S = 604_800.0


class Retention(NamedTuple):
    """Seconds from the end of a job until nobody knows it any more."""

    ended_s: float  # succeeded, cancelled or expired
    dead_s: float  # dead letters

    @classmethod
    def of(cls, ended_s: float, failed_s: float | None) -> "Retention":
        """Return that of two settings; where nothing is said, dead letters are kept a week at least."""
        return cls(ended_s, max(ended_s, WEEK_S) if failed_s is None else failed_s)

    def kept_s(self, state: State) -> float:
        """Return how long a job in this final state is kept."""
        return self.dead_s if state is State.DEAD else self.ended_s


class Keeping:
    """The retention of every task: the one of all, and of some their own."""

    __slots__ = ("by_task", "of_all")

    def __init__(self, of_all: Retention) -> None:
        self.of_all = of_all
        self.by_task: dict[str, Retention] = {}

    def set(self, by_task: Mapping[str, Retention]) -> None:
        """Give tasks their own; those not named have the one of all."""
        self.by_task = dict(by_task)

    def kept_s(self, task: str, state: State) -> float:
        """Return how long a job of a task that ended in this state is kept."""
        return self.by_task.get(task, self.of_all).kept_s(state)

    def gone_at(self, task: str, state: State, finished_at: float | None) -> float:
        """Return from when on a job is past its retention, infinity when it has not ended."""
        return math.inf if finished_at is None else finished_at + self.kept_s(task, state)
