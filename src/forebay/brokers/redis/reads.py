"""Reads: jobs, listings, depths and places in line. Never behind a write that was answered."""

from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.redis.grants import LANES, Grants, lane_of
from forebay.brokers.redis.intake import receipt_of
from forebay.brokers.redis.rows import key_name, record_of
from forebay.brokers.redis.store import Store, line_of, pairs
from forebay.brokers.shared.states import FINAL_NUMBERS, NUMBERS, STATES, UUID
from forebay.core.fairness import ahead_among
from forebay.core.job import Depth, Job, JobRecord, Line, Page, Query, Receipt
from forebay.core.lifecycle import State
from forebay.core.metadata import holds_all
from forebay.core.numbered_ids import Former
from forebay.core.retention import Keeping
from forebay.core.turns import TENANTS_RANKED_MAX

LOOKED_EACH: Final = 1_000  # jobs of a listing that one script looks at: others wait meanwhile


class Reads:
    """What readers ask."""

    def __init__(self, store: Store, keeping: Keeping, grants: Grants) -> None:
        self._store = store
        self._keeping = keeping
        self._grants = grants

    async def records(self, ids: Sequence[str], now: float = 0.0) -> list[JobRecord | None]:
        """Return the records of jobs, past their retention or not, in order."""
        _, found = await self._store.read("get", now, ids=list(ids))
        return [record_of(one) if one else None for one in found]

    async def get(self, job_id: str, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        (record,) = await self.records([job_id], now)
        return record if record is not None and self._is_kept(record, now) else None

    async def was_purged(self, job_id: str, tenant: str | None, now: float) -> bool:
        """Say whether the id was stored once, for this tenant, and is past retention."""
        (record,) = await self.records([job_id], now)
        if record is not None:
            return tenant in {None, record.job.tenant} and not self._is_kept(record, now)
        found = await self._store.read("gone", now, id=job_id)
        if found is not None:
            return tenant in {None, found.decode()}
        return await self._was_removed(job_id, tenant, now)

    async def _was_removed(self, job_id: str, tenant: str | None, now: float) -> bool:
        """Say the same of a job that was removed from a store before that was moved here."""
        secret, upto = await self._store.read("former", now)
        stone = None if secret is None else Former(secret, int(upto)).stone_of(job_id, tenant or "")
        if stone is None:
            return False
        return tenant is None or await self._store.read("gone", now, id=stone) is not None

    def _is_kept(self, record: JobRecord, now: float) -> bool:
        stands = record.standing
        gone_at = self._keeping.gone_at(record.job.task, stands.state, stands.finished_at)
        return gone_at > self._store.seen_at(now)

    async def find(self, query: Query, now: float) -> Page:
        """List jobs newest first."""
        if query.after is not None and UUID.fullmatch(query.after) is None:
            return Page((), None)
        states = None if query.states is None else {str(NUMBERS[state]): True for state in query.states}
        terms = {"task": query.task, "tenant": query.tenant, "states": states, "meta": bool(query.metadata)}
        found: list[str] = []
        after, left = query.after, query.window_max
        while left > 0 and len(found) <= query.limit:
            look = min(left, LOOKED_EACH)
            looked, last, rows = await self._store.read("find", now, after=after, look=look, **terms)
            found += [job_id.decode() for job_id, metadata in rows if holds_all(metadata, query.metadata)]
            left -= looked
            if looked < look:
                after = None
                break
            after = last.decode()
        if len(found) > query.limit:
            found = found[: query.limit]
            after = found[-1] if found else query.after
        records = await self.records(found, now) if found else []
        return Page(tuple(one for one in records if one is not None), after)

    async def depth(self, task: str, now: float) -> Depth:
        """Return how full one task's queue is."""
        jobs, sizes, taps, oldest, lanes = await self._store.read("depth", now, task=task)
        by_state = dict.fromkeys(STATES, 0)
        for field, count in pairs(jobs):
            by_state[STATES[line_of(field)[1]]] += int(count)
        size = sum(int(value) for field, value in pairs(sizes) if line_of(field)[1] not in FINAL_NUMBERS)
        return Depth(
            by_state[State.QUEUED],
            by_state[State.SCHEDULED],
            by_state[State.RETRYING],
            by_state[State.RUNNING],
            size,
            None if oldest is None else float(oldest),
            taps[:1] == b"1",
            by_state[State.DEAD],
            taps[1:2] == b"1",
            _lines(lanes),
        )

    async def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        tasks, tapped = await self._store.read("tasks")
        return sorted({task.decode() for task in (*tasks, *tapped)})

    async def position(self, job_id: str, now: float) -> int | None:
        """Return the job's place in line, 1 is next; None when not queued."""
        orders = {task: LANES[order] for task, order in self._grants.orders.items()}
        answer = await self._store.read("position", now, id=job_id, orders=orders)
        if answer is None:
            return None
        priority, tenant, rank, lanes = answer
        ahead = self._ahead(
            int(priority), tenant.decode(), [(*lane_of(name), *more) for name, *more in lanes]
        )
        return max(ahead, int(rank)) + 1

    def _ahead(self, priority: int, tenant: str, lanes: Sequence[Any]) -> int:
        weight = self._grants.shares.weight
        rank: int = sum(ahead for at, whose, _, ahead in lanes if (at, whose) == (priority, tenant))
        if len(lanes) > TENANTS_RANKED_MAX:
            others: int = sum(jobs for at, whose, jobs, _ in lanes if (at, whose) != (priority, tenant))
            return rank + min(others, rank * (len(lanes) - 1))
        rivals = [(jobs, weight(whose)) for at, whose, jobs, _ in lanes if at == priority and whose != tenant]
        before: int = sum(ahead for at, _, _, ahead in lanes if at != priority)
        return rank + before + ahead_among(rank, weight(tenant), rivals)

    async def waits_for(self, job_id: str, now: float) -> str | None:
        """Return the id of the earlier job of the same ordering key that a waiting job waits for, or None."""
        head = await self._store.read("waits", now, id=job_id)
        return None if head is None or head.decode() == job_id else str(head.decode())

    async def recall(self, jobs: Sequence[Job], now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose idempotency key is known, else None."""
        keyed = [job for job in jobs if job.idempotency_key is not None]
        if not keyed:
            return [None] * len(jobs)
        found = iter(await self._store.read("recall", now, keys=[key_name(job) for job in keyed]))
        return [None if job.idempotency_key is None else _recalled(job, next(found)) for job in jobs]

    async def held(self, blobs: Sequence[str], now: float) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        if not blobs:
            return []
        return [bool(one) for one in await self._store.read("held", now, blobs=list(blobs))]


def _recalled(job: Job, known: Sequence[Any] | None) -> Receipt | None:
    if known is None:
        return None
    job_id, body_hash, state = known
    return receipt_of((b"r" if body_hash == job.body_hash else b"c", job_id, state))


def _lines(lanes: Sequence[Any]) -> tuple[Line, ...]:
    by_priority: dict[int, tuple[int, float]] = {}
    for name, jobs, oldest in lanes:
        priority, _ = lane_of(name)
        before, at = by_priority.get(priority, (0, float(oldest)))
        by_priority[priority] = (before + int(jobs), min(at, float(oldest)))
    return tuple(Line(priority, *by_priority[priority]) for priority in sorted(by_priority))
