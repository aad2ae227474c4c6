"""Reads: one statement each, outside of any transaction: records, listings, depths, places in line."""

from collections.abc import Sequence
from typing import Final, cast

from forebay.brokers.postgres.choosing import FIRST_SQL, HEAD_SQL
from forebay.brokers.postgres.grants import Grants
from forebay.brokers.postgres.intake import known_keys
from forebay.brokers.postgres.rows import Row, columns, record_of
from forebay.brokers.postgres.schema import (
    COUNTED_SQL,
    DEAD,
    NEWEST,
    QUEUED,
    RETRYING,
    RUNNING,
    SCHEDULED,
    STATE_SQL,
    WAITING_SQL,
)
from forebay.brokers.postgres.store import Store
from forebay.brokers.shared.states import FINAL_NUMBERS, NUMBERS, STATES, UUID
from forebay.core.fairness import ahead_among
from forebay.core.job import AGEING_S, Depth, Job, JobRecord, Line, Page, Query, Receipt
from forebay.core.lifecycle import State
from forebay.core.metadata import holds_all
from forebay.core.numbered_ids import Former
from forebay.core.retention import Keeping
from forebay.core.turns import TENANTS_RANKED_MAX, order_at

_GET: Final = f"SELECT {columns('j')} FROM jobs j WHERE j.id = %s::uuid"
_FIND: Final = (
    "WITH w AS MATERIALIZED (SELECT id, task, tenant, state, finished_at, metadata FROM jobs"
    " WHERE id < %s::uuid ORDER BY id DESC LIMIT %s)"
    " SELECT w.id::text, w.metadata, w.task, w.state, w.finished_at, (SELECT count(*) FROM w),"
    " (SELECT w2.id::text FROM w w2 ORDER BY w2.id LIMIT 1) FROM w"
    " WHERE (%s::text IS NULL OR w.task = %s) AND (%s::text IS NULL OR w.tenant = %s)"
    " AND (%s::int2[] IS NULL OR w.state = ANY(%s::int2[])) ORDER BY w.id DESC"
)
_WINDOW: Final = (
    "SELECT count(*), min(id::text) FROM (SELECT id FROM jobs WHERE id < %s::uuid"
    " ORDER BY id DESC LIMIT %s) AS w"
)
_RECORDS: Final = f"SELECT {columns('j')} FROM jobs j WHERE j.id = ANY(%s::uuid[])"
_COUNTS: Final = (
    "SELECT tenant, priority, state, sum(jobs)::int8, sum(bytes)::int8 FROM tallies WHERE task = %s"
    f" AND {COUNTED_SQL} GROUP BY 1, 2, 3 HAVING sum(jobs) > 0"
)
_TAPS: Final = "SELECT paused, draining FROM taps WHERE task = %s"
# Of each line the one that has been ready longest: of all that are queued, and of those that may go.
_OLDEST: Final = (
    "SELECT l.priority, (SELECT j.ready_at FROM jobs j WHERE j.task = %s AND j.priority = l.priority"
    f" AND j.tenant = l.tenant AND j.state = {QUEUED} ORDER BY j.ready_at, j.id LIMIT 1),"
    " (SELECT j.ready_at FROM jobs j WHERE j.task = %s AND j.priority = l.priority AND j.tenant = l.tenant"
    f" AND j.state = {QUEUED} AND {HEAD_SQL} ORDER BY j.ready_at, j.id LIMIT 1)"
    " FROM unnest(%s::int2[], %s::text[]) AS l(priority, tenant)"
)
_BEHIND: Final = (
    "SELECT j.priority, count(*) FROM jobs j WHERE j.task = %s AND j.ordering_key IS NOT NULL"
    f" AND j.finished_at IS NULL AND {STATE_SQL} = {QUEUED} AND NOT {HEAD_SQL} GROUP BY 1"
)
_TASKS: Final = (
    f"SELECT task FROM tallies WHERE {COUNTED_SQL} GROUP BY task HAVING sum(jobs) > 0"
    " UNION SELECT task FROM taps WHERE paused OR draining"
)
_LINE_COUNTS: Final = (
    "SELECT j.priority, j.tenant, count(*),"
    " count(*) FILTER (WHERE ({at} + j.priority * %s::float8, j.id) < (%s::float8, %s::uuid))"
    f" FROM jobs j WHERE j.task = %s AND j.state = {QUEUED} AND {HEAD_SQL} GROUP BY 1, 2"
)
# Of a long line: what comes before or behind one of its jobs, along the index and no further than a bound.
_SIDE: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.task = %s AND j.priority = %s AND j.tenant = %s"
    f" AND j.state = {QUEUED} AND (j.ready_at, j.id) {{side}} (%s::float8, %s::uuid)"
    " ORDER BY j.ready_at {way}, j.id {way} LIMIT %s) AS side"
)
_CHAIN_RANK: Final = (
    "SELECT count(*) FROM jobs WHERE task = %s AND tenant = %s AND ordering_key = %s"
    " AND ordering_key IS NOT NULL AND finished_at IS NULL AND id < %s::uuid"
)
_WAITS_FOR: Final = (
    "SELECT coalesce((SELECT r.id FROM jobs r WHERE r.task = j.task AND r.tenant = j.tenant"
    f" AND r.ordering_key = j.ordering_key AND r.ordering_key IS NOT NULL AND r.state = {RUNNING} LIMIT 1),"
    f" {FIRST_SQL})::text FROM jobs j"
    f" WHERE j.id = %s::uuid AND j.ordering_key IS NOT NULL AND {STATE_SQL} IN {WAITING_SQL}"
)
_PURGED: Final = "SELECT tenant FROM purged WHERE id = %s::uuid"
_FORMERS: Final = "SELECT secret, upto FROM origins WHERE secret IS NOT NULL"

COUNTED_MAX: Final = 20_000  # jobs of a queue that are counted for a place in line; past it it is an estimate


class Reads:
    """What readers ask. Never behind a write that was answered."""

    def __init__(self, store: Store, keeping: Keeping, grants: Grants) -> None:
        self._store = store
        self._keeping = keeping
        self._grants = grants

    async def get(self, job_id: str, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        if UUID.fullmatch(job_id) is None:
            return None
        rows = await self._store.read(_GET, [job_id])
        if not rows:
            return None
        record = record_of(rows[0])
        return record if self._is_kept(record, now) else None

    async def was_purged(self, job_id: str, tenant: str | None, now: float) -> bool:
        """Say whether the id was stored once, for this tenant, and is past retention."""
        if UUID.fullmatch(job_id) is None:
            return False
        rows = await self._store.read(_GET, [job_id])
        if rows:
            record = record_of(rows[0])
            return tenant in {None, record.job.tenant} and not self._is_kept(record, now)
        rows = await self._store.read(_PURGED, [job_id])
        if rows:
            return tenant in {None, rows[0][0]}
        return await self._was_removed(job_id, tenant)

    async def _was_removed(self, job_id: str, tenant: str | None) -> bool:
        """Say the same of a job that was removed from a store before that was moved here."""
        for secret, upto in await self._store.read(_FORMERS):
            former = Former(secret, upto)
            stone = former.stone_of(job_id, tenant or "")
            if stone is not None:
                return tenant is None or bool(await self._store.read(_PURGED, [stone]))
        return False

    def _is_kept(self, record: JobRecord, now: float) -> bool:
        stands = record.standing
        gone_at = self._keeping.gone_at(record.job.task, stands.state, stands.finished_at)
        return gone_at > self._store.seen_at(now)

    async def find(self, query: Query, now: float) -> Page:
        """List jobs newest first."""
        if query.after is not None and UUID.fullmatch(query.after) is None:
            return Page((), None)
        states = None if query.states is None else [NUMBERS[state] for state in query.states]
        window = [query.after or NEWEST, query.window_max]
        filters = [query.task, query.task, query.tenant, query.tenant, states, states]
        rows = await self._store.read(_FIND, [*window, *filters])
        found, more = self._chosen(rows, query, now)
        if not rows:
            ((looked, least),) = await self._store.read(_WINDOW, window)
        else:
            looked, least = rows[0][5], rows[0][6]
        records = (
            {row[0]: record_of(row) for row in await self._store.read(_RECORDS, [found])} if found else {}
        )
        kept = tuple(records[job_id] for job_id in found if job_id in records)
        if more:
            return Page(kept, found[-1])
        return Page(kept, least if looked >= query.window_max else None)

    def _chosen(self, rows: Sequence[Row], query: Query, now: float) -> tuple[list[str], bool]:
        """Return the ids of one page, and whether there are more in this window."""
        found: list[str] = []
        at = self._store.seen_at(now)
        number: int
        for job_id, metadata, task, number, finished_at, *_ in rows:
            if self._keeping.gone_at(task, STATES[number], finished_at) <= at:
                continue
            if not holds_all(metadata, query.metadata):
                continue
            if len(found) >= query.limit:
                return found, True
            found.append(job_id)
        return found, False

    async def depth(self, task: str) -> Depth:
        """Return how full one task's queue is."""
        counts = await self._store.read(_COUNTS, [task])
        taps = await self._store.read(_TAPS, [task])
        paused, draining = taps[0] if taps else (False, False)
        by_state = dict.fromkeys(range(len(STATES)), 0)
        size = 0
        lines: dict[tuple[int, str], int] = {}
        for tenant, priority, state, jobs, size_b in counts:
            by_state[state] += jobs
            if state not in FINAL_NUMBERS:
                size += size_b
            if state == QUEUED:
                lines[priority, tenant] = jobs
        oldest, shown = await self._lines(task, lines)
        return Depth(
            by_state[QUEUED],
            by_state[SCHEDULED],
            by_state[RETRYING],
            by_state[RUNNING],
            size,
            oldest,
            paused,
            by_state[DEAD],
            draining,
            shown,
        )

    async def _lines(
        self, task: str, lines: dict[tuple[int, str], int]
    ) -> tuple[float | None, tuple[Line, ...]]:
        if not lines:
            return None, ()
        names = [[priority for priority, _ in lines], [tenant for _, tenant in lines]]
        rows = await self._store.read(_OLDEST, [task, task, *names])
        behind = dict(cast("list[tuple[int, int]]", await self._store.read(_BEHIND, [task])))
        oldest = min((row[1] for row in rows if row[1] is not None), default=None)
        shown: list[Line] = []
        for priority in sorted({priority for priority, _ in lines}):
            firsts = [row[2] for row in rows if row[0] == priority and row[2] is not None]
            queued = sum(jobs for (at, _), jobs in lines.items() if at == priority) - behind.get(priority, 0)
            if firsts and queued > 0:
                shown.append(Line(priority, queued, min(firsts)))
        return oldest, tuple(shown)

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return sorted(row[0] for row in await self._store.read(_TASKS))

    async def position(self, job_id: str) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        if UUID.fullmatch(job_id) is None:
            return None
        rows = await self._store.read(_GET, [job_id])
        record = record_of(rows[0]) if rows else None
        if record is None or record.standing.state is not State.QUEUED:
            return None
        job, stands = record.job, record.standing
        lines = await self._queued_lines(job.task)
        if sum(lines.values()) > COUNTED_MAX:
            return 1 + await self._about_ahead(record, lines)
        order = self._grants.order(job.task)
        key = order_at(order, stands.ready_at, job.deadline_at) + job.priority * AGEING_S
        query = _LINE_COUNTS.format(at=self._grants.order_sql(job.task))
        counts = await self._store.read(query, [AGEING_S, key, job.id, job.task])
        ahead = self._ahead(record, counts)
        if job.ordering_key is not None:
            chain = [job.task, job.tenant, job.ordering_key.encode("utf-8", "surrogatepass"), job.id]
            ((rank,),) = await self._store.read(_CHAIN_RANK, chain)
            ahead = max(ahead, rank)
        return ahead + 1

    async def _queued_lines(self, task: str) -> dict[tuple[int, str], int]:
        rows = await self._store.read(_COUNTS, [task])
        return {(priority, tenant): jobs for tenant, priority, state, jobs, _ in rows if state == QUEUED}

    async def _about_ahead(self, record: JobRecord, lines: dict[tuple[int, str], int]) -> int:
        """Return about how many of a long queue go before a job, by arrival: near either end of its own line
        that part is counted, in between it is half the line."""
        job, own = record.job, lines.get((record.job.priority, record.job.tenant), 1)
        terms = [job.task, job.priority, job.tenant, record.standing.ready_at, job.id, COUNTED_MAX // 2]
        ((rank,),) = await self._store.read(_SIDE.format(side="<", way="DESC"), terms)
        if rank >= COUNTED_MAX // 2:
            ((behind,),) = await self._store.read(_SIDE.format(side=">", way="ASC"), terms)
            rank = own - 1 - behind if behind < COUNTED_MAX // 2 else own // 2
        others = sum(lines.values()) - own
        return int(rank) + min(others, int(rank) * (len(lines) - 1))

    def _ahead(self, record: JobRecord, counts: Sequence[Row]) -> int:
        job, weight = record.job, self._grants.shares.weight
        rank: int = sum(row[3] for row in counts if (row[0], row[1]) == (job.priority, job.tenant))
        if len(counts) > TENANTS_RANKED_MAX:
            others: int = sum(row[2] for row in counts if (row[0], row[1]) != (job.priority, job.tenant))
            return rank + min(others, rank * (len(counts) - 1))
        rivals = [
            (row[2], weight(row[1])) for row in counts if row[0] == job.priority and row[1] != job.tenant
        ]
        ahead: int = sum(row[3] for row in counts if row[0] != job.priority)
        return rank + ahead + ahead_among(rank, weight(job.tenant), rivals)

    async def waits_for(self, job_id: str) -> str | None:
        """Return the id of the earlier job of the same ordering key that a waiting job waits for, or None."""
        if UUID.fullmatch(job_id) is None:
            return None
        rows = await self._store.read(_WAITS_FOR, [job_id])
        return rows[0][0] if rows and rows[0][0] != job_id else None

    async def recall(self, jobs: Sequence[Job]) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose idempotency key is known, else None."""
        known = await known_keys(self._store.read, jobs)
        return [
            None
            if job.idempotency_key is None or (found := known.get((job.tenant, job.idempotency_key))) is None
            else found.receipt(job)
            for job in jobs
        ]

    async def held(self, blobs: Sequence[str]) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        rows = await self._store.read(
            "SELECT DISTINCT blob FROM links WHERE blob = ANY(%s::text[])", [list(blobs)]
        )
        known = {row[0] for row in rows}
        return [blob in known for blob in blobs]
