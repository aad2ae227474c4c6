"""Spool: what waits on this machine for its engine: bounded in jobs, bytes and age, in memory and on disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from forebay.brokers.spooled.file import SpoolFile
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.errors import StoreUnavailableError

FULL_RETRY_S: Final = 5.0


class Bounds(NamedTuple):
    """How much a spool takes."""

    jobs: int
    bytes: int
    age_s: float  # when the oldest has waited so long nothing more is taken; what is there stays


@dataclass(slots=True)
class _Entry:
    number: int
    job: Job
    durable: bool
    failed: BaseException | None = None  # what kept it from the disk; it is not here any more then


class Spool:
    """Jobs in their order. What is not on the disk yet is known to nobody but repeats of itself."""

    def __init__(self, files: Sequence[SpoolFile], bounds: Bounds) -> None:
        self._files = list(files)
        self._bounds = bounds
        self._entries: dict[str, _Entry] = {}  # by id, in order
        self._keys: dict[tuple[str, str], str] = {}
        self._number = 0
        self._coming: list[_Entry] = []
        self._commit: asyncio.Future[None] | None = None
        self._removing: asyncio.Future[None] | None = None
        self._disk = asyncio.Lock()
        self.bytes = 0
        self._gather()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, job_id: str) -> Job | None:
        """Return a job that waits here."""
        entry = self._entries.get(job_id)
        return entry.job if entry is not None and entry.durable else None

    def jobs(self) -> list[Job]:
        """Return all that wait here."""
        return [entry.job for entry in self._entries.values()]

    async def recall(self, jobs: Sequence[Job]) -> list[Receipt | None]:
        """Return what submissions get whose idempotency keys are known here, once what they mean is on the
        disk. Raises StoreUnavailableError where it does not get there."""
        known = [self._known(job) for job in jobs]
        await self._settled([entry for entry in known if entry is not None])
        return [
            None if entry is None else _repeat(entry, job) for entry, job in zip(known, jobs, strict=True)
        ]

    def _known(self, job: Job) -> _Entry | None:
        known = None if job.idempotency_key is None else self._keys.get((job.tenant, job.idempotency_key))
        return self._entries.get(known or job.id)

    def has_room(self, now: float, *, jobs: int = 1, size_b: int = 0) -> bool:
        """Say whether so much more is taken."""
        bounds = self._bounds
        if len(self) + jobs > bounds.jobs or self.bytes + size_b > bounds.bytes:
            return False
        oldest = next(iter(self._entries.values()), None)
        return oldest is None or now - oldest.job.created_at < bounds.age_s

    async def put(self, jobs: Sequence[Job], *, why: str, now: float) -> list[Receipt]:
        """Store jobs here, durably, all or none; answer in order. Raises StoreUnavailableError."""
        fresh: list[Job] = []
        receipts: list[Receipt] = []
        waited_for: list[_Entry] = []
        for job in jobs:
            entry = self._known(job)
            if entry is not None:
                waited_for.append(entry)
                receipts.append(_repeat(entry, job))
                continue
            repeated = self._among(fresh, job)
            if repeated is None:
                fresh.append(job)
            receipts.append(repeated or Receipt(Verdict.SPOOLED, job.id, waits_as(job)))
        if fresh and not self.has_room(now, jobs=len(fresh), size_b=sum(job.size for job in fresh)):
            raise StoreUnavailableError(f"{why}; and the spool is full", retry_after_s=FULL_RETRY_S)
        entered = [self._enter(job, durable=False) for job in fresh]
        self._coming += entered
        if self._coming and self._commit is None:
            self._commit = asyncio.ensure_future(self._store())
            self._commit.add_done_callback(_heard)
        await self._settled([*waited_for, *entered])
        return receipts

    async def _settled(self, entries: Sequence[_Entry]) -> None:
        """Return when all of these are on the disk. Raises what kept one of them from it."""
        if not all(entry.durable for entry in entries):
            if self._commit is not None:
                await asyncio.wait({self._commit})
            else:
                async with self._disk:  # they are just being written
                    pass
        for entry in entries:
            if entry.failed is not None:
                raise entry.failed
            if not entry.durable:
                raise StoreUnavailableError("the spool is closed", retry_after_s=1.0)

    def first(self, jobs_max: int, bytes_max: int) -> list[Job]:
        """Return what is to be handed over next, at least one job if there is one on the disk."""
        found: list[Job] = []
        size_b = 0
        for entry in self._entries.values():
            size_b += entry.job.size
            if not entry.durable or len(found) >= jobs_max or (found and size_b > bytes_max):
                break
            found.append(entry.job)
        return found

    async def remove(self, jobs: Sequence[Job]) -> None:
        """Forget jobs that `first` returned: the engine has them."""
        upto = self._entries[jobs[-1].id].number
        for job in jobs:
            self._leave(job)
        # To its end also when whoever waits is cancelled: the file must not be closed in the middle of it.
        self._removing = asyncio.ensure_future(self._remove(upto))
        self._removing.add_done_callback(_heard)
        await asyncio.shield(self._removing)

    async def _remove(self, upto: int) -> None:
        async with self._disk:
            await asyncio.to_thread(self._files[0].remove, upto)

    async def close(self) -> None:
        """Let go of the files; what waits stays in them."""
        for writing in (self._commit, self._removing):
            if writing is not None:
                await asyncio.wait({writing})
        async with self._disk:
            for file in self._files:
                file.close()

    async def _store(self) -> None:
        """Bring what has come onto the disk, together."""
        async with self._disk:  # and what comes while the one before is written
            rows, self._coming, self._commit = self._coming, [], None
            try:
                await asyncio.to_thread(self._files[0].add, [(row.number, row.job) for row in rows])
            except BaseException as error:
                for row in rows:
                    row.failed = error
                    self._leave(row.job)
                raise
            for row in rows:
                row.durable = True

    def _enter(self, job: Job, *, durable: bool) -> _Entry:
        self._number += 1
        entry = self._entries[job.id] = _Entry(self._number, job, durable)
        if job.idempotency_key is not None:
            self._keys[job.tenant, job.idempotency_key] = job.id
        self.bytes += job.size
        return entry

    def _leave(self, job: Job) -> None:
        del self._entries[job.id]
        if job.idempotency_key is not None:
            self._keys.pop((job.tenant, job.idempotency_key), None)
        self.bytes -= job.size

    @staticmethod
    def _among(fresh: Sequence[Job], job: Job) -> Receipt | None:
        for other in fresh:
            if job.idempotency_key is not None and (other.tenant, other.idempotency_key) == (
                job.tenant,
                job.idempotency_key,
            ):
                same = other.body_hash == job.body_hash
                return Receipt(Verdict.REPLAYED if same else Verdict.CONFLICT, other.id, waits_as(other))
        return None

    def _gather(self) -> None:
        """Bring what dead processes left into our own file, numbered anew, and empty theirs."""
        found = {
            job.id: job for file in self._files for job in file.load()
        }  # begun before, some is there twice
        for job in sorted(found.values(), key=lambda job: (job.created_at, job.id)):
            self._enter(job, durable=True)
        mine, *others = self._files
        mine.replace([(entry.number, entry.job) for entry in self._entries.values()])
        for other in others:
            other.replace([])
            other.close()
        del self._files[1:]


def waits_as(job: Job) -> State:
    """Return the state of a job that waits here."""
    return State.SCHEDULED if job.run_at > job.created_at else State.QUEUED


def _repeat(entry: _Entry, job: Job) -> Receipt:
    same = entry.job.body_hash == job.body_hash
    return Receipt(Verdict.REPLAYED if same else Verdict.CONFLICT, entry.job.id, waits_as(entry.job))


def _heard(commit: "asyncio.Future[None]") -> None:
    """Whoever waited for it may have gone: its error is nobody's then."""
    if not commit.cancelled():
        commit.exception()
