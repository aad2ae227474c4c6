"""Recovery: the index rebuilt from the tables, at opening and whenever memory may have gone astray."""

import math
from typing import Final

from forebay.brokers.sqlite.lane import CHUNK_JOBS, Lane
from forebay.brokers.sqlite.rows import (
    SELECT_RUNS,
    STATE_NUMBERS,
    held_lease_of,
    job_of,
    run_of,
)
from forebay.brokers.sqlite.shelf import Held, Shelf
from forebay.brokers.sqlite.task_queue import LaneKey, Spot
from forebay.core.lifecycle import State

_RUNNING = STATE_NUMBERS[State.RUNNING]
_SIZE = "length(j.payload) + length(j.metadata)"
_END = "min(coalesce(j.expires_at, 9e999), coalesce(j.deadline_at, 9e999))"
_WAITING: Final = (
    f"SELECT r.seq, j.task, r.state, r.ready_at, {_END}, {_SIZE},"
    " j.tenant, j.priority, j.deadline_at, j.ordering_key"
    f" FROM runs r JOIN jobs j ON j.seq = r.seq WHERE r.state <> {_RUNNING} ORDER BY r.seq"
)
# Jobs that were never touched: in the table of jobs and nowhere else.
_PRISTINE: Final = (
    f"SELECT j.seq, j.task, j.run_at, {_END}, {_SIZE}, j.tenant, j.priority, j.deadline_at, j.ordering_key"
    " FROM jobs j WHERE j.seq >= ?"
    " AND NOT EXISTS (SELECT 1 FROM results f WHERE f.seq = j.seq)"
    " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.seq = j.seq) ORDER BY j.seq"
)


def load(shelf: Shelf) -> None:
    """Fill an empty shelf from its tables. Jobs that were running become overdue at `shelf.now`: their
    holders died with the process that owned the store. Deliveries that were being sent are due at once.
    """
    _load_facts(shelf)
    with shelf.connection:
        shelf.connection.execute(
            f"UPDATE runs SET lease_until = min(lease_until, ?) WHERE state = {_RUNNING}", (shelf.now,)
        )
    _load_running(shelf)
    _load_waiting(shelf)
    _load_pristine(shelf)
    shelf.deliveries.load(shelf.now)
    shelf.deadly.load()
    shelf.journal.forget()


def _load_facts(shelf: Shelf) -> None:
    for number, name, paused, draining, jobs, dead in shelf.connection.execute(
        "SELECT number, name, paused, draining, jobs, dead FROM queues"
    ):
        queue = shelf.index.add_task(number, name)
        queue.paused, queue.draining, queue.jobs, queue.dead = bool(paused), bool(draining), jobs, dead
    shelf.has_blobs = shelf.row("SELECT 1 FROM blob_refs LIMIT 1") is not None
    shelf.purged_seq = int(shelf.meta("purged_seq", 0))
    shelf.tombstones.load(int(shelf.meta("tombstones", 0)))
    shelf.floor = int(shelf.meta("floor", 0))
    seq, ms = shelf.row("SELECT seq, ms FROM jobs ORDER BY seq DESC LIMIT 1") or (0, 0)
    shelf.stored_seq = seq
    shelf.mint.skip_to(max(seq, shelf.purged_seq) + 1, ms)


def _load_running(shelf: Shelf) -> None:
    held: list[Held] = []
    for row in shelf.connection.execute(SELECT_RUNS, (_RUNNING,)):
        queue, run = shelf.index.by_number[row[2]], run_of(row)
        assert run is not None
        job = job_of(row, shelf.mint.text(row[1], row[0]), queue.name)
        held.append(Held(row[0], queue, held_lease_of(job, run)))
        queue.running += 1
        queue.bytes += job.size
        if job.ordering_key is not None:
            shelf.index.enter_chain(queue, row[0], job.tenant, job.ordering_key)
            queue.granted(job, row[0])
        if job.tenant:
            shelf.index.holdings.change(job.tenant, 1, job.size)
    shelf.hold(held)


def _load_waiting(shelf: Shelf) -> None:
    index = shelf.index
    for seq, task, state, ready_at, end, size, *rest in shelf.connection.execute(_WAITING):
        queue = index.by_number[task]
        queue.bytes += size
        tenant, priority, deadline_at, key = rest
        if tenant:
            index.holdings.change(tenant, 1, size)
        index.enter_chain(queue, seq, tenant, key)
        if state == STATE_NUMBERS[State.QUEUED]:
            queue.queued += 1
            queue.place(Spot(seq, tenant, priority, ready_at, deadline_at, key))
            index.watch_end(seq, end)
            continue
        if state == STATE_NUMBERS[State.RETRYING]:
            queue.retrying += 1
        else:
            queue.scheduled += 1
        index.wait_later(seq, ready_at, end)
    shelf.journal.forget()


def _load_pristine(shelf: Shelf) -> None:
    # Rows of one lane enter it together, and stay in order among themselves.
    pools: dict[tuple[int, int, str], tuple[list[int], list[float], list[float]]] = {}
    for row in shelf.connection.execute(_PRISTINE, (shelf.floor,)):
        seq, task, run_at, end, size, tenant, priority, deadline_at, key = row
        if tenant:
            shelf.index.holdings.change(tenant, 1, size)
        if key is not None:
            queue = shelf.index.by_number[task]
            queue.queued += 1
            queue.bytes += size
            shelf.index.enter_chain(queue, seq, tenant, key)
            queue.place(Spot(seq, tenant, priority, run_at, deadline_at, key))
            shelf.index.watch_end(seq, end)
            continue
        pool = pools.get((task, priority, tenant))
        if pool is None:
            pool = pools[task, priority, tenant] = ([], [], [])
        pool[0].append(seq)
        pool[1].append(run_at)
        pool[2].append(end)
        shelf.index.by_number[task].bytes += size
        if len(pool[0]) == CHUNK_JOBS:
            _enter(shelf, task, (priority, tenant), *pools.pop((task, priority, tenant)))
    for (task, priority, tenant), pool in pools.items():
        _enter(shelf, task, (priority, tenant), *pool)


def _enter(
    shelf: Shelf, task: int, place: LaneKey, seqs: list[int], readies: list[float], ends: list[float]
) -> None:
    queue = shelf.index.by_number[task]
    queue.queued += len(seqs)
    lane = queue.lane(*place)
    assert isinstance(lane, Lane)  # the order of a task is said after the store was opened
    if lane.extend(seqs, readies, ends):
        return
    for seq, ready_at, end in zip(seqs, readies, ends, strict=True):
        if not lane.append(seq, ready_at, end) and end != math.inf:
            shelf.index.watch_end(seq, end)
