"""News: what a transaction has to tell once it is durable."""

from collections.abc import Iterable

from forebay.core.job import Settled
from forebay.core.lifecycle import State
from forebay.ports.broker import Change


class News:
    """Tasks with work, tasks with cancels, changes of jobs, deliveries."""

    __slots__ = ("cancels", "changes", "deadly", "owed", "work")

    def __init__(self) -> None:
        self.work: set[str] = set()  # a job of these may be granted that could not before
        self.cancels: set[str] = set()  # a running job of these was asked to end
        self.changes: list[Change] = []
        self.owed = False  # a delivery is due that was not
        self.deadly = False  # what is known of deadly inputs has changed

    def changed(self, job_id: str, task: str, state: State, settled: Settled | None = None) -> None:
        """Tell of a change; a job that became queued is work, too."""
        self.changes.append(Change(job_id, task, state, settled))
        if state is State.QUEUED:
            self.work.add(task)

    def add(self, other: "News") -> None:
        """Take in what another one tells."""
        self.work |= other.work
        self.cancels |= other.cancels
        self.changes += other.changes
        self.owed = self.owed or other.owed
        self.deadly = self.deadly or other.deadly

    def ready(self, tasks: Iterable[str]) -> None:
        """Tell of work."""
        self.work.update(tasks)
