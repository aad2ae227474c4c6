"""Reads: get, find, position: what never changes anything."""

import json
from collections.abc import Sequence

from forebay.brokers.sqlite.rows import STATES, Row
from forebay.brokers.sqlite.shelf import Shelf
from forebay.brokers.sqlite.walks import rows_of
from forebay.core.job import JobRecord, Page, Query
from forebay.core.lifecycle import WAITING, State
from forebay.errors import InvalidError

_HELD = "SELECT 1 FROM blob_refs WHERE blob = ? LIMIT 1"


class Reads:
    """The verbs of readers; each sees what the connection sees and leaves no transaction open."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def get(self, job_id: str, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        found = self._shelf.find_visible(job_id, now)
        return None if found is None else found.record

    def visible_seq(self, job_id: str, now: float) -> int | None:
        """Return the row of a job that is not past its retention."""
        found = self._shelf.find_visible(job_id, now)
        return None if found is None else found.seq

    def was_purged(self, job_id: str, tenant: str | None, now: float) -> bool:
        """Say whether the id was given out once and is past retention, and was one of the tenant."""
        place = self._shelf.mint.read(job_id)
        if place is None:
            return False
        found = self._shelf.find_id(job_id)
        if found is not None:
            return self._shelf.is_past(found.record, now) and tenant in (None, found.record.job.tenant)
        if place[1] > self._shelf.purged_seq:
            return False
        return tenant is None or self._shelf.tombstones.knows(place[1], job_id, tenant)

    def find(self, query: Query, now: float) -> Page:
        """List jobs newest first."""
        below = self._shelf.mint.seq
        if query.after is not None:
            place = self._shelf.mint.read(query.after)
            if place is None:
                raise InvalidError(f"after {query.after[:60]!r} is not the id of a job of this store")
            below = place[1]
        seqs: list[int] = []
        last: Row | None = None
        next_after: str | None = None
        for looked, row in enumerate(rows_of(self._shelf, query, below)):
            if len(seqs) >= query.limit or looked >= query.window_max:
                next_after = None if last is None else self._shelf.mint.text(last[1], last[0])
                break  # the cursor is reset when it is dropped: nothing stays open
            last = row
            if self._matches(row, query, now):
                seqs.append(row[0])
        found = [one.record for seq in seqs if (one := self._shelf.find_seq(seq)) is not None]
        return Page(tuple(found), next_after)

    def _matches(self, row: Row, query: Query, now: float) -> bool:
        _, _, task, tenant, state, finished_at, metadata = row
        name = self._shelf.index.by_number[task].name
        kept = self._shelf.past.keeping
        if finished_at is not None and kept.gone_at(name, STATES[int(state)], finished_at) <= now:
            return False
        if query.task is not None and name != query.task:
            return False
        if query.states is not None and STATES[state] not in query.states:
            return False
        if query.tenant is not None and tenant != query.tenant:
            return False
        return not query.metadata or _holds(metadata, query.metadata)

    def held(self, blobs: Sequence[str]) -> list[bool]:
        """Say of each blob whether a stored job names it."""
        return [self._shelf.row(_HELD, blob) is not None for blob in blobs]

    def position(self, job_id: str) -> int | None:
        """Return the job's place in line; None when not queued."""
        found = self._shelf.find_id(job_id)
        if found is None or found.record.standing.state is not State.QUEUED:
            return None
        queue = self._shelf.index.by_number[found.task]
        return 1 + queue.ahead_of(found.seq, found.record.job, found.record.standing.ready_at)

    def waits_for(self, job_id: str) -> str | None:
        """Return the id of the job of the same ordering key that this one waits for."""
        found = self._shelf.find_id(job_id)
        if found is None or found.record.standing.state not in WAITING:
            return None
        job = found.record.job
        if job.ordering_key is None:
            return None
        head = self._shelf.index.chains.head((job.task, job.tenant, job.ordering_key))
        if head is None or head == found.seq:
            return None
        row = self._shelf.row("SELECT ms FROM jobs WHERE seq = ?", head)
        return None if row is None else self._shelf.mint.text(row[0], head)


def _holds(metadata: bytes, wanted: tuple[tuple[str, str], ...]) -> bool:
    if not metadata:
        return False
    # Nearly all that do not match are told by a look at the bytes: without escapes a name, and a value that
    # can be no number or object, stand there as they are.
    if b"\\" not in metadata:
        for name, value in wanted:
            if name.encode() not in metadata:
                return False
            if value[:1].isalpha() and value.encode() not in metadata:
                return False
    held: dict[str, object] = json.loads(metadata)
    return all(key in held and _text(held[key]) == value for key, value in wanted)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
