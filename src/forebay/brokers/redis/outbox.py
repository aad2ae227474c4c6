"""RedisOutbox: what callbacks are owed, stored with the ends that owe it; many senders share it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.redis.rows import number
from forebay.brokers.redis.store import Store, Tx
from forebay.core.outbox import OPEN, TRIES_KEPT, Delivery, DeliveryState, DeliveryStep, Try

_STATES: Final = tuple(DeliveryState)  # by their numbers, which are in stores; lib.lua knows 0 and 1
NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Try).decode


class RedisOutbox:
    """A ports.outbox.Outbox."""

    def __init__(
        self,
        write: Any,
        store: Store,
        knows: Callable[[str, float], Any],
        on_owed: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self._write = write
        self._store = store
        self._knows = knows
        self._on_owed = on_owed
        self._seen: float | None = None  # when the next one was due at the last look

    async def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first, of each endpoint no more than it has room for."""
        terms = {"limit": max(0, limit), "each": each_max, "rooms": dict(rooms), "lease": float(lease_s)}

        async def work(tx: Tx) -> list[Delivery]:
            return [_delivery_of(one) for one in await tx.run("claim", **terms)]

        found: list[Delivery] = await self._write(work, now)
        return found

    async def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of tries whose claim is the newest; answer in order."""
        asked = [
            {
                "id": step.job_id,
                "number": step.tried.number,
                "st": str(NUMBERS[step.state]),
                "tried": _ENCODE(step.tried),
                "due": None if step.due_at is None else repr(float(step.due_at)),
                "ended": None if step.state in OPEN else repr(float(step.at)),
            }
            for step in steps
        ]

        async def work(tx: Tx) -> list[bool]:
            return [bool(one) for one in await tx.run("delivered", steps=asked, kept=TRIES_KEPT)]

        done: list[bool] = await self._write(work, now) if steps else []
        return done

    async def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        if not await self._knows(job_id, now):
            return None
        found = await self._store.read("delivery", now, id=job_id)
        return None if found is None else _delivery_of(found)

    async def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew."""
        if not await self._knows(job_id, now):
            return None

        async def work(tx: Tx) -> Delivery | None:
            found = await tx.run("replay", id=job_id)
            return None if found is None else _delivery_of(found)

        row: Delivery | None = await self._write(work, now)
        return row

    def due_at(self) -> float | None:
        """Return an instant before which `claim` finds nothing, as last seen; by the caller's clock."""
        due_at = self._store.due_at
        return None if due_at is None else due_at + self._store.skew_s

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell; returns the way to remove it."""
        return self._on_owed(bell)

    def looked(self) -> bool:
        """Return whether something is due earlier than at the last look."""
        before, self._seen = self._seen, self._store.due_at
        return self._seen is not None and (before is None or self._seen < before)


def _delivery_of(found: Sequence[Any]) -> Delivery:
    url, _, state, tries, since, due, before, ended, log, job_id = found
    return Delivery(
        job_id.decode(),
        url.decode(),
        _STATES[int(state)],
        int(tries),
        float(since),
        number(due),
        int(before),
        number(ended),
        tuple(_DECODE(one) for one in log),
    )
