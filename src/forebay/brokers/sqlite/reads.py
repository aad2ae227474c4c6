"""Reads: get, find, position: what never changes anything."""

from collections.abc import Sequence

from forebay.brokers.sqlite.rows import STATES, Row
from forebay.brokers.sqlite.shelf import Shelf
from forebay.brokers.sqlite.walks import pieces_of
from forebay.core.job import JobRecord, Page, Query
from forebay.core.lifecycle import WAITING, State
from forebay.core.metadata import holds_all
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
        shelf = self._shelf
        below = shelf.mint.seq
        if query.after is not None:
            place = shelf.mint.read(query.after)
            if place is None:
                raise InvalidError(f"after {query.after[:60]!r} is not the id of a job of this store")
            below = place[1]
        seqs: list[int] = []
        looked = 0
        for piece in pieces_of(shelf, query, below):
            if looked >= query.window_max:
                # Any id goes on behind its row; this one is nobody's.
                return Page(self._records(seqs), shelf.mint.text(0, piece.behind))
            for row in piece.rows:
                if len(seqs) >= query.limit:  # the cursor is reset when it is dropped: nothing stays open
                    records = self._records(seqs)
                    return Page(records, records[-1].job.id if records else None)
                if self._matches(row, query, now):
                    seqs.append(row[0])
            looked += piece.looked()
        return Page(self._records(seqs), None)

    def _records(self, seqs: Sequence[int]) -> tuple[JobRecord, ...]:
        return tuple(one.record for seq in seqs if (one := self._shelf.find_seq(seq)) is not None)

    def _matches(self, row: Row, query: Query, now: float) -> bool:
        _, task, state, finished_at, metadata = row
        if finished_at is not None:
            name = self._shelf.index.by_number[task].name
            if self._shelf.past.keeping.gone_at(name, STATES[int(state)], finished_at) <= now:
                return False
        return holds_all(metadata, query.metadata)

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
