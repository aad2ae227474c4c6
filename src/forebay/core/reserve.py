"""Reserve: a part of what one task can run at once, kept for its urgent jobs."""

import math
from collections.abc import Iterable
from typing import Final

from forebay.core.job import PRIORITY_HIGH

INTERACTIVE: Final = PRIORITY_HIGH  # this urgent or more: the reserve is for these


class Reserve:
    """How many jobs of one task that are less urgent than INTERACTIVE may run at once, and how many do."""

    __slots__ = ("others_max", "running")

    def __init__(self) -> None:
        self.others_max: int | None = None  # None: nothing is reserved
        self.running = 0  # of the others; counted while something is reserved

    def set(self, others_max: int | None, running: Iterable[int]) -> None:
        """Keep room for urgent jobs, or (None) do not. `running` are the priorities of what runs."""
        self.others_max = others_max
        self.recount(running)

    def recount(self, running: Iterable[int]) -> None:
        """Count again what runs."""
        self.running = sum(priority > INTERACTIVE for priority in running)

    def room(self, priority: int) -> float:
        """Return how many more jobs of a priority may run now; infinity where nothing bounds them."""
        if self.others_max is None or priority <= INTERACTIVE:
            return math.inf
        return self.others_max - self.running

    def began(self, priority: int) -> None:
        """Count a job that runs from now on."""
        self.running += priority > INTERACTIVE

    def ended(self, priority: int) -> bool:
        """Count a job that runs no more; returns whether others may go now that could not."""
        if self.others_max is None or priority <= INTERACTIVE:
            return False
        full = self.room(priority) <= 0
        self.running -= 1
        return full


def others_max(reserve: float, replicas: int, each: int) -> int | None:
    """Return how many less urgent jobs may run at once when `reserve` of the replicas is kept free.

    At least one replica is kept and at least one is left to the others; with a single one nothing can be
    kept, and the answer is None. `each` is what one replica runs at once.
    """
    if reserve <= 0.0 or replicas < 2:
        return None
    kept = min(replicas - 1, max(1, math.ceil(reserve * replicas - 1e-9)))
    return (replicas - kept) * each
