"""a_job(), T0, policies: what the checks are written with."""

from typing import Any

from forebay.core import settle
from forebay.core.degraded import FALLBACK
from forebay.core.job import Job, JobError, JobRecord, Lease, Query, Standing, Transition, Verdict
from forebay.core.lifecycle import FINAL, State
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.ports.broker import Broker

T0 = 1_800_000_000.0  # when every check begins
RETENTION_S = 86_400.0  # what an engine under check must be opened with
LEASE_S = 30.0
TASK = "echo"
WORKER = "w1"
POLICY = SettlePolicy(retry=RetryPolicy(base_s=10.0, factor=2.0, cap_s=60.0))
PAGES_MAX = 1_000  # a walk that takes more pages than this never ends
BOOM = JobError("handler_error", "boom", "ValueError", 1)


def equal(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError with both sides when they differ."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {_shown(expected)}, got {_shown(actual)}")


def a_job(broker: Broker, *, at: float = T0, **fields: Any) -> Job:
    """Return a small job of TASK made at `at`, with any field set otherwise."""
    made: dict[str, Any] = {
        "id": broker.new_id(at),
        "task": TASK,
        "payload": b'{"text":"hi"}',
        "created_at": at,
        "run_at": at,
    }
    return Job(**{**made, **fields})


async def stored(broker: Broker, *, now: float = T0, **fields: Any) -> Job:
    """Store one job and return it."""
    fields.setdefault("at", now)
    job = a_job(broker, **fields)
    receipts = await broker.enqueue([job], now=now)
    equal([receipt.verdict for receipt in receipts], [Verdict.STORED], "verdicts of a new job")
    return job


async def leased(broker: Broker, *, limit: int = 100, now: float = T0, task: str = TASK) -> list[Lease]:
    """Lease up to `limit` jobs."""
    return await broker.lease(task, limit=limit, lease_s=LEASE_S, worker=WORKER, now=now)


async def leased_ids(broker: Broker, *, limit: int = 100, now: float = T0, task: str = TASK) -> list[str]:
    """Lease up to `limit` jobs and return their ids in order."""
    return [lease.job.id for lease in await leased(broker, limit=limit, now=now, task=task)]


async def running(broker: Broker, *, now: float = T0, **fields: Any) -> Lease:
    """Store one job, lease it and return the lease. Nothing else may be queued."""
    job = await stored(broker, now=now, **fields)
    leases = await leased(broker, now=now, task=job.task)
    equal([lease.job.id for lease in leases], [job.id], "leased")
    return leases[0]


async def finished(broker: Broker, *, now: float = T0, **fields: Any) -> str:
    """Bring one job to its result and return its id. Nothing else may be queued."""
    lease = await running(broker, now=now, **fields)
    await committed(broker, settle.complete(lease, output=b'"hi"', now=now), now=now)
    return lease.job.id


async def dead(broker: Broker, *, now: float = T0, **fields: Any) -> str:
    """Bring one job to the dead letters and return its id. Nothing else may be queued."""
    lease = await running(broker, now=now, **fields)
    await committed(broker, failure(lease, now=now, permanent=True), now=now)
    return lease.job.id


def failure(lease: Lease, *, now: float, permanent: bool = False) -> Transition:
    """Return the transition of a failed attempt; a retry waits 5 s after the first."""
    return settle.fail(lease, error=BOOM, policy=POLICY, now=now, jitter=0.0, permanent=permanent)


def every_end(lease: Lease, now: float) -> list[Transition]:
    """Return one transition of each kind that core/settle makes."""
    return [
        settle.complete(lease, output=b'"done"', now=now),
        settle.complete(lease, output=b'"less"', now=now)._replace(degraded=FALLBACK),
        settle.put_off(lease, error=BOOM, after_s=50.0, now=now),
        failure(lease, now=now),
        failure(lease, now=now, permanent=True),
        settle.die(lease, error=BOOM, policy=POLICY, now=now, jitter=0.5),
        settle.suspect(lease, error=BOOM, policy=POLICY, now=now),
        settle.lose(lease, error=BOOM, now=now),
        settle.release(lease, policy=POLICY, now=now),
        settle.defer(lease, until=now + 50, policy=POLICY, now=now),
        settle.expire(lease, now=now),
        settle.cancel(lease, now=now),
    ]


def standing_after(lease: Lease, transition: Transition) -> Standing:
    """Return where a job that was never handed back before must stand after `transition`."""
    final = transition.state in FINAL
    return Standing(
        state=transition.state,
        attempt=transition.attempt,
        fence=lease.fence,
        deaths=transition.deaths,
        releases=transition.releases,
        suspect=transition.suspect,
        ready_at=lease.ready_at if final else transition.ready_at,
        worker=transition.worker or lease.worker,
        started_at=lease.leased_at,
        finished_at=transition.at if final else None,
        output=transition.output,
        error=transition.error,
        attempts=transition.attempts,
        degraded=transition.degraded,
    )


async def committed(broker: Broker, transition: Transition, *, now: float) -> None:
    """Commit one transition that must be taken."""
    equal(await broker.commit([transition], now=now), [True], f"commit of {transition.event.value}")


async def record(broker: Broker, job_id: str, *, now: float = T0) -> JobRecord:
    """Return a job that must be there."""
    found = await broker.get(job_id, now=now)
    if found is None:
        raise AssertionError(f"job {job_id} is not there")
    return found


async def in_state(broker: Broker, job_id: str, state: State, *, now: float = T0) -> JobRecord:
    """Return a job that must be in `state`."""
    found = await record(broker, job_id, now=now)
    equal(found.standing.state.value, state.value, f"state of {job_id}")
    return found


async def walk(broker: Broker, query: Query, *, now: float = T0) -> list[str]:
    """Return the ids on all pages; every page must keep its limit and come after the one before."""
    found: list[str] = []
    for _ in range(PAGES_MAX):
        page = await broker.find(query, now=now)
        equal(len(page.records) <= query.limit, True, "a page keeps its limit")
        found += [each.job.id for each in page.records]
        if page.next_after is None:
            equal(found, sorted(set(found), reverse=True), "ids newest first, each once")
            return found
        query = query._replace(after=page.next_after)
    raise AssertionError(f"no last page after {PAGES_MAX}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"
