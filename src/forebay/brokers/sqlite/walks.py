"""Walks: the rows a listing looks at, newest first: all, those of some blocks, or those in some states."""

from collections.abc import Iterator
from heapq import merge
from itertools import groupby, islice
from typing import Final

from forebay.brokers.sqlite.rows import STATE_NUMBERS, Row
from forebay.brokers.sqlite.shelf import Shelf
from forebay.core.job import Query
from forebay.core.lifecycle import FINAL, State

_ROW: Final = (
    "SELECT j.seq, j.ms, j.task, j.tenant, coalesce(f.state, r.state, 1), f.finished_at, j.metadata"
    " FROM jobs j LEFT JOIN runs r ON r.seq = j.seq LEFT JOIN results f ON f.seq = j.seq"
)
_ALL: Final = f"{_ROW} WHERE j.seq < ? ORDER BY j.seq DESC LIMIT ?"
_BLOCK: Final = f"{_ROW} WHERE j.seq >= ? AND j.seq < ? ORDER BY j.seq DESC"
_ONE: Final = f"{_ROW} WHERE j.seq = ?"
_RUNS: Final = "SELECT seq FROM runs WHERE seq < ? ORDER BY seq DESC LIMIT ?"
_SUCCEEDED: Final = STATE_NUMBERS[State.SUCCEEDED]


def rows_of(shelf: Shelf, query: Query, below: int) -> Iterator[Row]:
    """Return the rows below one that may match a query. Ends behind `query.window_max` rows at the earliest.

    Rows that match no state of a query are left out where that is cheap: success is what nearly all jobs end
    in, so the others have an index, and what waits is in memory.
    """
    if query.states is not None and State.SUCCEEDED not in query.states:
        return _by_state(shelf, query, query.states, below)
    if query.task is None and query.tenant is None:
        return iter(shelf.connection.execute(_ALL, (below, query.window_max + 1)))
    queue = None if query.task is None else shelf.index.by_name.get(query.task)
    if query.task is not None and queue is None:
        return iter(())
    return _by_block(shelf, None if queue is None else queue.number, query.tenant, below)


def _by_block(shelf: Shelf, task: int | None, tenant: str | None, below: int) -> Iterator[Row]:
    for first, behind in shelf.spans.blocks(task, tenant, below):
        yield from shelf.connection.execute(_BLOCK, (first, behind))


def _by_state(shelf: Shelf, query: Query, states: frozenset[State], below: int) -> Iterator[Row]:
    most = query.window_max + 1
    walks = [_ended(shelf, STATE_NUMBERS[state], below, most) for state in states & FINAL]
    if states & {State.SCHEDULED, State.RETRYING, State.RUNNING}:
        walks.append(seq for (seq,) in shelf.connection.execute(_RUNS, (below, most)))
    if State.QUEUED in states:
        walks += _queued(shelf, query, below, most)
    for seq, _ in groupby(islice(merge(*walks, reverse=True), 2 * most)):
        row = shelf.row(_ONE, seq)
        if row is not None:
            yield row


def _ended(shelf: Shelf, state: int, below: int, most: int) -> Iterator[int]:
    # Written out, since the planner takes the index for a number it can see only.
    sql = (
        f"SELECT seq FROM results WHERE state = {state} AND state <> {_SUCCEEDED} AND seq < ?"
        " ORDER BY seq DESC LIMIT ?"
    )
    for (seq,) in shelf.connection.execute(sql, (below, most)):
        yield seq


def _queued(shelf: Shelf, query: Query, below: int, most: int) -> list[Iterator[int]]:
    walks: list[Iterator[int]] = []
    for queue in shelf.index.by_number.values():
        if query.task is not None and queue.name != query.task:
            continue
        for (_, tenant), lane in queue.lanes.items():
            if query.tenant is None or query.tenant == tenant:
                walks.append(iter(lane.newest(below, most)))
        walks.append(iter(sorted((seq for seq in queue.blocked.keys if seq < below), reverse=True)[:most]))
    return walks
