"""move, survey, give_up: what `forebay migrate` does."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from forebay.blobs.copying import copy_blobs
from forebay.blobs.opening import open_blobs
from forebay.core.job import JobRecord
from forebay.core.lifecycle import State
from forebay.errors import ConfigError, StoreBrokenError
from forebay.moving.places import Target, is_same, source_of, target_of
from forebay.moving.sources import Source, give_back
from forebay.ports.blobs import BlobStore
from forebay.ports.clock import Clock
from forebay.ports.moving import Load, Rest

EACH_MAX: Final = 200  # jobs of one transaction
EACH_BYTES_MAX: Final = 4 << 20  # of their payloads and outputs; one job may be larger by itself


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
    removed: int = 0  # of jobs that were removed, and whose tenant is still told so
    blobs: int = 0
    blobs_copied: int = 0
    blobs_in: str = ""  # where the bytes are that stayed
    before: bool = False  # all was there already


Told = Callable[[Moved], None]


async def survey(source: str, *, clock: Clock) -> Moved:
    """Count what there is to move; write nothing. Raises ForebayError with one line."""
    found = Moved()
    store = await source_of(source)(clock)
    try:
        async for load in _loads(store):
            _count(found, load)
        async for stones in store.stones():
            found.removed += len(stones)
        _count_rest(found, await store.rest())
        _count_blobs(found, store)
    finally:
        await store.close()
    return found


async def move(source: str, target: str, *, clock: Clock, told: Told, blobs: str | None = None) -> Moved:
    """Move everything, or what is left of it, and put the source aside. `told` hears after each group.

    `blobs`: a directory or an object store that blobs are copied to; they stay where they are, else.
    Raises ForebayError with one line; what was moved by then stays moved, and the next call goes on.
    """
    if is_same(source, target):
        raise ConfigError("--to: that is what --from names")
    opens = target_of(target)  # a URL that cannot be read is told before anything is opened
    opens_source = source_of(source)
    if blobs is not None and not source.startswith("sqlite:"):
        raise ConfigError("--blobs: those of a shared engine are not in it, and stay good where they are")
    bytes_to = None if blobs is None else open_blobs(blobs)
    found = Moved()
    store = await opens_source(clock)
    try:
        there = await opens(clock)
        try:
            await _into(store, there, found, clock, told, bytes_to)
        finally:
            await there.close()
        await store.put_aside()
    finally:
        await store.close()
    return found


async def give_up(source: str, *, clock: Clock) -> None:
    """Have a store take jobs again whose move was begun and not ended. Raises ForebayError with one line."""
    store = await source_of(source)(clock)
    try:
        await store.give_up()
    finally:
        await store.close()


async def _into(
    store: Source, there: Target, found: Moved, clock: Clock, told: Told, bytes_to: BlobStore | None
) -> None:
    origin = await store.begin()
    try:
        found.before = await there.arriving.begin(origin)
    except ConfigError:  # a wrong --to must not take away a store that is in use
        await store.turn_back()
        raise
    if found.before:
        return
    async for load in _loads(store):
        found.moved += await there.arriving.put(load)
        _count(found, load)
        told(found)
    await _whole(store, found)
    async for stones in store.stones():
        await there.arriving.bury(stones)
        found.removed += len(stones)
    if found.jobs[State.RUNNING.value]:
        await give_back(there, clock)
    if _count_blobs(found, store) and bytes_to is not None and store.blobs is not None:
        found.blobs_copied = await _copied(open_blobs(store.blobs), bytes_to)
        found.blobs_in = ""
    rest = await store.rest()
    await there.arriving.finish(origin, rest)
    _count_rest(found, rest)


async def _copied(source: BlobStore, target: BlobStore) -> int:
    """Copy blobs in a thread that ends with whoever waits for it."""
    ended = threading.Event()
    try:
        return await asyncio.to_thread(copy_blobs, source, target, ended.is_set)
    finally:
        ended.set()


async def _loads(store: Source) -> AsyncIterator[Load]:
    """Go through all jobs, with what belongs to each."""
    records: list[JobRecord] = []
    size_b = 0
    async for record in store.records():
        if records and (len(records) >= EACH_MAX or size_b + _size_b(record) > EACH_BYTES_MAX):
            yield await _load(store, records)
            records, size_b = [], 0
        records.append(record)
        size_b += _size_b(record)
    if records:
        yield await _load(store, records)


async def _load(store: Source, records: Sequence[JobRecord]) -> Load:
    return Load(records, await store.deliveries(records), await store.keys(records))


def _size_b(record: JobRecord) -> int:
    stands = record.standing
    held = (stands.output, stands.checkpoint, stands.progress, record.edited)
    return record.job.size + sum(len(text) for text in held if text is not None)


async def _whole(store: Source, found: Moved) -> None:
    """Raise StoreBrokenError unless as many jobs and deliveries were seen as there are."""
    jobs, deliveries = await store.counts()
    if jobs != found.jobs.total() or deliveries not in {None, found.deliveries}:
        raise StoreBrokenError(
            f"the store holds {jobs} jobs and {deliveries} deliveries, and {found.jobs.total()} and"
            f" {found.deliveries} were found: nothing is put aside; `forebay serve` it and look"
        )


def _count_blobs(found: Moved, store: Source) -> int:
    """Count the blobs that belong to a store, and say where they are."""
    if store.blobs is not None:
        found.blobs = sum(1 for _ in open_blobs(store.blobs).ids())
        found.blobs_in = store.blobs if found.blobs else ""
    return found.blobs


def _count(found: Moved, load: Load) -> None:
    found.jobs.update(record.standing.state.value for record in load.records)
    found.deliveries += len(load.deliveries)
    found.keys += len(load.keys)


def _count_rest(found: Moved, rest: Rest) -> None:
    found.crons, found.deadly, found.taps = len(rest.marks), len(rest.deadly), len(rest.taps)
