"""Grants: which jobs a lease gets, by the one rule of core.turns, and the rows that say so."""

import functools
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from typing import Any, Final

from forebay.brokers.postgres.choosing import (
    AMONG_SQL,
    AT,
    CANDIDATES,
    GRANT,
    GRANT_ALONE,
    GRANT_LINE,
    HEAD_SQL,
    HEADS,
    LINES,
    RUNNING_OF,
    STILL_HEADS,
    TRY_LOCK,
)
from forebay.brokers.postgres.intake import LOCK, lock_numbers
from forebay.brokers.postgres.rows import lease_of
from forebay.brokers.postgres.schema import QUEUED, RUNNING
from forebay.brokers.postgres.store import Row, Store, Tx
from forebay.brokers.shared.granted import Granted
from forebay.core.fairness import FairShare, Share, Shares
from forebay.core.job import AGEING_S, Lease
from forebay.core.lifecycle import State
from forebay.core.reserve import INTERACTIVE, Reserve
from forebay.core.turns import NO_DEADLINE_S, Order, Place, Turns

CANDIDATES_MAX: Final = 4_096  # jobs looked at for one lease, over all lines, and lines
HEADS_MAX: Final = 256  # chains of which the heads are looked for one by one
LONG_MIN: Final = 1_000  # queued jobs of a task, from which on that is worth it
ROUNDS_MAX: Final = 5  # of one lease that others were ahead of


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
        self._winding: set[str] = set()  # tasks with several lines or chains, as the newest lease of each saw

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

    async def lease_alone(
        self, store: Store, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> tuple[list[Lease], int] | None:
        """Grant up to `limit` jobs of a task of one line in one statement; return them, and how many more are
        queued. None: that takes more than a statement, or could not be done, and nothing is done."""
        if limit <= 0 or task in self._winding or self.bounds(task):
            return None
        clock, at = store.clock(now)
        query = GRANT_ALONE.format(clock=clock, at=self.order_sql(task))
        rows = await store.one(query, [*at, task, task, task, task, limit, worker, float(lease_s)])
        if not rows:
            return None
        most, seen_at, queued = rows[0][:3]
        skew_s = store.saw(seen_at)
        if most < 0:
            self._winding.add(task)
            return None
        leases = [lease_of(row[3:], skew_s=skew_s) for row in rows if row[3] is not None]
        leases.sort(key=lambda lease: self._key(task, lease))
        self.took(task, leases)
        return leases, max(0, (queued or 0) - len(leases))

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
        leases: list[Lease] = []
        missed: list[str] = []  # what others take at this moment
        terms = [worker, tx.now, tx.now + lease_s]
        self._undo = tx.undo
        try:
            for _ in range(ROUNDS_MAX):
                before = len(missed)
                if len(leases) < limit:
                    leases += await self._round(tx, task, limit - len(leases), terms, missed)
                if len(missed) == before:
                    break
        finally:
            self._undo = None
        for lease in leases:
            tx.news.changed(lease.job.id, task, State.RUNNING)
        self.granted.put(leases)
        tx.undo.extend(functools.partial(self.granted.drop, lease.job.id) for lease in leases)
        return leases

    async def _round(self, tx: Tx, task: str, limit: int, terms: list[Any], missed: list[str]) -> list[Lease]:
        reserve = self._reserves.get(task) or self._reserves.setdefault(task, Reserve())
        bounded = self.bounds(task)
        if bounded:  # two servers must not both take the last place
            await tx.run(LOCK, [lock_numbers(self._schema, "bounds", [b""])])
        rows = await tx.rows(LINES, [task, task, task])
        lines = [(row[2], row[3]) for row in rows if row[4] == QUEUED]
        chained: bool = bool(rows) and rows[0][1]
        (self._winding.add if chained or len(lines) > 1 else self._winding.discard)(task)
        if not lines or rows[0][0]:
            return []
        fair = self._fair(task)
        if len(lines) == 1 and not chained and not bounded:
            leases = await self._lease_line(tx, task, lines[0], limit, terms)
            for lease in leases:
                fair.charge(lease.job.tenant, lease.job.id)
            return leases
        if len(lines) > CANDIDATES_MAX:  # the others have their turn when these had more
            lines = nsmallest(CANDIDATES_MAX, lines, key=lambda line: fair.spent(line[1]))
        reserve.recount(_each((row[2], row[5]) for row in rows if row[4] == RUNNING))
        if self.shares.bounded:
            self.shares.recount(_each(await tx.rows(RUNNING_OF, [sorted(self._bounded)])))
        long = chained and sum(row[5] for row in rows if row[4] == QUEUED) > LONG_MIN
        found = await self._found(tx, task, lines, limit, missed, long=long)
        turns = Turns(fair, reserve, _places(found), tx.now)
        return await self._grant(tx, task, found, self._chosen(turns, limit), terms, missed)

    async def _lease_line(
        self, tx: Tx, task: str, line: tuple[int, str], limit: int, terms: list[Any]
    ) -> list[Lease]:
        query = GRANT_LINE.format(at=AT[self.order(task)])
        rows = await tx.rows(query, [task, *line, tx.now, limit, *terms])
        leases = [lease_of(row, skew_s=tx.skew_s) for row in rows]
        leases.sort(key=lambda lease: self._key(task, lease))
        return leases

    def _key(self, task: str, lease: Lease) -> tuple[float, str]:
        job = lease.job
        if self.order(task) is Order.ARRIVAL:
            return lease.ready_at, job.id
        return lease.ready_at + NO_DEADLINE_S if job.deadline_at is None else job.deadline_at, job.id

    async def _found(
        self,
        tx: Tx,
        task: str,
        lines: Sequence[tuple[int, str]],
        limit: int,
        missed: list[str],
        *,
        long: bool,
    ) -> list[Row]:
        """Return what a lease may take: priority, tenant, time of the order, id, ordering key."""
        each = min(limit, max(1, CANDIDATES_MAX // len(lines)))
        names = [[line[0] for line in lines], [line[1] for line in lines]]
        heads = await tx.rows(HEADS, [task, HEADS_MAX]) if long else []
        # Of few chains the heads are known before: of a long one each job would be asked for its own.
        few = 0 < len(heads) < HEADS_MAX
        among = [[job_id for job_id, goes in heads if goes]] if few else []
        query = CANDIDATES.format(at=AT[self.order(task)], head=AMONG_SQL if few else HEAD_SQL)
        return await tx.rows(query, [*names, task, tx.now, missed, *among, each])

    def _chosen(self, turns: Turns[Candidates], limit: int) -> list[str]:
        """Return whose turns they are. They are charged for when they are granted."""
        kept, self._undo = self._undo, []
        chosen: list[str] = []
        while len(chosen) < limit and (place := turns.next()) is not None:
            job_id = place.line.take()
            chosen.append(job_id)
            turns.granted(place, job_id)
        for step in reversed(self._undo):
            step()
        self._undo = kept
        return chosen

    async def _grant(
        self, tx: Tx, task: str, found: list[Row], chosen: list[str], terms: list[Any], missed: list[str]
    ) -> list[Lease]:
        """Grant what was chosen, as far as nobody else does at this moment."""
        chains = {row[3]: f"{task}\0{row[1]}\0".encode() + row[4] for row in found if row[4] is not None}
        chained = {job_id: chains[job_id] for job_id in chosen if job_id in chains}
        heads: set[str] = await self._heads(tx, chained) if chained else set()
        free = [job_id for job_id in chosen if job_id not in chained or job_id in heads]
        rows = await tx.rows(GRANT, [free, task, *terms]) if free else []
        leases = {row[0]: lease_of(row, skew_s=tx.skew_s) for row in rows}
        missed += [job_id for job_id in chosen if job_id not in leases]
        granted = [leases[job_id] for job_id in chosen if job_id in leases]
        for lease in granted:
            self._fair(task).charge(lease.job.tenant, lease.job.id)
        return granted

    async def _heads(self, tx: Tx, chained: dict[str, bytes]) -> set[str]:
        """Return which of these are the heads of their ordering keys, now that nobody else can take them."""
        numbers = {job_id: lock_numbers(self._schema, "chain", [name])[0] for job_id, name in chained.items()}
        ours = {row[0] for row in await tx.rows(TRY_LOCK, [sorted(set(numbers.values()))])}
        free = [job_id for job_id, number in numbers.items() if number in ours]
        return {row[0] for row in await tx.rows(STILL_HEADS, [free])} if free else set()

    def order(self, task: str) -> Order:
        """Return what the order of a task goes by."""
        return self.orders.get(task, Order.ARRIVAL)

    def order_sql(self, task: str) -> str:
        """Return the expression that the order of a task's lines goes by."""
        return AT[self.order(task)]

    def _fair(self, task: str) -> FairShare:
        fair = self._fairs.get(task)
        if fair is None:
            fair = self._fairs[task] = FairShare(self.shares, self._undo_by)
        return fair

    def _undo_by(self, step: Callable[..., object], *arguments: Any) -> None:
        if self._undo is not None:
            self._undo.append(lambda: step(*arguments))


def _places(found: Sequence[Row]) -> list[Place[Candidates]]:
    """Return the lines of what was found."""
    by_line: dict[tuple[int, str], Candidates] = {}
    for priority, tenant, at, job_id, _ in found:
        line = by_line.setdefault((priority, tenant), Candidates())
        line.keys.append((at + priority * AGEING_S, job_id))
    for line in by_line.values():
        line.keys.sort()
    return [Place(priority, tenant, line) for (priority, tenant), line in by_line.items()]


def _each(counted: Any) -> Iterator[Any]:
    """Yield each key as often as it was counted."""
    for key, count in counted:
        for _ in range(count):
            yield key
