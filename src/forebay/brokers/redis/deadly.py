"""Deadly: inputs in quarantine, in a hash, and in memory for what is asked of every submission.

What a death changes is decided here from what is known, and stored while nobody else has changed it since.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from forebay.brokers.redis.store import STALE_TRIES_MAX, Tx, pairs
from forebay.core.job import Charge, Job
from forebay.core.quarantine import Change, DeadlyInput, Inputs, QuarantineBook
from forebay.errors import StoreUnavailableError

T = TypeVar("T")
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(DeadlyInput).decode


class Deadly:
    """What is known of deadly inputs, and the version of it."""

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.version = "0"  # of what is known; the store has a newer one where others changed it

    def rows(self, changes: Sequence[Change]) -> list[Any]:
        """Return changes as the scripts take them."""
        return [
            (_ENCODE((task, fingerprint)), False if row is None else _ENCODE(row))
            for task, fingerprint, row in changes
        ]

    def took(self, tx: Tx, changes: Sequence[Change]) -> None:
        """Know what was just stored."""
        self.inputs.apply(changes)
        self.version = str(int(self.version) + 1)
        tx.news.deadly = True

    def load(self, version: str, flat: Sequence[bytes]) -> None:
        """Take what the store says in place of what was known."""
        found = [_DECODE(row) for _, row in pairs(flat)]
        kept = {(row.task, row.fingerprint): row for row in found}
        gone: list[Change] = [
            (one.task, one.fingerprint, None)
            for one in self.inputs
            if (one.task, one.fingerprint) not in kept
        ]
        self.inputs.apply([*gone, *((task, print_, row) for (task, print_), row in kept.items())])
        self.version = version

    async def refresh(self, tx: Tx) -> None:
        """Know what the store says."""
        _, _, version, flat = await tx.run("look", dv=self.version)
        if flat is not None:
            self.load(version.decode(), flat)

    async def change(self, tx: Tx, decide: Callable[[], tuple[T, Sequence[Change]]]) -> T:
        """Store what `decide` says, decided anew where another server was first; return its answer."""
        await self.refresh(tx)
        for _ in range(STALE_TRIES_MAX):
            answer, changes = decide()
            if not changes:
                return answer
            if await tx.run("deadly", changes=self.rows(changes), dv=self.version) != b"stale":
                self.took(tx, changes)
                return answer
            await self.refresh(tx)
        raise StoreUnavailableError(
            "too many servers change what is known of deadly inputs", retry_after_s=1.0
        )

    async def age_out(self, tx: Tx) -> None:
        """Forget what is too old."""
        if self.inputs.aged(tx.now):
            await self.change(tx, lambda: (None, self.inputs.aged(tx.now)))


class RedisQuarantine:
    """A ports.quarantine.Quarantine. What is asked without IO is as old as the last look at the store."""

    def __init__(self, deadly: Deadly, write: Any, seen_at: Callable[[float], float]) -> None:
        self._deadly = deadly
        self._write = write
        self._seen_at = seen_at
        self._book = QuarantineBook(deadly.inputs, tick=seen_at)

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
            return None, self._deadly.inputs.charged(job, charge, at=at)

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
            return ask(QuarantineBook(self._deadly.inputs, store=changes.extend, tick=self._seen_at)), changes

        return await self._stored(decide, now)

    async def _stored(self, decide: Callable[[], tuple[T, Sequence[Change]]], now: float) -> T:
        async def work(tx: Tx) -> T:
            return await self._deadly.change(tx, decide)

        answer: T = await self._write(work, now)
        return answer
