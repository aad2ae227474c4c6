"""Arriving: jobs of another engine enter as they stand, each once, however often the move is begun."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.redis.deadly import Deadly
from forebay.brokers.redis.outbox import NUMBERS as DELIVERY_NUMBERS
from forebay.brokers.redis.rows import flat, item_of
from forebay.brokers.redis.store import Tx
from forebay.brokers.shared.states import NUMBERS, key_bytes
from forebay.core.blobs import named
from forebay.core.job import JobRecord
from forebay.core.lifecycle import FINAL
from forebay.core.outbox import Delivery, endpoint_of
from forebay.errors import ConfigError
from forebay.packed import attempts_bytes, error_bytes
from forebay.ports.moving import KeyOf, Load, Rest, Stone

_ENCODE: Final = msgspec.msgpack.Encoder().encode


class RedisArriving:
    """A ports.moving.Arriving."""

    def __init__(self, write: Any, deadly: Deadly, name: str) -> None:
        self._write = write
        self._deadly = deadly
        self._name = name

    async def begin(self, origin: str) -> bool:
        """Say whether all of it is here already. Raises ConfigError when this is no place for it."""
        found = await self._run("begin", name=origin)
        if found == b"other":
            raise ConfigError(
                f"--to: the store {self._name!r} holds jobs of another store; name an empty one, ?name=NAME"
            )
        return bool(found == b"done")

    async def put(self, load: Load) -> int:
        """Store jobs that are not here yet, whole or not at all; return how many those were."""
        keys: dict[str, list[KeyOf]] = {}
        for key in load.keys:
            keys.setdefault(key.job_id, []).append(key)
        owed = {delivery.job_id: delivery for delivery in load.deliveries}
        items = [
            _item(record, keys.get(record.job.id, ()), owed.get(record.job.id)) for record in load.records
        ]
        return int(await self._run("arrive", items=items))

    async def bury(self, stones: Sequence[Stone]) -> None:
        """Remember removed jobs. Twice is harmless."""
        await self._run("bury", stones=list(stones))

    async def finish(self, origin: str, rest: Rest) -> None:
        """Store what belongs to no job, and that all of it is here."""
        changes = [(one.task, one.fingerprint, one) for one in rest.deadly]
        await self._run(
            "arrived",
            marks=[(mark.name, _ENCODE(mark._replace(job_id=None)), mark.job_id) for mark in rest.marks],
            changes=self._deadly.rows(changes),
            taps=[(tap.task, f"{int(tap.paused)}{int(tap.draining)}") for tap in rest.taps],
            secret=None if rest.former is None else rest.former.secret,
            upto=None if rest.former is None else str(rest.former.upto),
        )

    async def _run(self, verb: str, /, **terms: Any) -> Any:
        async def work(tx: Tx) -> Any:
            return await tx.run(verb, **terms)

        return await self._write(work, 0.0)


def _item(record: JobRecord, keys: Sequence[KeyOf], delivery: Delivery | None) -> dict[str, Any]:
    job, stands = record.job, record.standing
    job_id, fields, payload_blobs = item_of(job)
    more: list[tuple[bytes, Any]] = [
        (b"st", NUMBERS[stands.state]),
        (b"att", stands.attempt),
        (b"fence", stands.fence),
        (b"deaths", stands.deaths),
        (b"rel", stands.releases),
        (b"susp", stands.suspect),
        (b"asked", True if stands.cancel_requested else None),
        (b"ready", float(stands.ready_at)),  # in the place of when it was to run first
        (b"lu", stands.lease_until),
        (b"worker", stands.worker or None),
        (b"sa", stands.started_at),
        (b"fa", stands.finished_at),
        (b"out", stands.output),
        (b"err", error_bytes(stands.error)),
        (b"prog", stands.progress),
        (b"atts", attempts_bytes(stands.attempts)),
        (b"chk", stands.checkpoint),
        (b"deg", stands.degraded),
        (b"ca", stands.cancel_at),
        (b"as", record.redriven_as),
        (b"ed", record.edited),
    ]
    open_checkpoint = None if stands.state in FINAL else stands.checkpoint
    blobs = {"p": payload_blobs, **{
        where: list(named(text))
        for where, text in (("o", stands.output), ("e", record.edited), ("c", open_checkpoint))
    }}  # fmt: skip
    return {
        "id": job_id,
        "set": [*fields, *flat(more)],
        "keys": [(_ENCODE((key.tenant, key_bytes(key.key))), key.body_hash) for key in keys],
        "blobs": blobs,
        "delivery": None if delivery is None else _delivery(delivery),
    }


def _delivery(delivery: Delivery) -> dict[str, Any]:
    endpoint = endpoint_of(delivery.url)
    due_at = None if delivery.due_at is None else float(delivery.due_at)
    fields: list[tuple[bytes, Any]] = [
        (b"url", delivery.url),
        (b"ep", endpoint),
        (b"st", DELIVERY_NUMBERS[delivery.state]),
        (b"tries", delivery.tries),
        (b"since", float(delivery.since)),
        (b"due", due_at),
        (b"before", delivery.before),
        (b"ended", None if delivery.ended_at is None else float(delivery.ended_at)),
    ]
    return {
        "set": flat(fields),
        "ep": endpoint,
        "due": None if due_at is None else repr(due_at),
        "log": [_ENCODE(tried) for tried in delivery.log],
    }
