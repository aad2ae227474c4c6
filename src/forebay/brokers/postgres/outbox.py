"""PostgresOutbox: what callbacks are owed, stored with the ends that owe it; many senders share it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.postgres.store import Row, Store, Tx
from forebay.brokers.shared.states import UUID
from forebay.core.outbox import OPEN, TRIES_KEPT, Delivery, DeliveryState, DeliveryStep, Try, endpoint_of

_STATES: Final = tuple(DeliveryState)
NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}
_WAITING, _SENDING = NUMBERS[DeliveryState.WAITING], NUMBERS[DeliveryState.SENDING]
_COLUMNS: Final = "job_id::text, url, state, tries, since, due_at, before, ended_at, log"
_OWE: Final = (
    "INSERT INTO deliveries (job_id, url, endpoint, state, tries, since, due_at)"
    f" SELECT u.id, u.url, u.endpoint, {_WAITING}, 0, u.at, u.at"
    " FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::float8[]) AS u(id, url, endpoint, at)"
    " ON CONFLICT (job_id) DO UPDATE SET url = excluded.url, endpoint = excluded.endpoint,"
    " state = excluded.state, tries = 0, since = excluded.since, due_at = excluded.due_at, before = 0,"
    " ended_at = NULL, log = NULL"
)
_ENDPOINTS: Final = "SELECT DISTINCT endpoint FROM deliveries WHERE due_at IS NOT NULL AND due_at <= %s"
_CLAIM: Final = (
    "WITH due AS MATERIALIZED (SELECT d.job_id, d.due_at"
    " FROM unnest(%s::text[], %s::int4[]) AS e(endpoint, room)"
    " CROSS JOIN LATERAL (SELECT job_id, due_at FROM deliveries"
    " WHERE endpoint = e.endpoint AND due_at IS NOT NULL AND due_at <= %s ORDER BY due_at, job_id"
    " LIMIT e.room"
    " FOR UPDATE SKIP LOCKED) AS d ORDER BY d.due_at, d.job_id LIMIT %s)"
    f" UPDATE deliveries v SET state = {_SENDING}, tries = v.tries + 1, due_at = %s FROM due"
    f" WHERE v.job_id = due.job_id RETURNING due.due_at, v.{_COLUMNS.replace(', ', ', v.')}"
)
_LOCKED: Final = (
    f"SELECT {_COLUMNS} FROM deliveries WHERE job_id = ANY(%s::uuid[]) ORDER BY job_id FOR UPDATE"
)
_PUT: Final = (
    "UPDATE deliveries d SET state = u.state, since = u.since, due_at = u.due_at, before = u.before,"
    " ended_at = u.ended_at, log = u.log FROM unnest(%s::uuid[], %s::int2[], %s::float8[], %s::float8[],"
    " %s::int4[], %s::float8[], %s::bytea[]) AS u(id, state, since, due_at, before, ended_at, log)"
    " WHERE d.job_id = u.id"
)
SELECT_DUE: Final = "SELECT min(due_at) FROM deliveries WHERE due_at IS NOT NULL"

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Try, ...])


async def owe(tx: Tx, ended: Sequence[tuple[str, str, float]]) -> None:
    """Owe the deliveries of (job, url, end)."""
    if not ended:
        return
    endpoints = [endpoint_of(url) for _, url, _ in ended]
    ids, urls, ends = ([*one] for one in zip(*ended, strict=True))
    await tx.run(_OWE, [ids, urls, endpoints, ends])
    tx.news.owed = True


class PostgresOutbox:
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
        self._due_at: float | None = None  # by the database's clock

    async def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first, of each endpoint no more than it has room for."""

        async def work(tx: Tx) -> list[Delivery]:
            endpoints = [row[0] for row in await tx.rows(_ENDPOINTS, [tx.now])]
            room = [max(0, rooms.get(endpoint, each_max)) for endpoint in endpoints]
            claimed: list[Row] = []
            if endpoints and limit > 0:
                claimed = await tx.rows(_CLAIM, [endpoints, room, tx.now, limit, tx.now + lease_s])
            await self.look(tx)
            return [_delivery_of(row[1:]) for row in sorted(claimed, key=lambda row: (row[0], row[1]))]

        found: list[Delivery] = await self._write(work, now)
        return found

    async def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of tries whose claim is the newest; answer in order."""

        async def work(tx: Tx) -> list[bool]:
            ids = [step.job_id for step in steps if UUID.fullmatch(step.job_id) is not None]
            rows = {row[0]: _delivery_of(row) for row in await tx.rows(_LOCKED, [ids])}
            done = [_settled(rows, step) for step in steps]
            await _put(tx, list(rows.values()))
            await self.look(tx)
            return done

        done: list[bool] = await self._write(work, now)
        return done

    async def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        if not await self._knows(job_id, now):
            return None
        rows = await self._store.read(f"SELECT {_COLUMNS} FROM deliveries WHERE job_id = %s::uuid", [job_id])
        return _delivery_of(rows[0]) if rows else None

    async def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew."""
        if not await self._knows(job_id, now):
            return None

        async def work(tx: Tx) -> Delivery | None:
            rows = await tx.rows(_LOCKED, [[job_id]])
            if not rows:
                return None
            row = _delivery_of(rows[0])
            if row.state is DeliveryState.SENDING:
                return row
            row = row._replace(
                state=DeliveryState.WAITING, since=tx.now, due_at=tx.now, before=row.tries, ended_at=None
            )
            await _put(tx, [row])
            await self.look(tx)
            tx.news.owed = True
            return row

        found: Delivery | None = await self._write(work, now)
        return found

    def due_at(self) -> float | None:
        """Return an instant before which `claim` finds nothing, as last seen; by the caller's clock."""
        return None if self._due_at is None else self._due_at + self._store.skew_s

    def on_owed(self, bell: Callable[[], None]) -> Callable[[], None]:
        """Register a bell; returns the way to remove it."""
        return self._on_owed(bell)

    async def look(self, tx: Tx) -> None:
        """Know when the next one is due."""
        ((self._due_at,),) = await tx.rows(SELECT_DUE)

    def saw(self, due_at: float | None) -> bool:
        """Know when the next one is due; return whether that is earlier than was known."""
        before, self._due_at = self._due_at, due_at
        return due_at is not None and (before is None or due_at < before)


def _settled(rows: dict[str, Delivery], step: DeliveryStep) -> bool:
    row = rows.get(step.job_id)
    if row is None or row.state is not DeliveryState.SENDING or row.tries != step.tried.number:
        return False
    ended_at = None if step.state in OPEN else step.at
    log = (*row.log, step.tried)[-TRIES_KEPT:]
    rows[step.job_id] = row._replace(state=step.state, due_at=step.due_at, ended_at=ended_at, log=log)
    return True


async def _put(tx: Tx, rows: Sequence[Delivery]) -> None:
    if not rows:
        return
    values = [
        (
            row.job_id,
            NUMBERS[row.state],
            float(row.since),
            None if row.due_at is None else float(row.due_at),
            row.before,
            None if row.ended_at is None else float(row.ended_at),
            _ENCODER.encode(row.log) if row.log else None,
        )
        for row in rows
    ]
    await tx.run(_PUT, [list(one) for one in zip(*values, strict=True)])


def _delivery_of(row: Row) -> Delivery:
    job_id, url, state, tries, since, due_at, before, ended_at, log = row
    kept = () if log is None else _DECODER.decode(log)
    return Delivery(job_id, url, _STATES[state], tries, since, due_at, before, ended_at, kept)
