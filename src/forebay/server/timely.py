"""Submissions and their time: who comes too late, and the estimate that is told and learned from."""

from collections.abc import Sequence

from forebay.core.admission import HURRIED_S, Rejected
from forebay.core.estimator import Eta
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.ports.broker import Load
from forebay.server.front import Front
from forebay.server.holding import held_s
from forebay.server.pressure import Pressure


def in_time(
    pressure: Pressure, places: list[int], slots: Sequence[object], *, now: float
) -> tuple[list[int], list[tuple[int, Job, Rejected]]]:
    """Return the places of jobs that have a chance of being done in time, and the others."""
    until = now + HURRIED_S
    kept: list[int] = []
    late: list[tuple[int, Job, Rejected]] = []
    for at in places:
        job = slots[at]
        assert type(job) is Job
        if job.deadline_at is not None or (job.expires_at is not None and job.expires_at < until):
            verdict = pressure.too_late(job, now=now, ahead_jobs=len(kept))
            if verdict is not None:
                late.append((at, job, verdict))
                continue
        kept.append(at)
    return kept, late


def foretell(
    front: Front, pressure: Pressure, jobs: list[Job], receipts: list[Receipt], *, now: float
) -> None:
    """Estimate one job of a group, as if it had been told: estimates learn from what became of it."""
    job, (verdict, _, state) = jobs[-1], receipts[-1]
    if verdict is not Verdict.STORED or state is not State.QUEUED:
        return
    place = front.broker.place_now(job, now=now)
    if place is not None:
        told(front, pressure.load(job.task, now=now), job, place, now=now)


def told(front: Front, load: Load, job: Job, position: int, *, now: float) -> Eta | None:
    """Return the estimate of a job that was just stored and may run, and remember it as told; None when
    nothing can be said, as of a paused queue or an open breaker."""
    if load.paused or held_s(front, job.task) is not None:
        return None
    estimator = front.estimators[job.task]
    eta = estimator.eta(
        position=position, now=now, running=load.running, priority=job.priority, size_b=job.size
    )
    if eta is not None:
        estimator.told(job.id, eta, now=now)
    return eta
