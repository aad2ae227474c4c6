"""Alone: a job that comes alone enters by one statement, running where somebody waits, and ends by one; so is
what a node asks for granted by one.

A transaction of several statements costs a way there and back for each of them: its beginning with the time,
what is looked for, what is granted, its end with the counts. Whatever is more than one plain job takes that
way.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from forebay.brokers.postgres.endings import Endings
from forebay.brokers.postgres.grants import Grants
from forebay.brokers.postgres.rows import insert_alone, insert_of
from forebay.brokers.postgres.schema import QUEUED, RUNNING
from forebay.brokers.postgres.store import Store
from forebay.brokers.shared.committer import Kind, Op
from forebay.brokers.shared.gauge import Gauge
from forebay.brokers.shared.news import News
from forebay.brokers.shared.states import NUMBERS, UUID
from forebay.core.blobs import named
from forebay.core.job import Job, Lease, Receipt, Transition, Verdict
from forebay.core.lifecycle import State

# Granted as it enters: the task is not paused, and nobody waits before it.
_FREE: Final = (
    f"SELECT (SELECT id FROM jobs WHERE task = %s AND state = {QUEUED}"
    " ORDER BY priority, tenant, ready_at, id LIMIT 1) IS NULL"  # the order of its index: see choosing.py
    " AND NOT coalesce((SELECT paused FROM taps WHERE task = %s), false)"
)
ENTERED_MAX: Final = 16  # jobs for others to run, or of others to run here, until it is seen what they did
Stored = tuple[list[Any], News]  # the answers of the first calls of a group, and what there is to tell


class Alone:
    """Stores groups of one job. None where that takes more than a statement: nothing is done then."""

    def __init__(
        self,
        store: Store,
        grants: Grants,
        endings: Endings,
        gauge: Gauge,
        *,
        look_soon: Callable[[], None],
    ) -> None:
        """`look_soon`: read the counts, which a transaction of several statements does as it ends."""
        self._look_soon = look_soon
        self._entered = 0  # since then
        self._store = store
        self._grants = grants
        self._endings = endings
        self._gauge = gauge

    async def take(self, group: Sequence[Op[Any]]) -> Stored | None:
        """Store the calls of a group, or the first of them."""
        first, *more = group
        if len(more) > 1 or (more and more[0].kind is not Kind.LEASE):
            return None
        if first.kind is Kind.LEASE and not more:
            return await self._lease(*first.terms, now=first.now)
        if len(first.items) != 1:
            return None
        if first.kind is Kind.COMMIT:  # what is leased in its place comes next, if it does
            return await self._end(first.items[0])
        if first.kind is not Kind.ENQUEUE or not _is_plain(first.items[0], first.now):
            return None
        if not more:
            return await self._enter(first.items[0])
        return await self._enter_running(first.items[0], *more[0].terms, now=first.now)

    async def _lease(
        self, task: str, limit: int, lease_s: float, worker: str, *, now: float
    ) -> Stored | None:
        found = await self._grants.lease_alone(
            self._store, task, limit=limit, lease_s=lease_s, worker=worker, now=now
        )
        if found is None:
            return None
        leases, queued = found
        news = News()
        news.looked.add(task)
        for lease in leases:
            self._counted(lease.job, QUEUED, -1)
            self._counted(lease.job, RUNNING, 1)
            news.changed(lease.job.id, task, State.RUNNING)
        self._gauge.left(task, queued)
        self._met(len(leases))
        return [leases], news

    def _met(self, others: int) -> None:
        """Look at the counts after so many jobs that others entered or end."""
        self._entered += others
        if self._entered >= ENTERED_MAX:
            self._entered = 0
            self._look_soon()

    async def _end(self, step: Transition) -> Stored | None:
        lease = self._grants.granted.of(step)
        if lease is None or lease.job.callback_url is not None:
            return None
        news = await self._endings.commit_alone(self._store, step)
        if news is None:
            return None
        self._counted(lease.job, RUNNING, -1)
        self._counted(lease.job, NUMBERS[step.state], 1)
        return [[True]], news

    async def _enter(self, job: Job) -> Stored | None:
        if not await self._store.one(*insert_of([(job, State.QUEUED)])):
            return None
        self._counted(job, QUEUED, 1)
        self._met(1)
        news = News()
        news.changed(job.id, job.task, State.QUEUED)
        return [[Receipt(Verdict.STORED, job.id, State.QUEUED)]], news

    async def _enter_running(
        self, job: Job, task: str, limit: int, lease_s: float, worker: str, *, now: float
    ) -> Stored | None:
        load = self._gauge.load(task)
        if task != job.task or limit < 1 or job.ordering_key is not None or self._grants.bounds(task):
            return None
        if load.queued > 1 or load.paused:  # this one counts already
            return None
        clock, at = self._store.clock(now)
        query, values = insert_alone(job, clock=clock, free=_FREE)
        rows = await self._store.one(query, [*at, task, task, *values, worker, lease_s])
        if not rows:
            return None
        ((state, started_at, until),) = rows
        self._counted(job, state, 1)
        news = News()
        news.changed(job.id, task, State.QUEUED)
        receipt = Receipt(Verdict.STORED, job.id, State.QUEUED)
        if state == QUEUED:  # somebody else was there before
            return [[receipt]], news
        skew_s = self._store.saw(started_at)
        lease = Lease(job, 1, 1, until + skew_s, worker, started_at + skew_s, job.run_at)
        self._grants.took(task, [lease])
        news.looked.add(task)
        news.changed(job.id, task, State.RUNNING)
        return [[receipt], [lease]], news

    def _counted(self, job: Job, state: int, sign: int) -> None:
        self._gauge.moved(job.task, job.tenant, state, sign, sign * job.size)


def _is_plain(job: Job, now: float) -> bool:
    """Say whether a job is new for sure, due, and nothing is stored with it."""
    unknown = job.idempotency_key is None and job.fingerprint is None and UUID.fullmatch(job.id) is not None
    return unknown and job.run_at <= now and not named(job.payload)
