"""Walks: the rows a listing looks at, newest first, a piece at a time: those of blocks, or in some states.

What a query asks of a row is asked in SQL, so that what does not match never becomes a row of Python's.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge, nlargest
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

from forebay.brokers.sqlite.rows import STATE_NUMBERS, Row
from forebay.brokers.sqlite.shelf import Shelf
from forebay.core.job import Query
from forebay.core.lifecycle import FINAL, State

_STATE: Final = "coalesce(f.state, r.state, 1)"
_ROW: Final = (
    f"SELECT j.seq, j.task, {_STATE}, f.finished_at, j.metadata"
    " FROM jobs j LEFT JOIN runs r ON r.seq = j.seq LEFT JOIN results f ON f.seq = j.seq"
)
_COUNT: Final = "SELECT count(*) FROM jobs WHERE seq >= ? AND seq < ?"
_RUNS: Final = "SELECT seq FROM runs WHERE seq < ? ORDER BY seq DESC LIMIT ?"
_SUCCEEDED: Final = STATE_NUMBERS[State.SUCCEEDED]


class Piece(NamedTuple):
    """Some neighbouring rows of a walk."""

    behind: int  # all are below this one
    rows: Iterable[Row]  # those that may match, newest first: row, task, state, end, metadata
    looked: Callable[[], int]  # how many rows it took to find them


class _Asked(NamedTuple):
    """What a query asks of a row, as SQL behind a condition."""

    sql: str
    values: tuple[Any, ...]


def pieces_of(shelf: Shelf, query: Query, below: int) -> Iterator[Piece]:
    """Return the rows below one that may match a query; whoever has seen enough of them stops.

    Rows that match no state of a query are left out where that is cheap: success is what nearly all jobs end
    in, so the others have an index, and what waits is in memory.
    """
    queue = None if query.task is None else shelf.index.by_name.get(query.task)
    if query.task is not None and queue is None:
        return iter(())
    number = None if queue is None else queue.number
    asked = _asked(query, number)
    if query.states is not None and State.SUCCEEDED not in query.states:
        return _by_state(shelf, query, query.states, asked, below)
    return _by_block(shelf, query, number, asked, below)


def _asked(query: Query, task: int | None) -> _Asked:
    terms: list[str] = []
    values: list[Any] = []
    if task is not None:
        terms.append("j.task = ?")
        values.append(task)
    if query.tenant is not None:
        terms.append("j.tenant = ?")
        values.append(query.tenant)
    for name, value in query.metadata:
        # Nearly all that do not match are told by a look at the bytes: without escapes a name, and a value
        # that can be no number or object, stand there as they are.
        values.append(name.encode())
        plain = "instr(j.metadata, ?)"
        if value[:1].isalpha():
            plain += " AND instr(j.metadata, ?)"
            values.append(value.encode())
        terms.append(f"({plain} OR instr(j.metadata, x'5c'))")
    if query.states is not None:
        terms.append(
            f"{_STATE} IN ({', '.join(str(STATE_NUMBERS[state]) for state in sorted(query.states))})"
        )
    return _Asked("".join(f" AND {term}" for term in terms), tuple(values))


def _by_block(shelf: Shelf, query: Query, task: int | None, asked: _Asked, below: int) -> Iterator[Piece]:
    sql = f"{_ROW} WHERE j.seq >= ? AND j.seq < ?{asked.sql} ORDER BY j.seq DESC"
    for first, behind in shelf.spans.blocks(task, query.tenant, below):
        rows = shelf.connection.execute(sql, (first, behind, *asked.values))
        yield Piece(behind, rows, partial(_count, shelf, first, behind))


def _count(shelf: Shelf, first: int, behind: int) -> int:
    row = shelf.row(_COUNT, first, behind)
    assert row is not None
    return int(row[0])


def _by_state(
    shelf: Shelf, query: Query, states: frozenset[State], asked: _Asked, below: int
) -> Iterator[Piece]:
    most = query.window_max + 1
    walks = [_ended(shelf, STATE_NUMBERS[state], below, most) for state in states & FINAL]
    if states & {State.SCHEDULED, State.RETRYING, State.RUNNING}:
        walks.append(seq for (seq,) in shelf.connection.execute(_RUNS, (below, most)))
    if State.QUEUED in states:
        walks += _queued(shelf, query, below, most)
    sql = f"{_ROW} WHERE j.seq = ?{asked.sql}"
    for seq, _ in groupby(islice(merge(*walks, reverse=True), 2 * most)):
        row = shelf.row(sql, seq, *asked.values)
        yield Piece(seq + 1, () if row is None else (row,), _one)


def _one() -> int:
    return 1


def _ended(shelf: Shelf, state: int, below: int, most: int) -> Iterator[int]:
    # Written out, since the planner takes the index for a number it can see only.
    sql = (
        f"SELECT seq FROM results WHERE state = {state} AND state <> {_SUCCEEDED} AND seq < ?"
        " ORDER BY seq DESC LIMIT ?"
    )
    for (seq,) in shelf.connection.execute(sql, (below, most)):
        yield seq


def _queued(shelf: Shelf, query: Query, below: int, most: int) -> list[Iterator[int]]:
    # Of those that stand in line all match but for their metadata; those that wait for an earlier job of
    # their key are of all tenants.
    in_line = most if query.metadata else query.limit + 1
    behind_key = in_line if query.tenant is None else most
    walks: list[Iterator[int]] = []
    for queue in shelf.index.by_number.values():
        if query.task is not None and queue.name != query.task:
            continue
        for (_, tenant), lane in queue.lanes.items():
            if query.tenant is None or query.tenant == tenant:
                walks.append(iter(lane.newest(below, in_line)))
        walks.append(iter(nlargest(behind_key, (seq for seq in queue.blocked.keys if seq < below))))
    return walks
