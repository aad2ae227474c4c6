"""Where a job stands in line and when it will be done, by what was measured."""

from forebay.core.estimator import Eta
from forebay.core.job import JobRecord
from forebay.core.lifecycle import State
from forebay.server.front import Front
from forebay.server.holding import held_s
from forebay.server.pressure import Pressure


async def place(
    front: Front, pressure: Pressure, record: JobRecord, *, now: float
) -> tuple[int | None, Eta | None]:
    """Return position (1 is next, None unless queued) and ETA, which is remembered to be scored.

    Both are None for what waits beside the engine; the ETA when nothing was measured, and for what waits
    in a paused queue or for an open breaker.
    """
    if record.spooled:
        return None, None  # the engine does not know of it yet
    standing, job = record.standing, record.job
    state = standing.state
    estimator = front.estimators.get(job.task)
    position = await front.broker.position(job.id, now=now) if state is State.QUEUED else None
    if estimator is None or standing.finished_at is not None:
        return position, None
    eta: Eta | None = None
    if state is State.RUNNING:
        ran_s = max(0.0, now - (standing.started_at or now))
        eta = estimator.rest(ran_s=ran_s, size_b=job.size, priority=job.priority)
    elif position is not None or state in (State.SCHEDULED, State.RETRYING):
        load = pressure.load(job.task, now=now)
        if not load.paused and held_s(front, job.task) is None:
            place = load.queued + 1 if position is None else position
            eta = estimator.eta(
                position=place,
                now=now,
                running=load.running,
                priority=job.priority,
                size_b=job.size,
                live=True,
            )
            if eta is not None and position is None:
                eta = eta.later(standing.ready_at - now)
    if eta is not None:
        estimator.told(job.id, eta, now=now, live=True)
    return position, eta
