"""What a relay asks of this database: the secret of its hints, and which jobs are queued."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from forebay.brokers.postgres.schema import QUEUED, STATE_SQL
from forebay.brokers.postgres.store import Store
from forebay.brokers.postgres.wire import Wire
from forebay.brokers.shared.bells import Bells
from forebay.brokers.shared.hinting import Hinting
from forebay.errors import StoreBrokenError

_NAME: Final = "hints"
_KEEP: Final = (
    "WITH put AS (INSERT INTO secrets (name, secret) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
    " RETURNING secret) SELECT secret FROM put UNION ALL SELECT secret FROM secrets WHERE name = %s LIMIT 1"
)
_QUEUED: Final = (
    f"SELECT id FROM jobs WHERE task = %s AND state = {QUEUED}"
    " ORDER BY priority, tenant, ready_at, id LIMIT %s"
)
_STILL: Final = f"SELECT j.id FROM jobs j WHERE j.id = ANY(%s) AND {STATE_SQL} = {QUEUED}"
_TRIES_MAX: Final = 5  # of a secret that another process is just about to make


def hinting(store: Store, bells: Bells, wire: Wire) -> Hinting:
    """Return what a relay in front of this store needs."""

    async def secret(fresh: bytes) -> bytes:
        for _ in range(_TRIES_MAX):
            rows = await store.read(_KEEP, [_NAME, fresh, _NAME])
            if rows:
                return bytes(rows[0][0])
        raise StoreBrokenError("the secret of hints is neither there nor can it be made")

    async def queued(task: str, limit: int) -> list[str]:
        return [str(row[0]) for row in await store.read(_QUEUED, [task, limit])]

    async def still_queued(ids: Sequence[str]) -> set[str]:
        return {str(row[0]) for row in await store.read(_STILL, [[UUID(one) for one in ids]])}

    return Hinting(bells, wire.tell, secret=secret, queued=queued, still_queued=still_queued)
