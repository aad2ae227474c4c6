"""spooled(): takes submissions while the engine is away, and hands them over in order when it is back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

from forebay.brokers.spooled.file import open_files
from forebay.brokers.spooled.spool import Bounds, Spool, waits_as
from forebay.core.blobs import named
from forebay.core.job import CancelVerdict, Job, JobError, JobRecord, Receipt, Standing, Verdict
from forebay.core.lifecycle import State
from forebay.core.outbox import Delivery, DeliveryState
from forebay.errors import IdempotencyConflictError, StoreFullError, StoreUnavailableError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.moving import Arriving, Load

EACH_MAX: Final = 200  # jobs handed over at once
EACH_BYTES_MAX: Final = 1 << 20
PAUSE_S: Final = 0.25  # before the engine is tried again, doubled each time
PAUSE_MAX_S: Final = 2.0
DUPLICATE: Final = "duplicate_submission"

OnFailure = Callable[[str, BaseException], None]


async def spooled(
    inner: Broker, directory: Path, bounds: Bounds, clock: Clock, *, on_failure: OnFailure | None = None
) -> Broker:
    """Return a broker that keeps submissions in a directory while the engine behind it is away.

    Raises ConfigError for a directory that cannot be used.
    """
    files = await asyncio.to_thread(open_files, directory)
    return cast("Broker", _Spooled(inner, Spool(files, bounds), clock, on_failure))


class _Spooled:
    """Verbs that submit nothing are the engine's own, but for jobs that wait here."""

    def __init__(self, inner: Broker, spool: Spool, clock: Clock, on_failure: OnFailure | None) -> None:
        self._inner = inner
        self.spool = spool
        self._clock = clock
        self._on_failure = on_failure
        self._some = asyncio.Event()
        if spool:
            self._some.set()
        self._loop = asyncio.ensure_future(self._hand_over())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> Awaitable[list[Receipt]]:
        jobs = list(jobs)
        if self.spool:  # what came before goes first
            return self._keep(jobs, "the store is away, or was until a moment ago", now)
        return self._try(jobs, self._inner.enqueue(jobs, now=now), now)

    async def _try(self, jobs: Sequence[Job], put: Awaitable[list[Receipt]], now: float) -> list[Receipt]:
        try:
            return await put
        except StoreFullError:
            raise
        except StoreUnavailableError as error:
            # It may be stored all the same; handed over under the same ids it is stored once.
            return await self._keep(jobs, str(error), now)

    async def _keep(self, jobs: Sequence[Job], why: str, now: float) -> list[Receipt]:
        receipts = await self.spool.put(jobs, why=why, now=now)
        self._some.set()
        return receipts

    async def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        here = await self.spool.recall(jobs)
        if all(here):
            return here
        there = await self._inner.recall(jobs, now=now)
        return [one or other for one, other in zip(here, there, strict=True)]

    async def get(self, job_id: str, *, now: float) -> JobRecord | None:
        job = self.spool.get(job_id)
        if job is None:
            return await self._inner.get(job_id, now=now)
        return JobRecord(job, Standing(waits_as(job), ready_at=job.run_at), spooled=True)

    async def position(self, job_id: str, *, now: float) -> int | None:
        return None if self.spool.get(job_id) else await self._inner.position(job_id, now=now)

    async def waits_for(self, job_id: str, *, now: float) -> str | None:
        return None if self.spool.get(job_id) else await self._inner.waits_for(job_id, now=now)

    async def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        if any(self.spool.get(job_id) for job_id in ids):
            raise StoreUnavailableError(
                "the job waits for the store, which can be told then", retry_after_s=1.0
            )
        return await self._inner.cancel(ids, now=now)

    async def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        there = await self._inner.held(blobs, now=now)
        here = {blob for job in self.spool.jobs() for blob in named(job.payload)}
        return [one or blob in here for one, blob in zip(there, blobs, strict=True)]

    async def close(self) -> None:
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        try:
            await self.spool.close()
        finally:
            await self._inner.close()

    # -- handing over ----------------------------------------------------------------------------------

    async def _hand_over(self) -> None:
        pause_s = PAUSE_S
        while True:
            await self._some.wait()
            try:
                await self._turn()
                pause_s = PAUSE_S
            except Exception as error:  # whatever it is, what waits must not be left
                if self._on_failure is not None and not isinstance(error, StoreUnavailableError):
                    self._on_failure("hand_over", error)
                await self._clock.sleep(pause_s)
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)

    async def _turn(self) -> None:
        """Hand over what comes first. What dies in the middle begins anew, and stores nothing twice."""
        jobs = self.spool.first(EACH_MAX, EACH_BYTES_MAX)
        if not jobs:
            self._some.clear()
            if self.spool:
                await self._clock.sleep(PAUSE_S)  # it is on its way to the disk
                self._some.set()
            return
        now = self._clock.now()
        # Each was promised as a job of its own: none joins another.
        receipts = await self._inner.enqueue([job._replace(fingerprint=None) for job in jobs], now=now)
        for job, receipt in zip(jobs, receipts, strict=True):
            if receipt.job_id != job.id:
                await self._tell(job, receipt, now)
        await self.spool.remove(jobs)

    async def _tell(self, job: Job, receipt: Receipt, now: float) -> None:
        """Store how a submission ended that the engine does not take: its key means another job there."""
        arriving: Arriving = cast("Any", self._inner).arriving
        standing = Standing(State.CANCELLED, ready_at=job.run_at, finished_at=now, error=JobError(
            DUPLICATE, f"the idempotency key means the job {receipt.job_id}, which was accepted before"
        ))  # fmt: skip
        owed: list[Delivery] = []
        if receipt.verdict is Verdict.CONFLICT:
            standing = standing._replace(state=State.DEAD, error=JobError(
                IdempotencyConflictError.code,
                f"the idempotency key was used with another body by the job {receipt.job_id}",
            ))  # fmt: skip
            if job.callback_url is not None:
                owed.append(Delivery(job.id, job.callback_url, DeliveryState.WAITING, 0, now, now))
        record = JobRecord(job._replace(idempotency_key=None, fingerprint=None), standing)
        await arriving.put(Load([record], owed, []))
