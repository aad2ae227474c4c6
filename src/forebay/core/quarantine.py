"""Quarantine: inputs that killed one worker after another, known by a hash, and what is kept of each.

An input is a payload of one tenant for one version of one task. Only deaths that are laid on a job count
(core.settle.die): it ran alone in the process that died. A job that died and then succeeded has shown that
the machine was to blame: the deaths of its input are forgotten.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from forebay.core.job import Charge, Job, JobError, Transition

FINGERPRINT_BYTES: Final = 16
KEPT_S: Final = 7 * 86_400.0  # after its last death an input is forgotten
READ_BYTES_MAX: Final = 64 * 1024  # of a payload that is read to be compared
INPUTS_MAX: Final = 1_000  # of one task; past it the one whose last death is the longest ago is forgotten


class DeadlyInput(NamedTuple):
    """An input that killed workers."""

    fingerprint: bytes
    task: str
    version: str
    tenant: str
    deaths: int  # charged, over all jobs that had this input
    job_id: str  # of the last death; of a request where it was one
    since: float  # of the first death
    at: float  # of the last death
    condemned_at: float | None = None  # no further job with it is taken or run; None: not yet

    def bars(self, created_at: float) -> bool:
        """Say whether a job that was accepted at `created_at` may not run. One that was accepted after the
        last death passed the door by somebody's wish: it gets its try."""
        return created_at <= self.at


def quarantined(deadly: DeadlyInput, *, attempt: int) -> JobError:
    """Return the error of work that is not run because its input is in quarantine."""
    text = (
        f"this input killed {deadly.deaths} workers, the last one under {deadly.job_id}; it is in quarantine"
        f" as {deadly.fingerprint.hex()}"
    )
    return JobError("quarantined", text, "", attempt)


Change = tuple[str, bytes, DeadlyInput | None]  # task, fingerprint, and what is kept from then on


def fingerprint_of(job: Job) -> bytes:
    """Return the hash of an input: of what its JSON says, however it is written (1 and 1.0 differ); over
    READ_BYTES_MAX of its bytes alone."""
    head = f"{job.tenant}\0{job.task}\0{job.version}\0"
    return blake2b(head.encode() + _plainly(job.payload), digest_size=FINGERPRINT_BYTES).digest()


def _plainly(payload: bytes) -> bytes:
    """Return a JSON text in the one way of writing it; what cannot be read as it is."""
    if len(payload) > READ_BYTES_MAX:
        return payload
    try:
        return json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return payload


class Inputs:
    """What is known of inputs, by task, in memory. Decides what a death changes; `apply` changes it."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[bytes, DeadlyInput]] = {}
        self._condemned: dict[str, int] = {}  # how many of a task are; none of it has no entry

    def __iter__(self) -> Iterator[DeadlyInput]:
        """Yield every input, by task and fingerprint."""
        for _, rows in sorted(self._rows.items()):
            for _, row in sorted(rows.items()):
                yield row

    def counts(self) -> Mapping[str, int]:
        """Return how many inputs of which task are condemned; tasks without one are left out."""
        return self._condemned

    def get(self, task: str, fingerprint: bytes) -> DeadlyInput | None:
        """Return what is known of an input."""
        return self._rows.get(task, {}).get(fingerprint)

    def charged(self, job: Job, charge: Charge, *, at: float) -> list[Change]:
        """Return what an ended attempt changes."""
        known = self.get(job.task, charge.fingerprint)
        if known is not None and known.at + KEPT_S <= at:
            known = None
        if charge.condemns_at == 0:
            forgotten = known is not None and known.condemned_at is None
            return [(job.task, charge.fingerprint, None)] if forgotten else []
        deaths, since, condemned_at = 1, at, None
        if known is not None:
            deaths, since, condemned_at = known.deaths + 1, known.since, known.condemned_at
        if condemned_at is None and deaths >= charge.condemns_at:
            condemned_at = at
        row = DeadlyInput(
            charge.fingerprint, job.task, job.version, job.tenant, deaths, job.id, since, at, condemned_at
        )
        return [*self._room(row), (job.task, charge.fingerprint, row)]

    def aged(self, now: float) -> list[Change]:
        """Return what time changes: inputs whose last death is KEPT_S ago are forgotten."""
        return [(row.task, row.fingerprint, None) for row in self if row.at + KEPT_S <= now]

    def apply(self, changes: Iterable[Change]) -> list[Change]:
        """Change what is known; return the changes that take it back."""
        back: list[Change] = []
        for task, fingerprint, row in changes:
            rows = self._rows.setdefault(task, {})
            before = rows.pop(fingerprint, None)
            back.append((task, fingerprint, before))
            if row is not None:
                rows[fingerprint] = row
            if not rows:
                del self._rows[task]
            self._count(task, _is_condemned(row) - _is_condemned(before))
        back.reverse()
        return back

    def _count(self, task: str, more: int) -> None:
        if more:
            self._condemned[task] = self._condemned.get(task, 0) + more
            if not self._condemned[task]:
                del self._condemned[task]

    def _room(self, row: DeadlyInput) -> list[Change]:
        rows = self._rows.get(row.task, {})
        if row.fingerprint in rows or len(rows) < INPUTS_MAX:
            return []
        oldest = min(rows.values(), key=lambda one: (one.at, one.fingerprint))
        return [(row.task, oldest.fingerprint, None)]


def _is_condemned(row: DeadlyInput | None) -> bool:
    return row is not None and row.condemned_at is not None


def _is_held(row: DeadlyInput, now: float) -> bool:
    return row.condemned_at is not None and row.at + KEPT_S > now


class QuarantineBook:
    """The verbs of quarantine, the same for every engine. `store` keeps changes in its way and applies them
    to `inputs`; without one they are applied alone.
    """

    def __init__(
        self,
        inputs: Inputs | None = None,
        *,
        store: Callable[[Sequence[Change]], object] | None = None,
        tick: Callable[[float], float],
    ) -> None:
        self.inputs = inputs or Inputs()
        self._store = store or self.inputs.apply
        self._tick = tick

    def charge(self, job: Job, step: Transition) -> None:
        """Count what the end of an attempt says of its input, if it says something."""
        if step.charge is not None:
            self.charge_input(job, step.charge, at=step.at)

    def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        """Count what the end of work that is no job of the engine says of its input."""
        changes = self.inputs.charged(job, charge, at=at)
        if changes:
            self._store(changes)

    def counts(self) -> Mapping[str, int]:
        """Return how many inputs of which task are in quarantine; tasks without one are left out."""
        return self.inputs.counts()

    def find(self, task: str, fingerprint: bytes, *, now: float) -> DeadlyInput | None:
        """Return an input that is in quarantine, by its hash."""
        row = self.inputs.get(task, fingerprint)
        return row if row is not None and _is_held(row, self._tick(now)) else None

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        """Return the input of this job when it is in quarantine. Hashes nothing where the task has none."""
        if job.task not in self.inputs.counts():
            return None
        return self.find(job.task, fingerprint_of(job), now=now)

    def listed(
        self,
        *,
        limit: int,
        now: float,
        tenant: str | None = None,
        task: str | None = None,
        after: bytes = b"",
    ) -> list[DeadlyInput]:
        """Return up to `limit` inputs in quarantine, in the order of their hashes, those behind `after`."""
        now = self._tick(now)
        found = [
            row
            for row in self.inputs
            if _is_held(row, now)
            and row.fingerprint > after
            and tenant in {None, row.tenant}
            and task in {None, row.task}
        ]
        return sorted(found)[:limit]

    def release(self, fingerprint: bytes, *, tenant: str | None, now: float) -> DeadlyInput | None:
        """Forget the deaths of an input, of this tenant where one is named; return what it was, None when no
        such input is in quarantine."""
        now = self._tick(now)
        for row in self.inputs:
            if row.fingerprint == fingerprint and _is_held(row, now) and tenant in {None, row.tenant}:
                self._store([(row.task, fingerprint, None)])
                return row
        return None

    def forget(self, *, tenant: str | None = None, job_ids: Iterable[str] = ()) -> int:
        """Forget every input of a tenant, and those whose last death was in one of these jobs."""
        ids = frozenset(job_ids)
        gone = [row for row in self.inputs if row.tenant == tenant or row.job_id in ids]
        if gone:
            self._store([(row.task, row.fingerprint, None) for row in gone])
        return len(gone)

    def age_out(self, *, now: float) -> None:
        """Forget what is too old."""
        old = self.inputs.aged(self._tick(now))
        if old:
            self._store(old)
