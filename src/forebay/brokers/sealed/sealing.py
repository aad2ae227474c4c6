"""Sealed: a broker in front of an engine that knows of nothing; payloads, outputs, checkpoints, progress and
words of errors are sealed on the way in and opened on the way out."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from forebay.brokers.sealed.vault import Vault
from forebay.core import settle
from forebay.core.job import (
    Attempt,
    Charge,
    Claim,
    Hold,
    Job,
    JobError,
    JobRecord,
    Lease,
    Page,
    Query,
    Receipt,
    Sweep,
    Transition,
)
from forebay.core.quarantine import DeadlyInput, fingerprint_of
from forebay.core.settle import SettlePolicy
from forebay.errors import SealedError
from forebay.ports.broker import Broker, Change, Listener
from forebay.ports.crons import Crons
from forebay.ports.quarantine import Quarantine

CODE = "sealed"


def sealed(inner: Broker, vault: Vault) -> Broker:
    """Return a broker that keeps what jobs hold from the engine behind it.

    Ids, tasks, times, tenants, metadata, idempotency keys and callback URLs stay in plain: the engine
    looks for jobs by them. A job that does not open is not run: it ends dead, with the reason.
    """
    return cast("Broker", _Sealed(inner, vault))


class _Sealed:
    """Verbs that carry nothing of what is in a job are the engine's own."""

    def __init__(self, inner: Broker, vault: Vault) -> None:
        self._inner = inner
        self._vault = vault
        self._tenants: dict[str, str] = {}  # of the jobs that were leased here and have not ended
        self.quarantine = cast("Quarantine", _BlindQuarantine(inner.quarantine, vault))

    @property
    def crons(self) -> "_SealedCrons":
        return _SealedCrons(self._inner.crons, self._seal_job)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> Awaitable[list[Receipt]]:
        return self._inner.enqueue([self._seal_job(job) for job in jobs], now=now)

    async def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        record = await self._inner.get(job_id, now=now)
        if record is None:
            return False
        kept = self._vault.seal(payload, tenant=record.job.tenant, bound=f"{job_id} edited")
        return await self._inner.edit(job_id, kept, now=now)

    async def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        return await self._inner.redrive(job_id, self._seal_job(job), now=now)

    def lease(
        self, task: str, *, limit: int, lease_s: float, worker: str, now: float
    ) -> Awaitable[list[Lease]]:
        taken = self._inner.lease(task, limit=limit, lease_s=lease_s, worker=worker, now=now)
        return self._leased(taken, now)  # the engine has it already

    async def _leased(self, taken: Awaitable[list[Lease]], now: float) -> list[Lease]:
        opened: list[Lease] = []
        shut: list[Transition] = []
        for lease in await taken:
            try:
                opened.append(self._open_lease(lease))
            except SealedError as error:
                told = JobError(CODE, str(error), "", lease.attempt)
                policy = SettlePolicy()
                shut.append(
                    settle.fail(lease, error=told, policy=policy, now=now, jitter=0.0, permanent=True)
                )
        if shut:
            await self._inner.commit(shut, now=now)
        return opened

    async def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        return await self._inner.extend(
            [self._seal_claim(claim) for claim in claims], lease_s=lease_s, now=now
        )

    def commit(self, transitions: Sequence[Transition], *, now: float) -> Awaitable[list[bool]]:
        done = self._inner.commit([self._seal_step(step) for step in transitions], now=now)
        return self._committed(done, [step.job_id for step in transitions])

    async def _committed(self, done: Awaitable[list[bool]], ids: Sequence[str]) -> list[bool]:
        verdicts = await done
        for job_id in ids:
            self._tenants.pop(job_id, None)
        return verdicts

    async def sweep(self, *, limit: int, now: float) -> Sweep:
        swept = await self._inner.sweep(limit=limit, now=now)
        if not swept.overdue:
            return swept
        return swept._replace(overdue=tuple(self._as_far_as_open(lease) for lease in swept.overdue))

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        record = await self._inner.get(job_id, now=now)
        return None if record is None else self._open_record(record)

    async def find(self, query: Query, *, now: float) -> Page:
        page = await self._inner.find(query, now=now)
        return page._replace(records=tuple(self._listed(record) for record in page.records))

    def on_change(self, listener: Listener) -> Callable[[], None]:
        def heard(changes: Sequence[Change]) -> None:
            listener([change._replace(settled=None) for change in changes])  # whoever needs it reads it

        return self._inner.on_change(heard)

    # In

    def _seal_job(self, job: Job) -> Job:
        payload = self._vault.seal(job.payload, tenant=job.tenant, bound=f"{job.id} payload")
        return job._replace(payload=payload)

    def _seal_claim(self, claim: Claim) -> Claim:
        tenant = self._tenants.get(claim.job_id)
        if tenant is None:  # not leased here: the engine will say that it is lost
            return claim._replace(progress=None, checkpoint=None)
        seal = self._vault.seal
        if claim.progress is not None:
            progress = seal(claim.progress, tenant=tenant, bound=f"{claim.job_id} progress")
            claim = claim._replace(progress=progress)
        if claim.checkpoint is not None:
            checkpoint = seal(claim.checkpoint, tenant=tenant, bound=f"{claim.job_id} checkpoint")
            claim = claim._replace(checkpoint=checkpoint)
        return claim

    def _seal_step(self, step: Transition) -> Transition:
        job_id, tenant = step.job_id, self._tenants.get(step.job_id, "")
        if step.output is not None:
            step = step._replace(
                output=self._vault.seal(step.output, tenant=tenant, bound=f"{job_id} output")
            )
        if step.charge is not None:
            blind = self._vault.blind(step.charge.fingerprint)[0]
            step = step._replace(charge=step.charge._replace(fingerprint=blind))
        if step.error is not None:
            step = step._replace(error=self._seal_error(step.error, job_id, tenant))
        if step.attempts:
            attempts = tuple(self._seal_attempt(attempt, job_id, tenant) for attempt in step.attempts)
            step = step._replace(attempts=attempts)
        return step

    def _seal_error(self, error: JobError, job_id: str, tenant: str) -> JobError:
        return error._replace(
            message=self._vault.seal_words(error.message, tenant=tenant, bound=f"{job_id} error")
        )

    def _seal_attempt(self, attempt: Attempt, job_id: str, tenant: str) -> Attempt:
        if attempt.error is not None:
            attempt = attempt._replace(error=self._seal_error(attempt.error, job_id, tenant))
        if attempt.log:
            words = self._vault.seal_words(attempt.log, tenant=tenant, bound=f"{job_id} log")
            attempt = attempt._replace(log=words)
        return attempt

    # Out

    def _open_job(self, job: Job) -> Job:
        return job._replace(payload=self._open(job.payload, job, "payload"))

    def _open(self, text: bytes, job: Job, place: str) -> bytes:
        return self._vault.open(text, tenant=job.tenant, bound=f"{job.id} {place}")

    def _open_error(self, error: JobError, job: Job) -> JobError:
        words = self._vault.open_words(error.message, tenant=job.tenant, bound=f"{job.id} error")
        return error._replace(message=words)

    def _open_attempts(self, attempts: tuple[Attempt, ...], job: Job) -> tuple[Attempt, ...]:
        return tuple(self._open_attempt(attempt, job) for attempt in attempts)

    def _open_attempt(self, attempt: Attempt, job: Job) -> Attempt:
        if attempt.error is not None:
            attempt = attempt._replace(error=self._open_error(attempt.error, job))
        if attempt.log:
            words = self._vault.open_words(attempt.log, tenant=job.tenant, bound=f"{job.id} log")
            attempt = attempt._replace(log=words)
        return attempt

    def _open_lease(self, lease: Lease) -> Lease:
        job = lease.job
        self._tenants[job.id] = job.tenant
        return lease._replace(
            job=self._open_job(job),
            attempts=self._open_attempts(lease.attempts, job),
            checkpoint=None if lease.checkpoint is None else self._open(lease.checkpoint, job, "checkpoint"),
        )

    def _as_far_as_open(self, lease: Lease) -> Lease:
        try:
            return self._open_lease(lease)
        except SealedError:
            return lease  # its end needs nothing of what is in it

    def _open_record(self, record: JobRecord) -> JobRecord:
        job, standing = record.job, record.standing
        error, output = standing.error, standing.output
        standing = standing._replace(
            output=None if output is None else self._open(output, job, "output"),
            error=None if error is None else self._open_error(error, job),
            progress=None if standing.progress is None else self._open(standing.progress, job, "progress"),
            attempts=self._open_attempts(standing.attempts, job),
            checkpoint=None
            if standing.checkpoint is None
            else self._open(standing.checkpoint, job, "checkpoint"),
        )
        edited = None if record.edited is None else self._open(record.edited, job, "edited")
        return record._replace(job=self._open_job(job), standing=standing, edited=edited)

    def _listed(self, record: JobRecord) -> JobRecord:
        """Return a record of a list, which must not fail as a whole for one job that does not open."""
        try:
            return self._open_record(record)
        except SealedError as error:
            told = JobError(CODE, str(error), "", record.standing.attempt)
            shut = record.standing._replace(
                output=None, error=told, progress=None, attempts=(), checkpoint=None
            )
            return record._replace(job=record.job._replace(payload=b"null"), standing=shut, edited=None)


class _SealedCrons:
    """Marks hold nothing of what is in a job; the jobs are sealed."""

    def __init__(self, inner: Crons, seal: Callable[[Job], Job]) -> None:
        self._inner = inner
        self._seal = seal
        self.marks = inner.marks
        self.steer = inner.steer
        self.forget = inner.forget

    async def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        kept = None if job is None else self._seal(job)
        return await self._inner.fire(name, due_at, kept, when=when, skipped=skipped, now=now)


class _BlindQuarantine:
    """The engine's own, but that it knows inputs by keyed hashes: whoever has its files cannot try payloads
    until one fits."""

    def __init__(self, inner: Quarantine, vault: Vault) -> None:
        self._inner = inner
        self._vault = vault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def charge_input(self, job: Job, charge: Charge, *, at: float) -> None:
        blind = self._vault.blind(charge.fingerprint)[0]
        await self._inner.charge_input(job, charge._replace(fingerprint=blind), at=at)

    def held(self, job: Job, *, now: float) -> DeadlyInput | None:
        if job.task not in self._inner.counts():
            return None
        plain = fingerprint_of(job)
        for known in (*self._vault.blind(plain), plain):  # plain: from before there were keys
            found = self._inner.find(job.task, known, now=now)
            if found is not None:
                return found
        return None
