"""Deliveries: the table of what callbacks are owed, and its synchronous verbs (SqlOutbox)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import apsw
import msgspec

from forebay.brokers.sqlite.ids import IdMint
from forebay.brokers.sqlite.journal import Journal
from forebay.core.outbox import OPEN, TRIES_KEPT, Delivery, DeliveryState, DeliveryStep, Try, endpoint_of

# Numbers in the file: never change one, add at the end.
_NUMBERS: Final[dict[DeliveryState, int]] = {
    DeliveryState.WAITING: 0,
    DeliveryState.SENDING: 1,
    DeliveryState.DELIVERED: 2,
    DeliveryState.GIVEN_UP: 3,
    DeliveryState.DISABLED: 4,
}
_STATES: Final = tuple(_NUMBERS)
_SENDING: Final = _NUMBERS[DeliveryState.SENDING]
_INSERT: Final = (
    "INSERT INTO deliveries(seq, endpoint, state, tries, tried_before, since, due_at)"
    " VALUES (?, ?, 0, 0, 0, ?, ?)"
)
_DUE: Final = (
    "SELECT due_at, seq FROM deliveries WHERE endpoint = ? AND due_at <= ? ORDER BY due_at, seq LIMIT ?"
)
_FIRST: Final = "SELECT min(due_at) FROM deliveries WHERE endpoint = ? AND due_at IS NOT NULL"
_CLAIM: Final = f"UPDATE deliveries SET state = {_SENDING}, tries = tries + 1, due_at = ? WHERE seq = ?"
_SELECT: Final = (
    "SELECT j.ms, j.callback_url, d.state, d.tries, d.since, d.due_at, d.tried_before, d.ended_at, d.log"
    " FROM deliveries d JOIN jobs j ON j.seq = d.seq WHERE d.seq = ?"
)
_decode_log = msgspec.msgpack.Decoder(tuple[Try, ...]).decode
_encode = msgspec.msgpack.Encoder().encode


class Deliveries:
    """The rows, and for each endpoint an instant before which none of its rows is due.

    The instants may be early, never late: so a rolled back transaction needs no exact way back.
    """

    def __init__(self, connection: apsw.Connection, journal: Journal, mint: IdMint) -> None:
        self._connection = connection
        self._journal = journal
        self._mint = mint
        self._earliest: dict[str, float] = {}
        self._any = False  # there may be rows: without callbacks a purge does not look
        self.fresh = False  # something new is owed; whoever tells of it sets it back

    def load(self, now: float) -> None:
        """Read what is open; what was being sent is due at `now`: the senders are gone with the process."""
        sql = f"UPDATE deliveries SET due_at = min(due_at, ?) WHERE state = {_SENDING}"
        self._connection.execute(sql, (now,))
        self._any = bool(self._rows("SELECT 1 FROM deliveries LIMIT 1"))
        sql = "SELECT endpoint, min(due_at) FROM deliveries WHERE due_at IS NOT NULL GROUP BY 1"
        self._earliest = dict(self._rows(sql))

    def owe(self, rows: Sequence[tuple[int, str, float]]) -> None:
        """Store deliveries of jobs that have just ended: (row of the job, URL, its end)."""
        values = [(seq, endpoint_of(url), at, at) for seq, url, at in rows]
        self._connection.executemany(_INSERT, values)
        for _, endpoint, at, _ in values:
            self._lower(endpoint, at)
        self._any = self.fresh = True

    def drop(self, seqs: Sequence[int]) -> None:
        """Forget the deliveries of purged jobs."""
        if self._any:
            self._connection.executemany("DELETE FROM deliveries WHERE seq = ?", [(seq,) for seq in seqs])

    def due_at(self) -> float | None:
        """Return an instant before which nothing is due."""
        return min(self._earliest.values(), default=None)

    def claim(
        self, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first."""
        due: list[tuple[float, int]] = []
        looked: list[str] = []
        for endpoint, earliest in self._earliest.items():
            room = rooms.get(endpoint, each_max)
            if earliest <= now and room > 0:
                looked.append(endpoint)
                due += [(at, seq) for at, seq in self._rows(_DUE, endpoint, now, room)]
        chosen = [seq for _, seq in sorted(due)[: max(0, limit)]]
        self._connection.executemany(_CLAIM, [(now + lease_s, seq) for seq in chosen])
        for endpoint in looked:
            ((first,),) = self._rows(_FIRST, endpoint)
            self._journal.undo_by(self._lower, endpoint, self._earliest[endpoint])
            if first is None:
                del self._earliest[endpoint]
            else:
                self._earliest[endpoint] = first
        return [row for seq in chosen if (row := self.read(seq)) is not None]

    def settle(self, step: DeliveryStep, seq: int) -> bool:
        """Store what became of a try when its claim is the newest."""
        rows = self._rows("SELECT state, tries, endpoint, log FROM deliveries WHERE seq = ?", seq)
        if not rows or rows[0][:2] != (_SENDING, step.tried.number):
            return False
        _, _, endpoint, log = rows[0]
        kept = _encode((*(() if log is None else _decode_log(log)), step.tried)[-TRIES_KEPT:])
        ended_at = None if step.state in OPEN else step.at
        self._connection.execute(
            "UPDATE deliveries SET state = ?, due_at = ?, ended_at = ?, log = ? WHERE seq = ?",
            (_NUMBERS[step.state], step.due_at, ended_at, kept, seq),
        )
        if step.due_at is not None:
            self._lower(endpoint, step.due_at)
        return True

    def read(self, seq: int) -> Delivery | None:
        """Return the delivery of a job's row, None when none is owed."""
        rows = self._rows(_SELECT, seq)
        if not rows:
            return None
        ms, url, state, tries, since, due_at, before, ended_at, log = rows[0]
        return Delivery(
            self._mint.text(ms, seq),
            url,
            _STATES[state],
            tries,
            since,
            due_at,
            before,
            ended_at,
            () if log is None else _decode_log(log),
        )

    def replay(self, seq: int, now: float) -> None:
        """Make a delivery that is not being sent due now, counting from anew."""
        sql = (
            "UPDATE deliveries SET state = 0, since = ?, due_at = ?, tried_before = tries, ended_at = NULL"
            f" WHERE seq = ? AND state <> {_SENDING} RETURNING endpoint"
        )
        for (endpoint,) in self._rows(sql, now, now, seq):
            self._lower(endpoint, now)
            self.fresh = True

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return cast("list[tuple[Any, ...]]", self._connection.execute(sql, values).fetchall())

    def _lower(self, endpoint: str, at: float) -> None:
        known = self._earliest.get(endpoint)
        if known is None or at < known:
            self._earliest[endpoint] = at


class SqlOutbox:
    """A core.outbox.OutboxBook over SQL. Each verb is one step of its book."""

    def __init__(
        self,
        rows: Deliveries,
        *,
        step: Callable[[], AbstractContextManager[Any]],
        tick: Callable[[float], float],
        seq_of: Callable[[str, float], int | None],
        mint: IdMint,
    ) -> None:
        self.rows = rows
        self._step = step
        self._tick = tick
        self._seq_of = seq_of  # of a job that is there and not past retention
        self._mint = mint

    def claim(
        self, *, limit: int, each_max: int, rooms: Mapping[str, int], lease_s: float, now: float
    ) -> list[Delivery]:
        """Claim due deliveries, earliest due first, of each endpoint no more than it has room for."""
        with self._step():
            return self.rows.claim(limit, each_max, rooms, lease_s, self._tick(now))

    def settle(self, steps: Sequence[DeliveryStep], *, now: float) -> list[bool]:
        """Store what became of tries whose claim is the newest; answer in order."""
        with self._step():
            self._tick(now)
            places = [self._mint.read(step.job_id) for step in steps]
            pairs = zip(steps, places, strict=True)
            return [place is not None and self.rows.settle(step, place[1]) for step, place in pairs]

    def get(self, job_id: str, *, now: float) -> Delivery | None:
        """Return the delivery of a job, or None."""
        seq = self._seq_of(job_id, self._tick(now))
        return None if seq is None else self.rows.read(seq)

    def replay(self, job_id: str, *, now: float) -> Delivery | None:
        """Make a delivery due now, counting from anew."""
        with self._step():
            now = self._tick(now)
            seq = self._seq_of(job_id, now)
            if seq is None:
                return None
            self.rows.replay(seq, now)
            return self.rows.read(seq)

    def due_at(self) -> float | None:
        """Return an instant before which nothing is due."""
        return self.rows.due_at()
