"""SqliteQuarantine: the embedded engine's deadly inputs behind ports.quarantine.Quarantine."""

from collections.abc import Iterable, Mapping

from forebay.brokers.sqlite.committer import Committer
from forebay.brokers.sqlite.store import SqlBook
from forebay.core.job import Charge, Job
from forebay.core.quarantine import DeadlyInput


class SqliteQuarantine:
    """A ports.quarantine.Quarantine whose writes join the flushes of its engine."""

    def __init__(self, book: SqlBook, committer: Committer) -> None:
        self._book = book
        self._committer = committer

    def counts(self) -> Mapping[str, int]:
        """Return how many inputs of which task are in quarantine."""
        return self._book.quarantine.counts()

    def find(self, task: str, fingerprint: bytes, *, now: float) -> DeadlyInput | None:
        """Return an input that is in quarantine, by its hash."""
        return self._book.quarantine.find(task, fingerprint, now=now)

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        """Return the input of this job when it is in quarantine."""
        return self._book.quarantine.held(job, now=now)

    async def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        """Count what the end of a request says of its input, durably."""
        await self._committer.later(lambda: self._book.quarantine.charge_input(job, charge, at=at))

    async def listed(
        self,
        *,
        limit: int,
        now: float,
        tenant: str | None = None,
        task: str | None = None,
        after: bytes = b"",
    ) -> list[DeadlyInput]:
        """Return up to `limit` inputs in quarantine, in the order of their hashes."""
        return await self._committer.read(
            lambda book: book.quarantine.listed(limit=limit, now=now, tenant=tenant, task=task, after=after)
        )

    async def release(self, fingerprint: bytes, *, tenant: str | None, now: float) -> DeadlyInput | None:
        """Forget the deaths of an input, durably; return what it was."""
        released: DeadlyInput | None = await self._committer.later(
            lambda: self._book.quarantine.release(fingerprint, tenant=tenant, now=now)
        )
        return released

    async def forget(self, *, tenant: str | None = None, job_ids: Iterable[str] = ()) -> int:
        """Forget the inputs of a tenant, and those of these jobs, durably."""
        return int(
            await self._committer.later(lambda: self._book.quarantine.forget(tenant=tenant, job_ids=job_ids))
        )
