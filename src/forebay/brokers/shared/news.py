"""News: what a transaction has to tell once it is durable."""

from collections.abc import Iterable
from typing import Final

from forebay.core.job import Settled
from forebay.core.lifecycle import State
from forebay.ports.broker import Change

CHANGES_MAX: Final = 2_000  # that wait to be told elsewhere; the rest is found by looking


class News:
    """Tasks with work, tasks with cancels, changes of jobs, deliveries."""

    __slots__ = ("cancels", "changes", "deadly", "looked", "nobodys", "owed", "work")

    def __init__(self) -> None:
        self.looked: set[str] = set()  # a lease of this process has looked for work of these already
        self.work: set[str] = set()  # a job of these may be granted that could not before
        self.cancels: set[str] = set()  # a running job of these was asked to end
        self.changes: list[Change] = []
        self.owed = False  # a delivery is due that was not
        self.deadly = False  # what is known of deadly inputs has changed
        self.nobodys = False  # whoever did it sends no hints of it through a message broker

    def changed(self, job_id: str, task: str, state: State, settled: Settled | None = None) -> None:
        """Tell of a change; a job that became queued is work, too."""
        self.changes.append(Change(job_id, task, state, settled))
        if state is State.QUEUED:
            self.work.add(task)

    def add_told(self, other: "News") -> None:
        """Take in what another one tells elsewhere: how jobs ended is no part of that."""
        self.work |= other.work
        self.cancels |= other.cancels
        room = max(0, CHANGES_MAX - len(self.changes))
        self.changes += [Change(job_id, task, state) for job_id, task, state, _ in other.changes[:room]]
        self.owed = self.owed or other.owed
        self.deadly = self.deadly or other.deadly
        self.nobodys = self.nobodys or other.nobodys

    def ready(self, tasks: Iterable[str]) -> None:
        """Tell of work."""
        self.work.update(tasks)
