"""Arriving: jobs of another engine enter as they stand, each once, however often the move is begun."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.postgres.crons import PUT_MARK, mark_values
from forebay.brokers.postgres.deadly import PUT_DEADLY
from forebay.brokers.postgres.intake import LOCK, add_links, lock_numbers
from forebay.brokers.postgres.outbox import NUMBERS as DELIVERY_NUMBERS
from forebay.brokers.postgres.store import Tx
from forebay.brokers.shared.states import NUMBERS, key_bytes
from forebay.core.blobs import named
from forebay.core.job import JobRecord
from forebay.core.lifecycle import FINAL
from forebay.core.outbox import Delivery, endpoint_of
from forebay.errors import ConfigError
from forebay.packed import attempts_bytes, error_bytes
from forebay.ports.moving import Load, Rest, Stone

_COLUMNS: Final = (
    ("id", "uuid"), ("task", "text"), ("payload", "bytea"), ("created_at", "float8"), ("run_at", "float8"),
    ("priority", "int2"), ("attempts_max", "int4"), ("expires_at", "float8"), ("deadline_at", "float8"),
    ("tenant", "text"), ("idempotency_key", "bytea"), ("body_hash", "bytea"), ("metadata", "bytea"),
    ("redriven_from", "text"), ("version", "text"), ("ordering_key", "bytea"), ("callback_url", "text"),
    ("fingerprint", "bytea"), ("cache_s", "float8"), ("state", "int2"), ("attempt", "int4"),
    ("fence", "int8"), ("deaths", "int4"), ("releases", "int4"), ("suspect", "bool"),
    ("cancel_requested", "bool"), ("ready_at", "float8"), ("lease_until", "float8"), ("worker", "text"),
    ("started_at", "float8"), ("finished_at", "float8"), ("output", "bytea"), ("error", "bytea"),
    ("progress", "bytea"), ("attempts", "bytea"), ("checkpoint", "bytea"), ("degraded", "int2"),
    ("cancel_at", "float8"), ("redriven_as", "uuid"), ("edited", "bytea"), ("waits_until", "float8"),
    ("size", "int8"), ("marked", "bool"),
)  # fmt: skip
_INSERT: Final = (
    f"INSERT INTO jobs ({', '.join(name for name, _ in _COLUMNS)}) SELECT * FROM unnest("
    + ", ".join(f"%s::{kind}[]" for _, kind in _COLUMNS)
    + ")"
)
_KEYS: Final = (
    "INSERT INTO keys (tenant, key, job_id, body_hash)"
    " SELECT * FROM unnest(%s::text[], %s::bytea[], %s::uuid[], %s::bytea[]) ON CONFLICT DO NOTHING"
)
_DELIVERY: Final = (
    "INSERT INTO deliveries (job_id, url, endpoint, state, tries, since, due_at, before, ended_at, log)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_TAP: Final = (
    "INSERT INTO taps (task, paused, draining) VALUES (%s, %s, %s) ON CONFLICT (task) DO UPDATE"
    " SET paused = excluded.paused, draining = excluded.draining"
)
_HOLDS_ANY: Final = (
    "SELECT EXISTS (SELECT FROM jobs) OR EXISTS (SELECT FROM keys) OR EXISTS (SELECT FROM marks)"
    " OR EXISTS (SELECT FROM deadly)"
)
_BURY: Final = (
    "INSERT INTO purged SELECT id, tenant, coalesce(nullif(at, 0.0), extract(epoch FROM clock_timestamp()))"
    " FROM unnest(%s::uuid[], %s::text[], %s::float8[]) AS t(id, tenant, at) ON CONFLICT DO NOTHING"
)
_DONE: Final = (
    "UPDATE origins SET secret = %s, upto = %s, done_at = extract(epoch FROM clock_timestamp())"
    " WHERE name = %s"
)
_KNOWN: Final = "SELECT id::text FROM jobs WHERE id = ANY(%s::uuid[])"

_encode = msgspec.msgpack.Encoder().encode
Write = Callable[[Callable[[Tx], Awaitable[Any]], float], Awaitable[Any]]


class PostgresArriving:
    """A ports.moving.Arriving."""

    def __init__(self, write: Write, schema: str) -> None:
        self._write = write
        self._lock = lock_numbers(schema, "origin", [b""])
        self._schema = schema

    async def begin(self, origin: str) -> bool:
        """Say whether all of it is here already. Raises ConfigError when this is no place for it."""

        async def work(tx: Tx) -> bool:
            await tx.run(LOCK, [self._lock])
            found = await tx.rows("SELECT name, done_at FROM origins")
            for name, done_at in found:
                if name == origin:
                    return done_at is not None
            ((holds,),) = await tx.rows(_HOLDS_ANY)
            if found or holds:
                raise ConfigError(
                    f"--to: the schema {self._schema!r} holds jobs of another store; name an empty one,"
                    " ?schema=NAME"
                )
            await tx.run("INSERT INTO origins (name) VALUES (%s)", [origin])
            return False

        done: bool = await self._write(work, 0.0)
        return done

    async def put(self, load: Load) -> int:
        """Store jobs that are not here yet, whole or not at all; return how many those were."""

        async def work(tx: Tx) -> int:
            known = {row[0] for row in await tx.rows(_KNOWN, [[each.job.id for each in load.records]])}
            new = [record for record in load.records if record.job.id not in known]
            if not new:
                return 0
            await tx.run(_INSERT, [list(column) for column in zip(*map(_values, new), strict=True)])
            ids = {record.job.id for record in new}
            keys = [key for key in load.keys if key.job_id in ids]
            if keys:
                tenants, names, jobs, hashes = (list(one) for one in zip(*keys, strict=True))
                await tx.run(_KEYS, [tenants, [key_bytes(name) for name in names], jobs, hashes])
            await add_links(tx, [link for record in new for link in _links(record)])
            for delivery in load.deliveries:
                if delivery.job_id in ids:
                    await tx.run(_DELIVERY, _delivery(delivery))
            return len(new)

        count: int = await self._write(work, 0.0)
        return count

    async def bury(self, stones: Sequence[Stone]) -> None:
        """Remember removed jobs. Twice is harmless."""

        async def work(tx: Tx) -> None:
            await tx.run(_BURY, [list(column) for column in zip(*stones, strict=True)])

        await self._write(work, 0.0)

    async def finish(self, origin: str, rest: Rest) -> None:
        """Store what belongs to no job, and that all of it is here."""

        async def work(tx: Tx) -> None:
            for mark in rest.marks:
                await tx.run(PUT_MARK, mark_values(mark))
            for deadly in rest.deadly:
                await tx.run(PUT_DEADLY, list(deadly))
            for tap in rest.taps:
                await tx.run(_TAP, list(tap))
            await tx.run(_DONE, [*(rest.former or (None, None)), origin])
            tx.news.deadly = tx.news.owed = True

        await self._write(work, 0.0)


def _values(record: JobRecord) -> tuple[Any, ...]:
    job, stands = record.job, record.standing
    values = (
        *job[:10],
        key_bytes(job.idempotency_key),
        *job[11:15],
        key_bytes(job.ordering_key),
        *job[16:],
        NUMBERS[stands.state],
        *stands[1:13],
        error_bytes(stands.error),
        stands.progress,
        attempts_bytes(stands.attempts),
        stands.checkpoint,
        stands.degraded,
        stands.cancel_at,
        record.redriven_as,
        record.edited,
        job.waits_until,
        job.size,
        bool(named(stands.checkpoint)),
    )
    return tuple(
        float(value) if kind == "float8" and value is not None else value
        for value, (_, kind) in zip(values, _COLUMNS, strict=True)
    )


def _links(record: JobRecord) -> list[tuple[str, str, str]]:
    stands, job = record.standing, record.job
    held = [("p", job.payload), ("o", stands.output), ("e", record.edited)]
    if stands.state not in FINAL:
        held.append(("c", stands.checkpoint))
    return [(blob, job.id, place) for place, text in held for blob in named(text)]


def _delivery(delivery: Delivery) -> Sequence[Any]:
    return (
        delivery.job_id,
        delivery.url,
        endpoint_of(delivery.url),
        DELIVERY_NUMBERS[delivery.state],
        delivery.tries,
        delivery.since,
        delivery.due_at,
        delivery.before,
        delivery.ended_at,
        _encode(delivery.log) if delivery.log else None,
    )
