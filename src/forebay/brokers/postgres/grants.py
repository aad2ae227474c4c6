"""Grants: which jobs a lease gets, by the one rule of core.turns, and the rows that say so."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from forebay.brokers.postgres.intake import LOCK, lock_numbers
from forebay.brokers.postgres.rows import columns, lease_of
from forebay.brokers.postgres.schema import QUEUED, RUNNING, STATE_SQL
from forebay.brokers.postgres.store import Row, Tx
from forebay.brokers.shared.granted import Granted
from forebay.core.fairness import FairShare, Share, Shares
from forebay.core.job import AGEING_S, Lease
from forebay.core.lifecycle import State
from forebay.core.reserve import INTERACTIVE, Reserve
from forebay.core.turns import NO_DEADLINE_S, Order, Place, Turns

CANDIDATES_MAX: Final = 4_096  # jobs looked at for one lease, over all lines

# Of one ordering key only the head may go: what runs, else the least id.
HEAD_SQL: Final = (
    "(j.ordering_key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs o WHERE o.task = j.task"
    " AND o.tenant = j.tenant"
    " AND o.ordering_key = j.ordering_key AND o.ordering_key IS NOT NULL AND o.finished_at IS NULL"
    f" AND (o.state = {RUNNING} OR o.id < j.id) AND o.id <> j.id))"
)
# What a task has, before anything is locked.
_LINES: Final = (
    "SELECT coalesce((SELECT paused FROM taps WHERE task = %s), false),"
    " EXISTS (SELECT 1 FROM jobs WHERE task = %s AND ordering_key IS NOT NULL AND finished_at IS NULL),"
    " t.priority, t.tenant, t.state, sum(t.jobs)::int8 FROM tallies t WHERE t.task = %s"
    f" AND t.state IN ({QUEUED}, {RUNNING}) GROUP BY t.priority, t.tenant, t.state HAVING sum(t.jobs) > 0"
)
_AT: Final = {
    Order.ARRIVAL: "j.ready_at",
    Order.DEADLINE: f"coalesce(j.deadline_at, j.ready_at + {NO_DEADLINE_S})",
}
_CANDIDATES: Final = (
    "SELECT l.priority, l.tenant, c.at, c.id::text, c.ordering_key"
    " FROM unnest(%s::int2[], %s::text[]) AS l(priority, tenant) CROSS JOIN LATERAL ("
    "SELECT {at} AS at, j.id, j.ordering_key FROM jobs j"
    f" WHERE j.task = %s AND j.state = {QUEUED} AND j.priority = l.priority AND j.tenant = l.tenant"
    f" AND (j.waits_until IS NULL OR j.waits_until > %s) AND {HEAD_SQL}"
    " ORDER BY {at}, j.id LIMIT %s FOR UPDATE OF j SKIP LOCKED) AS c"
)
_STILL_HEADS: Final = f"SELECT j.id::text FROM jobs j WHERE j.id = ANY(%s::uuid[]) AND {HEAD_SQL}"
_SET: Final = (
    f"SET state = {RUNNING}, attempt = j.attempt + 1, fence = j.fence + 1, worker = %s, started_at = %s,"
    " lease_until = %s, progress = NULL"
)
_GRANT: Final = (
    f"UPDATE jobs j {_SET} WHERE j.id = ANY(%s::uuid[]) AND {STATE_SQL} = {QUEUED}"
    f" RETURNING {columns('j', output=False)}"
)
# The one line of nearly every task: chosen, locked and granted in one statement.
_GRANT_LINE: Final = (
    "WITH chosen AS (SELECT j.id FROM jobs j WHERE j.task = %s AND j.priority = %s AND j.tenant = %s"
    f" AND j.state = {QUEUED} AND (j.waits_until IS NULL OR j.waits_until > %s)"
    " ORDER BY {at}, j.id LIMIT %s FOR UPDATE SKIP LOCKED)"
    f" UPDATE jobs j {_SET} FROM chosen WHERE j.id = chosen.id RETURNING {columns('j', output=False)}"
)
_RUNNING_OF: Final = (
    "SELECT tenant, sum(jobs)::int8 FROM tallies"
    f" WHERE state = {RUNNING} AND tenant = ANY(%s::text[]) GROUP BY 1 HAVING sum(jobs) > 0"
)


class Candidates:
    """The jobs of one priority and tenant that a lease may take, in order."""

    __slots__ = ("_at", "keys")

    def __init__(self) -> None:
        self.keys: list[tuple[float, str]] = []
        self._at = 0

    def head(self, now: float) -> tuple[float, str] | None:
        """Return the first that was not taken."""
        return self.keys[self._at] if self._at < len(self.keys) else None

    def take(self) -> str:
        """Take the first."""
        self._at += 1
        return self.keys[self._at - 1][1]


class Grants:
    """Leases jobs, and keeps the accounts that say whose turn it is. The accounts are of this process."""

    def __init__(self, schema: str, waiting: Callable[[], set[str]]) -> None:
        self._schema = schema
        self._waiting = waiting  # tasks that have queued jobs
        self.shares = Shares()
        self._bounded: set[str] = set()
        self._fairs: dict[str, FairShare] = {}
        self._reserves: dict[str, Reserve] = {}
        self.orders: dict[str, Order] = {}
        self.granted = Granted()
        self._undo: list[Callable[[], object]] | None = None  # of the transaction that runs

    def set_shares(self, shares: dict[str, Share]) -> None:
        """Give tenants their shares. Raises ValueError for one that makes no sense."""
        self.shares.set(shares, ())
        self._bounded = {tenant for tenant, share in shares.items() if share.running_max is not None}

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task."""
        self._reserves.setdefault(task, Reserve()).set(others_max, ())

    def bounds(self, task: str) -> bool:
        """Say whether a lease of a task hangs on what others run."""
        reserve = self._reserves.get(task)
        return self.shares.bounded or (reserve is not None and reserve.others_max is not None)

    def took(self, task: str, leases: Sequence[Lease]) -> None:
        """Take in leases of a task of one line."""
        for lease in leases:
            self._fair(task).charge(lease.job.tenant, lease.job.id)
        self.granted.put(leases)

    def frees(self, task: str, tenant: str, priority: int) -> bool:
        """Say whether the end of a running job may let others go that were held back."""
        reserve = self._reserves.get(task)
        kept = reserve is not None and reserve.others_max is not None and priority > INTERACTIVE
        return kept or tenant in self._bounded

    def freed(self, task: str, tenant: str) -> set[str]:
        """Return the tasks of which a job may be granted now that this one runs no more."""
        return {task, *(self._waiting() if tenant in self._bounded else ())}

    def settled(self, tx: Tx, task: str, job_id: str, event: Any, service_s: float) -> None:
        """Take note that a job runs no more: what its tenant was charged with is corrected."""
        fair = self._fairs.get(task)
        if fair is not None:
            self._undo = tx.undo
            fair.settle(job_id, event, service_s)
            self._undo = None

    async def lease(self, tx: Tx, task: str, *, limit: int, lease_s: float, worker: str) -> list[Lease]:
        """Grant up to `limit` jobs of `task`."""
        if limit <= 0:
            return []
        reserve = self._reserves.get(task) or self._reserves.setdefault(task, Reserve())
        bounded = self.shares.bounded or reserve.others_max is not None
        if bounded:  # two servers must not both take the last place
            await tx.run(LOCK, [lock_numbers(self._schema, "bounds", [b""])])
        rows = await tx.rows(_LINES, [task, task, task])
        lines = [(row[2], row[3]) for row in rows if row[4] == QUEUED]
        if not lines or rows[0][0]:
            return []
        chained: bool = rows[0][1]
        terms = [worker, tx.now, tx.now + lease_s]
        fair = self._fair(task)
        self._undo = tx.undo
        try:
            if len(lines) == 1 and not chained and not bounded:
                leases = await self._lease_line(tx, task, lines[0], limit, terms)
                for lease in leases:
                    fair.charge(lease.job.tenant, lease.job.id)
            else:
                reserve.recount(_each((row[2], row[5]) for row in rows if row[4] == RUNNING))
                if self.shares.bounded:
                    self.shares.recount(_each(await tx.rows(_RUNNING_OF, [sorted(self._bounded)])))
                places = await self._places(tx, task, lines, limit)
                leases = await self._lease_turns(tx, Turns(fair, reserve, places, tx.now), limit, terms)
        finally:
            self._undo = None
        for lease in leases:
            tx.news.changed(lease.job.id, task, State.RUNNING)
        self.granted.put(leases)
        tx.undo.extend(functools.partial(self.granted.drop, lease.job.id) for lease in leases)
        return leases

    async def _lease_line(
        self, tx: Tx, task: str, line: tuple[int, str], limit: int, terms: list[Any]
    ) -> list[Lease]:
        query = _GRANT_LINE.format(at=_AT[self.order(task)])
        rows = await tx.rows(query, [task, *line, tx.now, limit, *terms])
        leases = [lease_of(row, skew_s=tx.skew_s) for row in rows]
        leases.sort(key=lambda lease: self._key(task, lease))
        return leases

    def _key(self, task: str, lease: Lease) -> tuple[float, str]:
        job = lease.job
        if self.order(task) is Order.ARRIVAL:
            return lease.ready_at, job.id
        return lease.ready_at + NO_DEADLINE_S if job.deadline_at is None else job.deadline_at, job.id

    async def _places(
        self, tx: Tx, task: str, lines: Sequence[tuple[int, str]], limit: int
    ) -> list[Place[Candidates]]:
        each = min(limit, max(1, CANDIDATES_MAX // len(lines)))
        query = _CANDIDATES.format(at=_AT[self.order(task)])
        found = await tx.rows(
            query, [[line[0] for line in lines], [line[1] for line in lines], task, tx.now, each]
        )
        found = await self._heads_alone(tx, task, found)
        by_line: dict[tuple[int, str], Candidates] = {}
        for priority, tenant, at, job_id, _ in found:
            line = by_line.setdefault((priority, tenant), Candidates())
            line.keys.append((at + priority * AGEING_S, job_id))
        for line in by_line.values():
            line.keys.sort()
        return [Place(priority, tenant, line) for (priority, tenant), line in by_line.items()]

    async def _heads_alone(self, tx: Tx, task: str, found: list[Row]) -> list[Row]:
        """Leave out what is the head of its ordering key no more, now that nobody else can take that one."""
        chained = [row for row in found if row[4] is not None]
        if not chained:
            return found
        names = [f"{task}\0{row[1]}\0".encode() + row[4] for row in chained]
        await tx.run(LOCK, [lock_numbers(self._schema, "chain", names)])
        heads = {row[0] for row in await tx.rows(_STILL_HEADS, [[row[3] for row in chained]])}
        return [row for row in found if row[4] is None or row[3] in heads]

    async def _lease_turns(
        self, tx: Tx, turns: Turns[Candidates], limit: int, terms: list[Any]
    ) -> list[Lease]:
        chosen: list[str] = []
        while len(chosen) < limit and (place := turns.next()) is not None:
            job_id = place.line.take()
            chosen.append(job_id)
            turns.granted(place, job_id)
        if not chosen:
            return []
        rows = await tx.rows(_GRANT, [*terms, chosen])
        leases = {row[0]: lease_of(row, skew_s=tx.skew_s) for row in rows}
        return [leases[job_id] for job_id in chosen]

    def order(self, task: str) -> Order:
        """Return what the order of a task goes by."""
        return self.orders.get(task, Order.ARRIVAL)

    def order_sql(self, task: str) -> str:
        """Return the expression that the order of a task's lines goes by."""
        return _AT[self.order(task)]

    def _fair(self, task: str) -> FairShare:
        fair = self._fairs.get(task)
        if fair is None:
            fair = self._fairs[task] = FairShare(self.shares, self._undo_by)
        return fair

    def _undo_by(self, step: Callable[..., object], *arguments: Any) -> None:
        if self._undo is not None:
            self._undo.append(lambda: step(*arguments))


def _each(counted: Any) -> Iterator[Any]:
    """Yield each key as often as it was counted."""
    for key, count in counted:
        for _ in range(count):
            yield key
