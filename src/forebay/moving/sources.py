"""Sources: a store that is left: the embedded one, or one that processes share. Both read alike."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Final, Protocol

from forebay.blobs.opening import place_of
from forebay.brokers.sqlite import SqliteBroker
from forebay.brokers.sqlite.leaving import put_aside
from forebay.core import settle
from forebay.core.job import JobError, JobRecord, Query, Sweep, Transition
from forebay.core.lifecycle import State
from forebay.core.numbered_ids import stone
from forebay.core.outbox import Delivery
from forebay.errors import StoreBrokenError
from forebay.ports.clock import Clock
from forebay.ports.crons import Crons
from forebay.ports.moving import KeyOf, Leaving, Rest, Stone
from forebay.ports.outbox import Outbox

KEPT_S: Final = 1e11  # nothing is past its retention here: the servers that follow decide on that
PAGE_MAX: Final = 50  # jobs read at once, with their outputs
GIVEN_BACK_MAX: Final = 1_000  # running jobs looked for at once
LOST: Final = JobError("worker_lost", "the server that ran it was killed; its jobs were moved")


class Source(Protocol):
    """A store that is left."""

    blobs: str | None  # where its blobs are, when that belongs to it

    async def begin(self) -> str:
        """Make sure that nothing changes there any more; return what tells this store from all others."""
        ...

    async def turn_back(self) -> None:
        """Nothing of it will be moved now: let it be served again, unless a move before this one began it."""
        ...

    def records(self) -> AsyncIterator[JobRecord]:
        """Go through all jobs with their outputs, newest first. One that runs has a lease that is over."""
        ...

    async def deliveries(self, records: Sequence[JobRecord]) -> list[Delivery]:
        """Return what callbacks of these are owed, or were told."""
        ...

    async def keys(self, records: Sequence[JobRecord]) -> list[KeyOf]:
        """Return every idempotency key that means one of these."""
        ...

    def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        ...

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs and how many deliveries there are; None where nothing counts them."""
        ...

    async def rest(self) -> Rest:
        """Return what belongs to no job."""
        ...

    async def put_aside(self) -> None:
        """See to it that nobody serves it again. It is closed afterwards."""
        ...

    async def give_up(self) -> None:
        """Let it be served again."""
        ...

    async def close(self) -> None:
        """Let go of everything. Twice is harmless."""
        ...


class SharedStore(Protocol):
    """What is used of an engine that processes share."""

    leaving: Leaving

    @property
    def outbox(self) -> Outbox:
        """Deliveries."""
        ...

    @property
    def crons(self) -> Crons:
        """Marks."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class Lost(Protocol):
    """What is used of an engine to give back what was running."""

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Return overdue leases."""
        ...

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        """Apply transitions."""
        ...


class Sqlite:
    """The embedded store: its owner is gone, as it could be opened."""

    def __init__(self, store: SqliteBroker, directory: Path, clock: Clock) -> None:
        place = place_of(None, str(directory))
        self.blobs = place if Path(place).is_dir() else None
        self._store = store
        self._directory = directory
        self._clock = clock
        self._joined: dict[str, list[KeyOf]] | None = None  # by job

    @classmethod
    async def open(cls, directory: Path, clock: Clock) -> "Sqlite":
        """Open the store of a directory."""
        store = await SqliteBroker.open(
            directory, clock=clock, retention_s=KEPT_S, dead_s=KEPT_S, leaving=True
        )
        return cls(store, directory, clock)

    async def begin(self) -> str:
        """Settle what was running; return what tells this store from all others."""
        await give_back(self._store, self._clock)
        return await self._store.leaving.begin()

    async def turn_back(self) -> None:
        """Nothing stands in the way of who serves it next: that notes by itself that it does."""

    async def records(self) -> AsyncIterator[JobRecord]:
        """Go through all jobs with their outputs, newest first."""
        query = Query(limit=PAGE_MAX)
        while True:
            page = await self._store.find(query, now=self._clock.now())
            for listed in page.records:
                record = await self._store.get(listed.job.id, now=self._clock.now())  # with its output
                if record is None:
                    raise StoreBrokenError(f"the job {listed.job.id} is listed and cannot be read")
                yield record
            if page.next_after is None:
                return
            query = query._replace(after=page.next_after)

    async def deliveries(self, records: Sequence[JobRecord]) -> list[Delivery]:
        """Return what callbacks of these are owed, or were told."""
        return await _deliveries(self._store.outbox, records, self._clock)

    async def keys(self, records: Sequence[JobRecord]) -> list[KeyOf]:
        """Return every idempotency key that means one of these."""
        if self._joined is None:
            self._joined = {}
            for key in await self._store.leaving.joined():
                self._joined.setdefault(key.job_id, []).append(key)
        keys: list[KeyOf] = []
        for record in records:
            job = record.job
            if job.idempotency_key is not None:
                keys.append(KeyOf(job.tenant, job.idempotency_key, job.id, job.body_hash))
            keys += self._joined.get(job.id, [])
        return keys

    async def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        after = 0
        while found := await self._store.leaving.stones(after):
            yield [Stone(stone(number, tag)) for number, tag in found]
            after = found[-1][0]

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs and how many deliveries there are."""
        return await self._store.leaving.counts()

    async def rest(self) -> Rest:
        """Return what belongs to no job."""
        leaving = self._store.leaving
        marks = await self._store.crons.marks()
        return Rest(marks, await leaving.deadly(), await leaving.taps(), await leaving.former())

    async def put_aside(self) -> None:
        """Rename the file."""
        await self.close()
        put_aside(self._directory)

    async def give_up(self) -> None:
        """Note that it goes on as it is."""
        await self._store.leaving.give_up()

    async def close(self) -> None:
        """Let go of the file."""
        await self._store.close()


class Shared:
    """A store that takes nothing any more, from whoever may still be connected to its server."""

    blobs: str | None = None  # where they are its servers' settings say: they stay good as they are

    def __init__(self, store: SharedStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(self) -> str:
        """Have it take nothing any more."""
        return await self._store.leaving.sealing.begin()

    async def turn_back(self) -> None:
        """Have it take jobs again, unless a move before this one began it."""
        await self._store.leaving.sealing.turn_back()

    async def records(self) -> AsyncIterator[JobRecord]:
        """Go through all jobs with their outputs, newest first. One that runs has a lease that is over."""
        after: str | None = None
        while page := await self._store.leaving.page(after, PAGE_MAX):
            for record in page:
                stands = record.standing
                if stands.state is State.RUNNING:
                    record = record._replace(standing=stands._replace(lease_until=0.0))
                yield record
            after = page[-1].job.id

    async def deliveries(self, records: Sequence[JobRecord]) -> list[Delivery]:
        """Return what callbacks of these are owed, or were told."""
        return await _deliveries(self._store.outbox, records, self._clock)

    async def keys(self, records: Sequence[JobRecord]) -> list[KeyOf]:
        """Return every idempotency key that means one of these."""
        return await self._store.leaving.keys([record.job.id for record in records])

    def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        return self._store.leaving.stones()

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs and how many deliveries there are."""
        return await self._store.leaving.counts()

    async def rest(self) -> Rest:
        """Return what belongs to no job."""
        return Rest(await self._store.crons.marks(), *await self._store.leaving.rest())

    async def put_aside(self) -> None:
        """Say for good that it was moved."""
        await self._store.leaving.put_aside()
        await self.close()

    async def give_up(self) -> None:
        """Have it take jobs again."""
        await self._store.leaving.sealing.give_up()

    async def close(self) -> None:
        """Let go of the server."""
        await self._store.close()


async def give_back(store: Lost, clock: Clock) -> None:
    """Settle what was running: its holder is gone with the server that ran it."""
    while True:
        now = clock.now()
        swept = await store.sweep(limit=GIVEN_BACK_MAX, now=now)
        if swept.overdue:
            await store.commit([settle.lose(one, error=LOST, now=now) for one in swept.overdue], now=now)
        if max(len(swept.overdue), len(swept.expired), len(swept.promoted)) < GIVEN_BACK_MAX:
            return


async def _deliveries(outbox: Outbox, records: Sequence[JobRecord], clock: Clock) -> list[Delivery]:
    told = [record for record in records if record.job.callback_url is not None]
    found = [await outbox.get(record.job.id, now=clock.now()) for record in told]
    return [delivery for delivery in found if delivery is not None]
