"""RedisBroker: the verbs of a Broker on Redis or Valkey, each put where it is done."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from forebay.brokers.redis.address import Address
from forebay.brokers.redis.arriving import RedisArriving
from forebay.brokers.redis.changes import Changes
from forebay.brokers.redis.connections import Connections
from forebay.brokers.redis.crons import RedisCrons
from forebay.brokers.redis.deadly import Deadly, RedisQuarantine
from forebay.brokers.redis.endings import Endings
from forebay.brokers.redis.gauge import CountsGauge
from forebay.brokers.redis.grants import Grants
from forebay.brokers.redis.hinted import hinting
from forebay.brokers.redis.intake import enqueue
from forebay.brokers.redis.leaving import RedisLeaving
from forebay.brokers.redis.nodes import RedisNodes
from forebay.brokers.redis.opening import prepare
from forebay.brokers.redis.outbox import RedisOutbox
from forebay.brokers.redis.reads import Reads
from forebay.brokers.redis.store import Store, Tx
from forebay.brokers.redis.together import Together
from forebay.brokers.redis.upkeep import Upkeep
from forebay.brokers.redis.wire import Wire
from forebay.brokers.shared.bells import Bells
from forebay.brokers.shared.committer import Committer, Kind, Op
from forebay.brokers.shared.ids import IdMint
from forebay.brokers.shared.news import News
from forebay.core.fairness import Share
from forebay.core.job import (
    Amendment,
    AmendVerdict,
    CancelVerdict,
    Claim,
    Depth,
    Hold,
    Job,
    JobRecord,
    Lease,
    Page,
    Query,
    Receipt,
    Sweep,
    Transition,
)
from forebay.core.retention import Keeping, Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order
from forebay.errors import StoreUnavailableError
from forebay.ports.broker import Capabilities, Doorbell, Listener, Load
from forebay.ports.clock import Clock
from forebay.ports.hinted import Source

T = TypeVar("T")


class RedisBroker:
    """A ports.broker.Broker. Any number of processes may open one store; each of them is equal.

    Not promised: an exact order between jobs that two processes lease at the same instant; equal shares of
    tenants over several processes (each keeps its own accounts); that `load_now` knows what others did
    during the last second; that what was answered is there after a failover to a replica.
    """

    SERVED: ClassVar = Capabilities(durable=True, own_clock=True, shared=True)  # on a server that syncs

    def __init__(
        self, address: Address, *, clock: Clock, kept: Retention, given_time: bool, stands_at: float | None
    ) -> None:
        self.address = address
        self._connections = Connections(address, clock)
        self._gauge = CountsGauge()
        self._keeping = Keeping(kept)
        self._store = Store(
            self._connections,
            clock,
            self._keeping,
            given_time=given_time,
            stands_at=stands_at,
            on_counts=self._gauge.changed,
        )
        self._grants = Grants(self._gauge.waiting)
        self._deadly = Deadly()
        self._endings = Endings(self._grants, self._deadly)
        self._changes = Changes(self._deadly, self._gauge)
        self._reads = Reads(self._store, self._keeping, self._grants)
        self._bells = Bells()
        together = Together(self._store, self._grants)
        self._committer = Committer(
            self._store, self._merged, self._tell, mixed=False, one_step=together.take, joined=True
        )
        self._mint = IdMint(secrets.token_bytes)
        self.outbox = RedisOutbox(self._write, self._store, self._knows, self._bells.on_owed)
        self.crons = RedisCrons(self._write, self._store)
        self.quarantine = RedisQuarantine(self._deadly, self._write, self._store.seen_at)
        self.nodes = RedisNodes(self._store)
        self.arriving = RedisArriving(self._write, self._deadly, address.name)
        self.leaving = RedisLeaving(self._store, clock)
        self._wire = Wire(self._connections, self._heard)
        self.hinted = hinting(self._store, self._bells, self._wire)
        self._upkeep = Upkeep(self._committer, self._gauge, self._deadly, self.outbox, self._bells.tell)
        self._closed = False
        self.capabilities = replace(self.SERVED, own_clock=not given_time)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        retention_s: float = 86_400.0,
        dead_s: float | None = None,
        given_time: bool = False,
        stands_at: float | None = None,
        leaving: bool = False,
        arriving: bool = False,
    ) -> "RedisBroker":
        """Open a store, begun when there is none.

        `given_time`: honour `now` instead of the server's clock; `stands_at`: take that clock to stand there;
        both for checks alone. `leaving`: only to move it elsewhere; nobody hears of us. `arriving`: only to
        move others there. Raises ConfigError for a URL that cannot be read, StoreUnavailableError and
        StoreVersionError for a server that cannot be used, each with one line.
        """
        kept = Retention(retention_s, retention_s if dead_s is None else dead_s)
        broker = cls(Address.of(url), clock=clock, kept=kept, given_time=given_time, stands_at=stands_at)
        try:
            lost = await prepare(broker._connections, leaving=leaving, arriving=arriving)
            broker.capabilities = replace(broker.capabilities, durable=not lost, lost=lost)
            await broker._upkeep.look()
        except BaseException:
            await broker._connections.close()
            raise
        if not leaving:
            broker._wire.start()
            broker._upkeep.start()
        return broker

    def new_id(self, now: float) -> str:
        """Return an id for one new job."""
        return self._mint.new(now)

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> Awaitable[list[Receipt]]:
        """Store each job once, durably; answer in order. Who waits for work here is rung at once, so that the
        lease it asks for goes with them."""
        jobs = list(jobs)
        op: Op[list[Receipt]] = Op(Kind.ENQUEUE, now, jobs, size_b=sum(job.size for job in jobs))
        future = self._committer.put(op)
        self._gauge.comes(jobs, 1)
        future.add_done_callback(lambda _: self._gauge.comes(jobs, -1))
        self._bells.coming({job.task for job in jobs if job.run_at <= now})
        return future

    def lease(
        self, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> Awaitable[list[Lease]]:
        """Grant up to `limit` ready jobs, most urgent first."""
        return self._committer.put(Op(Kind.LEASE, now, terms=(task, limit, lease_s, worker)))

    async def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose idempotency key is known, else None."""
        return await self._reader.recall(jobs, now)

    async def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        return await asyncio.shield(self._committer.put(Op(Kind.EXTEND, now, list(claims), terms=lease_s)))

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        """Apply transitions whose fence is current, durably; answer in order."""
        size_b = sum(len(step.output or b"") for step in transitions)
        return self._committer.put(Op(Kind.COMMIT, now, list(transitions), size_b=size_b))

    async def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs, ask the holders of running ones; answer in order."""
        return await self._write(lambda tx: self._endings.cancel(tx, ids), now)

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides and return overdue leases."""
        return await self._write(lambda tx: self._endings.sweep(tx, limit=limit), now)

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        return await self._reader.get(job_id, now)

    async def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was stored once, for this tenant, and is past retention; False of those purged a
        week ago."""
        return await self._reader.was_purged(job_id, tenant, now)

    async def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first."""
        return await self._reader.find(query, now)

    async def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is."""
        return await self._reader.depth(task, now)

    def depth_now(self, task: str, *, now: float) -> Depth | None:
        """Return None: which job is the oldest is asked of the server."""
        return None

    def load_now(self, task: str, *, now: float) -> Load | None:
        """Return how much a task holds: exact for what this process does, at most about a second old for what
        others do."""
        return self._gauge.load(task)

    def holding_now(self, tenant: str, *, now: float) -> Held | None:
        """Return what a tenant holds; as fresh as `load_now`."""
        return self._gauge.held(tenant)

    def place_now(self, job: Job, *, now: float) -> int | None:
        """Return None: only the server can tell."""
        return None

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        return await self._reader.tasks()

    async def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        return await self._reader.position(job_id, now)

    async def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task, durably."""
        await self._write(lambda tx: self._changes.tap(tx, task, "paused", to=paused), now)

    async def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away, durably."""
        await self._write(lambda tx: self._changes.tap(tx, task, "draining", to=draining), now)

    async def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the earlier job of the same ordering key that a waiting job waits for, or None."""
        return await self._reader.waits_for(job_id, now)

    async def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task, durably."""
        return await self._write(lambda tx: self._changes.amend(tx, job_id, change), now)

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds. Raises ValueError for a share that makes no sense."""
        self._grants.set_shares(dict(shares))
        self._ring(self._gauge.waiting())

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all."""
        self._keeping.set(by_task)

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task: at most so many others of it run at once."""
        self._grants.set_reserve(task, others_max)
        self._ring({task})

    async def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority."""
        self._grants.orders[task] = order

    async def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or those past retention."""
        return await self._write(lambda tx: self._changes.purge(tx, ids, limit), now)

    async def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        return await self._reader.held(blobs, now)

    async def scrub(self) -> None:
        """Have the server write its files anew, without what was removed. Its snapshots elsewhere and its
        replicas are the operator's. Raises StoreUnavailableError where the server may not be told to."""
        await self._store.rewrite()

    async def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload for the redrive of a dead job; False when there is no such dead job."""
        return await self._write(lambda tx: self._changes.edit(tx, job_id, payload), now)

    async def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        return await self._write(lambda tx: self._changes.redrive(tx, job_id, job, now), now)

    def on_work(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a doorbell; returns the way to remove it."""
        return self._bells.on_work(doorbell)

    def on_cancel(self, doorbell: Doorbell) -> Callable[[], None]:
        """Register a bell for cancels of running jobs; returns the way to remove it."""
        return self._bells.on_cancel(doorbell)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Register a listener of durable changes, here and elsewhere; returns the way to remove it."""
        return self._bells.on_change(listener)

    async def close(self) -> None:
        """Finish what was begun and let go of everything. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        await self._upkeep.close()
        await self._committer.close()
        await self._wire.close()
        self._bells.clear()
        await self._connections.close()

    async def abandon(self) -> None:
        """Cut every connection as it is and finish nothing: what `kill -9` does, seen from the server."""
        self._closed = True
        await self._upkeep.close()
        await self._wire.close()
        await self._committer.abandon()
        self._bells.clear()
        await self._connections.close()

    async def _merged(self, tx: Tx, kind: Kind, items: Sequence[Any], terms: Any, now: float) -> list[Any]:
        if kind is Kind.ENQUEUE:
            return list(await enqueue(tx, items, now))
        if kind is Kind.EXTEND:
            return list(await self._endings.extend(tx, items, lease_s=terms))
        if kind is Kind.COMMIT:
            return list(await self._endings.commit(tx, items))
        task, limit, lease_s, worker = terms
        return list(await self._grants.lease(tx, task, limit=limit, lease_s=lease_s, worker=worker))

    async def _write(self, work: Callable[[Tx], Awaitable[T]], now: float) -> T:
        return await self._committer.alone(work, now)

    async def _knows(self, job_id: str, now: float) -> bool:
        return await self.get(job_id, now=now) is not None

    @property
    def _reader(self) -> Reads:
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        return self._reads

    def _tell(self, news: News) -> None:
        """Tell what this process made durable, here and elsewhere."""
        self._bells.tell(news)
        self._wire.tell(news)

    def _heard(self, news: News) -> None:
        """Take in what another process tells."""
        if news.deadly or news.owed:
            self._upkeep.look_soon()
        self._bells.tell(news, Source.NOBODYS if news.nobodys else Source.OTHERS)

    def _ring(self, tasks: set[str]) -> None:
        news = News()
        news.ready(tasks)
        with contextlib.suppress(RuntimeError):  # before a loop runs there is nobody to ring for
            self._bells.tell(news)
