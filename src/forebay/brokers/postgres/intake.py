"""Intake: how submissions enter: known by key or id, joined with equal work, or stored."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from forebay.brokers.postgres.rows import columns, insert_of, job_of, standing_of
from forebay.brokers.postgres.store import MetAnother, Tx
from forebay.brokers.shared.states import STATES, UUID, key_bytes
from forebay.core.blobs import named
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.core.retention import Keeping
from forebay.core.settle import joinable
from forebay.errors import InvalidError

_FIND_KEYS: Final = (
    "SELECT u.ord::int4, k.job_id::text, k.body_hash, j.state"
    " FROM unnest(%s::text[], %s::bytea[]) WITH ORDINALITY AS u(tenant, key, ord)"
    " JOIN keys k ON k.tenant = u.tenant AND k.key = u.key JOIN jobs j ON j.id = k.job_id"
)
_FIND_IDS: Final = "SELECT id::text, body_hash, state FROM jobs WHERE id = ANY(%s::uuid[])"
# Between two ends that are the same: what equals one value has every order of it, and all jobs might be gone
# through from the newest on.
_FIND_TWINS: Final = (
    f"SELECT {columns('j', output=False)} FROM unnest(%s::bytea[]) AS u(fingerprint)"
    " JOIN LATERAL (SELECT * FROM jobs t WHERE t.fingerprint BETWEEN u.fingerprint AND u.fingerprint"
    " ORDER BY t.fingerprint DESC, t.id DESC LIMIT 1) j ON true"
)
_ADD_KEYS: Final = (
    "INSERT INTO keys (tenant, key, job_id, body_hash)"
    " SELECT * FROM unnest(%s::text[], %s::bytea[], %s::uuid[], %s::bytea[]) ON CONFLICT DO NOTHING"
)
_ADD_LINKS: Final = (
    "INSERT INTO links (blob, job_id, place)"
    ' SELECT * FROM unnest(%s::text[], %s::uuid[], %s::"char"[]) ON CONFLICT DO NOTHING'
)
LOCK: Final = "SELECT count(pg_advisory_xact_lock(n)) FROM unnest(%s::int8[]) AS u(n)"


class Known(NamedTuple):
    """A stored job as a submission finds it."""

    job_id: str
    body_hash: bytes  # that a repeat must have
    state: State

    def receipt(self, job: Job) -> Receipt:
        """Return the answer to a submission that finds this in its place."""
        verdict = Verdict.REPLAYED if self.body_hash == job.body_hash else Verdict.CONFLICT
        return Receipt(verdict, self.job_id, self.state)


class _Seen:
    """What is known of the keys, ids and fingerprints of one group, with what the group itself adds."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], Known] = {}
        self.ids: dict[str, Known] = {}
        self.twins: dict[bytes, tuple[Known, Job | None]] = {}  # None: nobody may join it
        self.stored: list[tuple[Job, State]] = []
        self.named: list[tuple[str, str, str, bytes]] = []  # tenant, key, job, hash

    def name(self, job: Job, known: Known) -> None:
        """Let the key of a submission mean a job."""
        if job.idempotency_key is not None:
            self.keys[job.tenant, job.idempotency_key] = known._replace(body_hash=job.body_hash)
            self.named.append((job.tenant, job.idempotency_key, known.job_id, job.body_hash))


class Intake:
    """Puts jobs into the store."""

    def __init__(self, keeping: Keeping, schema: str) -> None:
        self._keeping = keeping
        self._schema = schema

    async def enqueue(self, tx: Tx, jobs: Sequence[Job], now: float) -> list[Receipt]:
        """Store each job once; answer in order. `now` is of the caller's clock."""
        if any(UUID.fullmatch(job.id) is None for job in jobs):
            raise InvalidError("the id of a job must be a UUID in lower case")
        seen = await self._look(tx, jobs)
        receipts = [self._decide(tx, job, seen, now) for job in jobs]
        await self._store(tx, seen)
        return receipts

    async def _look(self, tx: Tx, jobs: Sequence[Job]) -> _Seen:
        seen = _Seen()
        joining = [
            job.fingerprint for job in jobs if job.fingerprint is not None and job.redriven_from is None
        ]
        if joining:  # equal work that comes to two servers at once is still stored once
            await tx.run(LOCK, [lock_numbers(self._schema, "twin", joining)])
        seen.keys = await known_keys(tx.rows, jobs)
        # Ids are new but for repeats: that one is there already is found by storing it, except where equal
        # work would be joined before.
        if tx.again or joining:
            rows = await tx.rows(_FIND_IDS, [[job.id for job in jobs]])
            seen.ids = {row[0]: Known(row[0], row[1], STATES[row[2]]) for row in rows}
        if joining:
            for row in await tx.rows(_FIND_TWINS, [list(set(joining))]):
                job, stands = job_of(row), standing_of(row)
                gone_at = self._keeping.gone_at(job.task, stands.state, stands.finished_at)
                free = gone_at > tx.now and joinable(
                    stands.state, stands.cancel_requested, stands.finished_at, job, tx.now
                )
                assert job.fingerprint is not None
                seen.twins[job.fingerprint] = (
                    Known(job.id, job.body_hash, stands.state),
                    job if free else None,
                )
        return seen

    def _decide(self, tx: Tx, job: Job, seen: _Seen, now: float) -> Receipt:
        key = job.idempotency_key
        known = seen.keys.get((job.tenant, key)) if key is not None else None
        known = known or seen.ids.get(job.id)
        if known is not None:
            return known.receipt(job)
        if job.fingerprint is not None and job.redriven_from is None:
            twin, free = seen.twins.get(job.fingerprint, (None, None))
            if twin is not None and free is not None:
                seen.name(job, twin)
                return Receipt(Verdict.JOINED, twin.job_id, twin.state)
        # The caller's clock may be ahead of ours: what is due by either is due.
        state = State.SCHEDULED if job.run_at > max(now, tx.now) else State.QUEUED
        stored = Known(job.id, job.body_hash, state)
        seen.ids[job.id] = stored
        seen.name(job, stored)
        if job.fingerprint is not None and (
            job.fingerprint not in seen.twins or seen.twins[job.fingerprint][0].job_id < job.id
        ):
            seen.twins[job.fingerprint] = (stored, job)
        seen.stored.append((job, state))
        return Receipt(Verdict.STORED, job.id, state)

    async def _store(self, tx: Tx, seen: _Seen) -> None:
        if seen.stored:
            rows = await tx.rows(*insert_of(seen.stored))
            if len(rows) != len(seen.stored):
                raise MetAnother
        if seen.named:
            tenants, keys, ids, hashes = (list(one) for one in zip(*seen.named, strict=True))
            count = await tx.run(_ADD_KEYS, [tenants, [key_bytes(key) for key in keys], ids, hashes])
            if count != len(seen.named):
                raise MetAnother
        await add_links(tx, [(blob, job.id, "p") for job, _ in seen.stored for blob in named(job.payload)])
        for job, state in seen.stored:
            tx.news.changed(job.id, job.task, state)


async def known_keys(rows: Any, jobs: Sequence[Job]) -> dict[tuple[str, str], Known]:
    """Return what is known of the idempotency keys of jobs. `rows` runs a statement."""
    keys = list(
        dict.fromkeys((job.tenant, job.idempotency_key) for job in jobs if job.idempotency_key is not None)
    )
    if not keys:
        return {}
    found = await rows(_FIND_KEYS, [[tenant for tenant, _ in keys], [key_bytes(key) for _, key in keys]])
    return {keys[row[0] - 1]: Known(row[1], row[2], STATES[row[3]]) for row in found}


async def add_links(tx: Tx, links: Sequence[tuple[str, str, str]]) -> None:
    """Remember (blob, job, place)."""
    if links:
        await tx.run(_ADD_LINKS, [list(one) for one in zip(*links, strict=True)])


def served_number(schema: str) -> int:
    """Return the number of the lock that every process that serves a store holds together with the others."""
    return lock_numbers(schema, "served", [b""])[0]


def lock_numbers(schema: str, kind: str, names: Sequence[bytes]) -> list[int]:
    """Return the numbers of advisory locks, in the order in which everybody takes them."""
    head = f"forebay\0{schema}\0{kind}\0".encode()
    digests = {blake2b(head + name, digest_size=8).digest() for name in names}
    return sorted(int.from_bytes(digest, "big", signed=True) for digest in digests)
