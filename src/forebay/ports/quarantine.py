"""Quarantine: the deadly inputs of an engine: core.quarantine.QuarantineBook behind `async def`."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from forebay.core.job import Charge, Job
from forebay.core.quarantine import DeadlyInput


class Quarantine(Protocol):
    """What killed workers and is neither taken nor run. Meaning of each verb: QuarantineBook."""

    def counts(self) -> Mapping[str, int]:
        """Return, without IO, how many inputs of which task are in quarantine; tasks without one are left
        out."""
        ...

    def find(self, task: str, fingerprint: bytes, *, now: float) -> DeadlyInput | None:
        """Return, without IO, an input that is in quarantine, by its hash."""
        ...

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        """Return, without IO, the input of this job when it is in quarantine. Asked of every submission:
        nothing is hashed where the task has none."""
        ...

    async def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        """Count what the end of a request says of its input, durably. `job` is what it ran; the engine does
        not know it."""
        ...

    async def listed(
        self,
        *,
        limit: int,
        now: float,
        tenant: str | None = None,
        task: str | None = None,
        after: bytes = b"",
    ) -> list[DeadlyInput]:
        """Return up to `limit` inputs in quarantine, in the order of their hashes, those behind `after`."""
        ...

    async def release(self, fingerprint: bytes, *, tenant: str | None, now: float) -> DeadlyInput | None:
        """Forget the deaths of an input, durably; return what it was, None when there is none."""
        ...

    async def forget(self, *, tenant: str | None = None, job_ids: Iterable[str] = ()) -> int:
        """Forget the inputs of a tenant, and those whose last death was in one of these jobs, durably."""
        ...
