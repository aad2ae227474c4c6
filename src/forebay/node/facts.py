"""LaneFacts: what a Lane tells whoever measures; every call is cheap and never raises."""

from collections.abc import Sequence
from typing import Protocol

from forebay.core.actions import KillReplica
from forebay.core.batching import Trigger
from forebay.core.breaker import Change
from forebay.core.job import Lease, Transition
from forebay.core.quarantine import DeadlyInput
from forebay.core.requests import Ended
from forebay.core.variants import Moved


def unheard(task: str, change: Change) -> None:
    """Take a change of a breaker that nobody asked to be told of."""


class LaneFacts(Protocol):
    """The seam to metrics and logs."""

    def leased(self, task: str, leases: Sequence[Lease], now: float) -> None:
        """These were granted; their wait in the queue ended."""
        ...

    def batch(self, task: str, size: int, trigger: Trigger) -> None:
        """A run of `size` items was sent to a child."""
        ...

    def settled(
        self,
        transitions: Sequence[Transition],
        leases: Sequence[Lease],
        applied: Sequence[bool],
        now: float,
    ) -> None:
        """These were offered to the store; those not applied were stale and changed nothing."""
        ...

    def condemned(self, deadly: DeadlyInput) -> None:
        """An input went into quarantine."""
        ...

    def foretold(self, task: str, error_s: float) -> None:
        """A job ended so much later than was told at its submission (p50); negative: earlier."""
        ...

    def answered(self, ended: Ended, now: float) -> None:
        """A request has ended."""
        ...

    def lost(self, count: int) -> None:
        """So many leases were found lost at a renewal."""
        ...

    def killed(self, kill: KillReplica) -> None:
        """A child is being killed on purpose."""
        ...

    def limited(self, task: str, calls: int) -> None:
        """An upstream is called so often at once from now on."""
        ...

    def gated(self, task: str, stand: str, value: float | None, reason: str) -> None:
        """The gate of an upstream was looked at: how it stands (core.saturation.Stand), its value where there
        is one, and the reason where it stands otherwise than before."""
        ...

    def scaled(self, task: str, replicas: int, was: int | None = None, reason: str = "") -> None:
        """A task has so many replicas from now on, for this reason; without `was` as it begins. As many as
        before: it needs more that cannot be had."""
        ...

    def moved(self, task: str, level: int, moved: Moved) -> None:
        """Ordinary work of a task runs at this level from now on."""
        ...

    def breaker(
        self, worker: str, name: str, state: str, trips: int, reason: str, tasks: Sequence[str] = ()
    ) -> None:
        """A breaker of a worker or a task is in `state` now and tripped so often since it was last told;
        `tasks`: whose calls it guarded inside a worker."""
        ...

    def breakers_gone(self, worker: str) -> None:
        """The process that held these breakers is gone."""
        ...

    def failed(self, verb: str, error: BaseException) -> None:
        """A verb of the engine failed; it is tried again unless the store is broken."""
        ...


class NoFacts:
    """Measures nothing."""

    def leased(self, task: str, leases: Sequence[Lease], now: float) -> None:
        """Ignore."""

    def batch(self, task: str, size: int, trigger: Trigger) -> None:
        """Ignore."""

    def settled(
        self,
        transitions: Sequence[Transition],
        leases: Sequence[Lease],
        applied: Sequence[bool],
        now: float,
    ) -> None:
        """Ignore."""

    def condemned(self, deadly: DeadlyInput) -> None:
        """Ignore."""

    def foretold(self, task: str, error_s: float) -> None:
        """Ignore."""

    def answered(self, ended: Ended, now: float) -> None:
        """Ignore."""

    def lost(self, count: int) -> None:
        """Ignore."""

    def killed(self, kill: KillReplica) -> None:
        """Ignore."""

    def limited(self, task: str, calls: int) -> None:
        """Ignore."""

    def gated(self, task: str, stand: str, value: float | None, reason: str) -> None:
        """Ignore."""

    def scaled(self, task: str, replicas: int, was: int | None = None, reason: str = "") -> None:
        """Ignore."""

    def moved(self, task: str, level: int, moved: Moved) -> None:
        """Ignore."""

    def breaker(
        self, worker: str, name: str, state: str, trips: int, reason: str, tasks: Sequence[str] = ()
    ) -> None:
        """Ignore."""

    def breakers_gone(self, worker: str) -> None:
        """Ignore."""

    def failed(self, verb: str, error: BaseException) -> None:
        """Ignore."""
