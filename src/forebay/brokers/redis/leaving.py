"""Leaving: what a store hands over when it is moved to another engine; from then on it takes nothing."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from forebay.brokers.redis.rows import record_of
from forebay.brokers.redis.store import Store, pairs
from forebay.brokers.shared.left import Seal, Sealing
from forebay.brokers.shared.states import key_of
from forebay.core.job import JobRecord
from forebay.core.numbered_ids import Former
from forebay.core.quarantine import DeadlyInput
from forebay.ports.clock import Clock
from forebay.ports.moving import KeyOf, Stone, Tap

STONES_EACH_MAX: Final = 5_000
_DEADLY: Final = msgspec.msgpack.Decoder(DeadlyInput).decode
_KEY: Final = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


class RedisLeaving:
    """A ports.moving.Leaving."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        address = store.connections.address
        self.sealing = Sealing(self, f"{address.label} (name {address.name})", clock)

    async def users(self) -> int:
        """Return how many processes are connected: those who listen for the store's bells."""
        channel = self._store.connections.address.channel
        return int((await self._store.ask("PUBSUB", "NUMSUB", channel))[1])

    async def seal(self, fresh: str) -> Seal:
        """Put the seal on under this name, or leave the one that is there; return what stands."""
        origin, left_at = await self._store.read("seal", fresh=fresh)
        return Seal(str(origin.decode()), left_at is not None)

    async def unseal(self) -> bool:
        """Take it off where there is one. Returns False when all was moved: then it stays."""
        return bool(await self._store.read("unseal"))

    async def page(self, after: str | None, limit: int) -> list[JobRecord]:
        """Return jobs with their outputs, newest first."""
        return [record_of(found) for found in await self._store.read("page", after=after, limit=limit)]

    async def keys(self, ids: Sequence[str]) -> list[KeyOf]:
        """Return every idempotency key that means one of these jobs."""
        keys: list[KeyOf] = []
        for name, job_id, body_hash in await self._store.read("keys", ids=list(ids)):
            tenant, key = _KEY(name)
            keys.append(KeyOf(tenant, key_of(key) or "", job_id.decode(), body_hash))
        return keys

    async def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        at = 0
        while found := await self._store.read("stones", at=at, limit=STONES_EACH_MAX):
            yield [Stone(job_id.decode(), tenant.decode(), float(gone)) for job_id, tenant, gone in found]
            at += len(found)

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs there are; nothing counts deliveries."""
        jobs, *_ = await self._store.read("rest")
        return int(jobs), None

    async def rest(self) -> tuple[list[DeadlyInput], list[Tap], Former | None]:
        """Return what belongs to no job."""
        _, deadly, taps, (secret, upto) = await self._store.read("rest")
        turned = [Tap(task.decode(), how[:1] == b"1", how[1:2] == b"1") for task, how in pairs(taps)]
        former = None if secret is None else Former(secret, int(upto))
        return (
            [_DEADLY(one) for one in deadly[1::2]],
            [tap for tap in turned if tap.paused or tap.draining],
            former,
        )

    async def put_aside(self) -> None:
        """Say for good that all of it was moved."""
        await self._store.read("aside")
