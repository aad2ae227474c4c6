"""Child: what a Lane needs of whatever carries out its runs: a process, or calls to an upstream."""

from collections.abc import Sequence
from typing import Protocol

from forebay.core.job import Lease


class Child(Protocol):
    """What a Lane needs of one started child."""

    def run(
        self, run: int, task: str, items: Sequence[tuple[int, Lease]], *, singles: bool, level: int = 0
    ) -> None:
        """Send these, to be run by that variant of the task; never blocks. What cannot be sent comes back by
        `returned`."""
        ...

    def cancel(self, tag: int) -> None:
        """Ask for one item to stop."""
        ...

    def give_back(self) -> None:
        """Ask for everything unstarted."""
        ...

    def stop(self) -> None:
        """Let it finish what it runs and end."""
        ...

    def kill(self, reason: str) -> None:
        """End it now, with all it started."""
        ...
