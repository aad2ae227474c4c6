"""Past: finds the jobs that are past their retention, without looking twice at those that are kept longer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import apsw

from forebay.brokers.sqlite.journal import Journal
from forebay.brokers.sqlite.rows import STATE_NUMBERS, Row
from forebay.core.lifecycle import State
from forebay.core.retention import Keeping, Retention

LOOKED_MAX: Final = 2_000  # rows of one walk in one transaction
SLACK_S: Final = 0.001  # sums and differences of times are rounded otherwise
_DEAD: Final = STATE_NUMBERS[State.DEAD]
# Written out, since the planner takes a partial index for a number it can see only.
_ENDED_OR_DEAD: Final = (f"r.state <> {_DEAD}", f"r.state = {_DEAD}")
Place = tuple[float, int]  # end and sequence of a job
_FINISHED_AT: Final = 8  # place in a row of results
_START: Final[Place] = (0.0, 0)


class Gone(NamedTuple):
    """A job that is past its retention, and since when."""

    gone_at: float
    seq: int
    place: Place
    walk: "Walk"


class Walk:
    """The jobs that share a retention: of one task, or of all tasks without one of their own, the dead
    letters or all the others; by their end. `place` is behind what was looked at.
    """

    def __init__(self, dead: bool, kept_s: float, task: str | None) -> None:
        self.where = _ENDED_OR_DEAD[dead]
        self.kept_s = kept_s
        self.task = task
        self.place: Place = _START


class Past:
    """The walks of one store."""

    def __init__(self, connection: apsw.Connection, keeping: Keeping, journal: Journal) -> None:
        self._connection = connection
        self._journal = journal
        self.keeping = keeping
        self.more = False  # the last search ended at a bound, not at the last that is past
        self._walks = self._walks_of(keeping)

    def set(self, by_task: Mapping[str, Retention]) -> None:
        """Give tasks their own retention; everything is looked at anew."""
        self.keeping.set(by_task)
        self._walks = self._walks_of(self.keeping)

    def find(self, now: float, limit: int, number_of: Callable[[str], int | None]) -> list[int]:
        """Return up to `limit` jobs that are past their retention, those longest past first; they are about
        to be removed. Looks at LOOKED_MAX rows of each walk at most: ask again while `more`."""
        self.more = False
        own = {number: name for name in self.keeping.by_task if (number := number_of(name)) is not None}
        found: list[Gone] = []
        for walk in self._walks:
            found += self._look(walk, now, limit, own)
        found.sort(key=lambda gone: gone[:2])
        if len(found) > limit:
            self.more = True
            left = found[limit:]
            for walk in {id(gone.walk): gone.walk for gone in left}.values():  # to be seen again
                first = min(gone.place for gone in left if gone.walk is walk)
                walk.place = min(walk.place, (first[0], first[1] - 1))
        return [gone.seq for gone in found[:limit]]

    def landed(self, results: Sequence[Row]) -> None:
        """Say that jobs ended at instants that may lie behind what was looked at: on a full disk a result
        waits long before it is stored. Costs nothing where all tasks share one retention."""
        if self.keeping.by_task:
            first = (min(row[_FINISHED_AT] for row in results), 0)
            for walk in self._walks:
                if first < walk.place:
                    self._journal.undo_by(setattr, walk, "place", walk.place)
                    walk.place = first

    def _look(self, walk: Walk, now: float, limit: int, own: Mapping[int, str]) -> list[Gone]:
        until, alone = now - walk.kept_s + SLACK_S, not self.keeping.by_task
        most = limit + 1 if alone else LOOKED_MAX
        sql = (
            "SELECT r.finished_at, r.seq, j.task FROM results r JOIN jobs j ON j.seq = r.seq"
            f" WHERE {walk.where} AND r.finished_at >= ?1 AND r.finished_at <= ?3"
            " AND (r.finished_at > ?1 OR r.seq > ?2) ORDER BY r.finished_at, r.seq LIMIT ?4"
        )
        at = _START if alone else walk.place
        rows = cast("list[tuple[Any, ...]]", self._connection.execute(sql, (*at, until, most)).fetchall())
        found = [
            Gone(end + walk.kept_s, seq, (end, seq), walk)
            for end, seq, task in rows
            if own.get(task) == walk.task and end + walk.kept_s <= now
        ]
        if not alone and rows:
            self.more = self.more or len(rows) == most
            kept = [(end, seq) for end, seq, _ in rows if end + walk.kept_s > now]
            self._journal.undo_by(setattr, walk, "place", walk.place)
            walk.place = (kept[0][0], kept[0][1] - 1) if kept else rows[-1][:2]
        return found

    @staticmethod
    def _walks_of(keeping: Keeping) -> list[Walk]:
        named: list[tuple[str | None, Retention]] = [(None, keeping.of_all), *keeping.by_task.items()]
        return [
            Walk(dead, retention.dead_s if dead else retention.ended_s, task)
            for task, retention in named
            for dead in (False, True)
        ]
