"""move, survey: all jobs of an embedded store to PostgreSQL, whole, however often it is interrupted."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from forebay.brokers.postgres import Address, PostgresBroker
from forebay.brokers.sqlite import SqliteBroker
from forebay.brokers.sqlite.leaving import is_there, put_aside, was_moved
from forebay.core import settle
from forebay.core.job import JobError, JobRecord, Query
from forebay.core.outbox import Delivery
from forebay.errors import ConfigError, StoreBrokenError
from forebay.ports.clock import Clock
from forebay.ports.moving import KeyOf, Load, Rest

EACH_MAX: Final = 200  # jobs of one transaction
KEPT_S: Final = 1e11  # nothing is past its retention here: the servers that follow decide on that
GIVEN_BACK_MAX: Final = 1_000  # running jobs looked for at once
LOST: Final = JobError("worker_lost", "the server that ran it was killed; its jobs were moved")


@dataclass(slots=True)
class Moved:
    """What was found, and what of it was moved this time."""

    jobs: Counter[str] = field(default_factory=Counter[str])  # found, by state
    moved: int = 0
    deliveries: int = 0
    keys: int = 0
    crons: int = 0
    deadly: int = 0
    taps: int = 0
    before: bool = False  # all was there already


Told = Callable[[Moved], None]


async def survey(source: str, *, clock: Clock) -> Moved:
    """Count what there is to move; write nothing. Raises ForebayError with one line."""
    found = Moved()
    async with _opened(_directory(source), clock) as store:
        joined = await store.leaving.joined()
        async for load in _loads(store, joined, clock):
            _count(found, load)
        _count_rest(found, await _rest(store))
    return found


async def move(source: str, target: str, *, clock: Clock, told: Told) -> Moved:
    """Move everything, or what is left of it, and put the source aside. `told` hears after each group.

    Raises ForebayError with one line; what was moved by then stays moved, and the next call goes on.
    """
    directory = _directory(source)
    Address.of(target)  # a URL that cannot be read is told before anything is opened
    found = Moved()
    async with _opened(directory, clock) as store:
        there = await PostgresBroker.open(target, clock=clock)
        try:
            origin = store.leaving.origin()
            found.before = await there.arriving.begin(origin)
            if not found.before:
                await _give_back(store, clock)
                joined = await store.leaving.joined()
                async for load in _loads(store, joined, clock):
                    found.moved += await there.arriving.put(load)
                    _count(found, load)
                    told(found)
                await _whole(store, found)
                rest = await _rest(store)
                await there.arriving.finish(origin, rest)
                _count_rest(found, rest)
        finally:
            await there.close()
    put_aside(directory)
    return found


def _directory(source: str) -> Path:
    """Return the directory of a store that is there. Raises ConfigError."""
    if not source.startswith("sqlite:"):
        raise ConfigError(f"--from: {source.partition(':')[0][:60]!r} cannot be left: sqlite:DIRECTORY can")
    directory = Path(source.removeprefix("sqlite:").removeprefix("//") or ".forebay")
    if not is_there(directory):
        moved = "; it was moved before" if was_moved(directory) else ""
        raise ConfigError(f"--from: there is no store in {directory}{moved}")
    return directory


@contextlib.asynccontextmanager
async def _opened(directory: Path, clock: Clock) -> AsyncGenerator[SqliteBroker]:
    store = await SqliteBroker.open(directory, clock=clock, retention_s=KEPT_S, dead_s=KEPT_S)
    try:
        yield store
    finally:
        await store.close()


async def _give_back(store: SqliteBroker, clock: Clock) -> None:
    """Settle what was running: its holder is gone with the server that owned the store."""
    while True:
        now = clock.now()
        swept = await store.sweep(limit=GIVEN_BACK_MAX, now=now)
        if swept.overdue:
            await store.commit([settle.lose(one, error=LOST, now=now) for one in swept.overdue], now=now)
        if max(len(swept.overdue), len(swept.expired), len(swept.promoted)) < GIVEN_BACK_MAX:
            return


async def _loads(store: SqliteBroker, joined: Sequence[KeyOf], clock: Clock) -> AsyncIterator[Load]:
    """Go through all jobs, with what belongs to each."""
    by_job: dict[str, list[KeyOf]] = {}
    for key in joined:
        by_job.setdefault(key.job_id, []).append(key)
    query = Query(limit=EACH_MAX)
    while True:
        page = await store.find(query, now=clock.now())
        records: list[JobRecord] = []
        for listed in page.records:
            record = await store.get(listed.job.id, now=clock.now())  # with its output
            if record is None:
                raise StoreBrokenError(f"the job {listed.job.id} is listed and cannot be read")
            records.append(record)
        if records:
            yield Load(records, await _deliveries(store, records, clock), _keys(records, by_job))
        if page.next_after is None:
            return
        query = query._replace(after=page.next_after)


async def _deliveries(store: SqliteBroker, records: Sequence[JobRecord], clock: Clock) -> list[Delivery]:
    told = [record for record in records if record.job.callback_url is not None]
    found = [await store.outbox.get(record.job.id, now=clock.now()) for record in told]
    return [delivery for delivery in found if delivery is not None]


def _keys(records: Sequence[JobRecord], joined: dict[str, list[KeyOf]]) -> list[KeyOf]:
    keys: list[KeyOf] = []
    for record in records:
        job = record.job
        if job.idempotency_key is not None:
            keys.append(KeyOf(job.tenant, job.idempotency_key, job.id, job.body_hash))
        keys += joined.get(job.id, [])
    return keys


async def _rest(store: SqliteBroker) -> Rest:
    return Rest(await store.crons.marks(), await store.leaving.deadly(), await store.leaving.taps())


async def _whole(store: SqliteBroker, found: Moved) -> None:
    """Raise StoreBrokenError unless as many jobs and deliveries were seen as there are."""
    jobs, deliveries = await store.leaving.counts()
    if (jobs, deliveries) != (found.jobs.total(), found.deliveries):
        raise StoreBrokenError(
            f"the store holds {jobs} jobs and {deliveries} deliveries, and {found.jobs.total()} and"
            f" {found.deliveries} were found: nothing is put aside; `forebay serve` it and look"
        )


def _count(found: Moved, load: Load) -> None:
    found.jobs.update(record.standing.state.value for record in load.records)
    found.deliveries += len(load.deliveries)
    found.keys += len(load.keys)


def _count_rest(found: Moved, rest: Rest) -> None:
    found.crons, found.deadly, found.taps = len(rest.marks), len(rest.deadly), len(rest.taps)
