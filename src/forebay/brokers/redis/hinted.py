"""What a relay asks of this store: the secret of its hints, and which jobs are queued."""

from collections.abc import Sequence

from forebay.brokers.redis.store import Store
from forebay.brokers.redis.wire import Wire
from forebay.brokers.shared.bells import Bells
from forebay.brokers.shared.hinting import Hinting


def hinting(store: Store, bells: Bells, wire: Wire) -> Hinting:
    """Return what a relay in front of this store needs."""

    async def secret(fresh: bytes) -> bytes:
        return bytes(await store.read("secret", name="hints", fresh=fresh))

    async def queued(task: str, limit: int) -> list[str]:
        return [one.decode() for one in await store.read("queued", task=task, limit=limit)]

    async def still_queued(ids: Sequence[str]) -> set[str]:
        return {one.decode() for one in await store.read("still", ids=list(ids))}

    return Hinting(bells, wire.tell, secret=secret, queued=queued, still_queued=still_queued)
