"""SharedQuarantine: what is asked and decided about deadly inputs, for engines that several servers share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from forebay.core.job import Charge, Job
from forebay.core.quarantine import Change, DeadlyInput, Inputs, QuarantineBook

T = TypeVar("T")


class SharedQuarantine:
    """A ports.quarantine.Quarantine over the inputs that an engine knows of; how a decision is stored is the
    engine's. What is asked without IO is as old as the last look at the store."""

    def __init__(self, inputs: Inputs, seen_at: Callable[[float], float]) -> None:
        self._inputs = inputs
        self._seen_at = seen_at
        self._book = QuarantineBook(inputs, tick=seen_at)

    def counts(self) -> Mapping[str, int]:
        """Return how many inputs of which task are in quarantine."""
        return self._book.counts()

    def find(self, task: str, fingerprint: bytes, *, now: float) -> DeadlyInput | None:
        """Return an input that is in quarantine, by its hash."""
        return self._book.find(task, fingerprint, now=now)

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        """Return the input of this job when it is in quarantine."""
        return self._book.held(job, now=now)

    async def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        """Count what the end of a request says of its input, durably."""

        def decide() -> tuple[None, Sequence[Change]]:
            return None, self._inputs.charged(job, charge, at=at)

        await self._stored(decide, at)

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
        return self._book.listed(limit=limit, now=now, tenant=tenant, task=task, after=after)

    async def release(self, fingerprint: bytes, *, tenant: str | None, now: float) -> DeadlyInput | None:
        """Forget the deaths of an input, durably; return what it was."""

        def ask(book: QuarantineBook) -> DeadlyInput | None:
            return book.release(fingerprint, tenant=tenant, now=now)

        found: DeadlyInput | None = await self._change(ask, now)
        return found

    async def forget(self, *, tenant: str | None = None, job_ids: Iterable[str] = ()) -> int:
        """Forget the inputs of a tenant, and those of these jobs, durably."""
        ids = list(job_ids)
        count: int = await self._change(lambda book: book.forget(tenant=tenant, job_ids=ids), 0.0)
        return count

    async def _change(self, ask: Callable[[QuarantineBook], T], now: float) -> T:
        def decide() -> tuple[T, Sequence[Change]]:
            changes: list[Change] = []
            return ask(QuarantineBook(self._inputs, store=changes.extend, tick=self._seen_at)), changes

        return await self._stored(decide, now)

    async def _stored(self, decide: Callable[[], tuple[T, Sequence[Change]]], now: float) -> T:
        """Make durable what `decide` says, from what the store says then; return its answer."""
        raise NotImplementedError
