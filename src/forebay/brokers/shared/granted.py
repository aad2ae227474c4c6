"""Granted: the leases of this process, so that whoever waits hears how a job ended without a read."""

from collections.abc import Sequence
from typing import Final

from forebay.core.job import Lease, Settled, Transition

GRANTED_MAX: Final = 4_096  # leases; past it the oldest are forgotten, and whoever waits for them reads
GRANTED_BYTES_MAX: Final = 64 << 20  # of their jobs; a node has the same ones in hand while they run


class Granted:
    """Leases by job. Never the truth: the store says whether a fence is current."""

    def __init__(self, most: int = GRANTED_MAX, bytes_most: int = GRANTED_BYTES_MAX) -> None:
        self._most = most
        self._bytes_most = bytes_most
        self._leases: dict[str, Lease] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._leases)

    def put(self, leases: Sequence[Lease]) -> None:
        """Remember these."""
        for lease in leases:
            self.drop(lease.job.id)
            self._leases[lease.job.id] = lease
            self._bytes += lease.job.size
        while len(self._leases) > self._most or self._bytes > self._bytes_most:
            self.drop(next(iter(self._leases)))

    def drop(self, job_id: str) -> None:
        """Forget one."""
        lease = self._leases.pop(job_id, None)
        if lease is not None:
            self._bytes -= lease.job.size

    def of(self, step: Transition) -> Lease | None:
        """Return the lease that a transition ends; None where it is not at hand."""
        lease = self._leases.get(step.job_id)
        return lease if lease is not None and lease.fence == step.fence else None

    def settled(self, step: Transition, started_at: float) -> Settled | None:
        """Return how a job ended by a transition that was stored; None where that is not at hand.
        `started_at`: as the store has it."""
        lease = self.of(step)
        self.drop(step.job_id)
        if lease is None:
            return None
        return Settled(lease._replace(leased_at=started_at), step)
