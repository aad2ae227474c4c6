"""Pressure: the Snapshot that admission reads, fresh and cheap; it counts what arrives."""

from collections.abc import Sequence

from forebay.core.admission import HURRIED_S, Accepted, Reason, Rejected, Snapshot, too_late
from forebay.core.arrivals import ArrivalWindows
from forebay.core.estimator import Eta
from forebay.core.job import Depth, Job
from forebay.core.quota import Quota
from forebay.core.tenant import Held
from forebay.errors import DrainingError, ForebayError
from forebay.ports.broker import Load
from forebay.server.budgets import budget_named, over_budget, told_to_come
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.holding import held_s
from forebay.server.problems import rejection

DRAIN_RATE_FRESH_S = 0.25  # a drain rate is computed at most this often per task
DRAINING_RETRY_S = 5.0  # told when nothing says how long a drain takes
DEPTH_FRESH_S = 0.05  # for engines that cannot know their depth without IO


NOTHING = Held()


class TaskPressure:
    """What is remembered of one task between two looks."""

    __slots__ = (
        "arrivals",
        "depth",
        "depth_at",
        "drain_at",
        "drain_per_s",
        "taken_b",
        "taken_jobs",
    )

    def __init__(self, arrivals: ArrivalWindows) -> None:
        self.arrivals = arrivals
        self.drain_per_s: float | None = None
        self.drain_at = float("-inf")
        self.depth = Depth()
        self.depth_at = float("-inf")
        self.taken_jobs = 0  # accepted since `depth` was read
        self.taken_b = 0


class Pressure:
    """How full the tasks are, without waiting for anything."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._tasks = {name: TaskPressure(front.arrivals[name]) for name in front.tasks}
        self.live = False  # the engine knows its load without IO

    def load(self, task: str, *, now: float) -> Load:
        """Return what the task holds, exact where the engine knows it, else as last read."""
        load = self._front.broker.load_now(task, now=now)
        if load is not None:
            return load
        depth = self._tasks[task].depth
        return Load(depth.open, depth.queued, depth.running, depth.bytes, depth.paused, depth.draining)

    def snapshot(self, task: str, *, now: float) -> Snapshot:
        """Return what the gate may know. No IO; no await may stand between this and the enqueue."""
        own = self._tasks[task]
        # What was unknown a moment ago is asked again: an ETA may be known by now, and both must agree.
        if own.drain_per_s is None or now - own.drain_at >= DRAIN_RATE_FRESH_S:
            own.drain_per_s = self._front.estimators[task].drain_per_s(now=now)
            own.drain_at = now
        draining = self._front.lifecycle.draining
        load = self._front.broker.load_now(task, now=now)
        if load is None:
            depth = own.depth
            return Snapshot(
                depth.open + own.taken_jobs,
                depth.bytes + own.taken_b,
                own.drain_per_s,
                draining or depth.draining,
            )
        return Snapshot(load.open, load.bytes, own.drain_per_s, draining or load.draining)

    def arrived(self, task: str, count: int, *, now: float) -> None:
        """Count submissions or requests, whatever becomes of them: in the metrics and in the rates."""
        self._tasks[task].arrivals.arrived(count, now=now)
        self._front.meters.for_task(task).arrived(count)

    def admit(
        self, task: str, *, jobs: int, size_b: int, now: float, others: Held = NOTHING
    ) -> Accepted | Rejected:
        """Decide on `jobs` submissions together; counts them, and not yet as refused: see `refusal`.

        `others` of the same tenant, for other tasks, were accepted a moment ago and are not with the broker
        yet.
        """
        self.arrived(task, jobs, now=now)
        return self.admit_again(task, jobs=jobs, size_b=size_b, now=now, others=others)

    def admit_again(
        self,
        task: str,
        *,
        jobs: int,
        size_b: int,
        now: float,
        ahead_jobs: int = 0,
        ahead_b: int = 0,
        others: Held = NOTHING,
    ) -> Accepted | Rejected:
        """Decide as `admit` does on submissions that were counted before as a larger group.

        `ahead_jobs` and `ahead_b` were accepted a moment ago and are not with the broker yet.
        """
        over = over_budget(jobs, now=now)
        if over is not None:
            return over
        quota = self.quota()
        if quota is not None:
            ahead = Held(ahead_jobs + others.jobs, ahead_b + others.bytes)
            refused = self._over_quota(quota, task, jobs, size_b, ahead, now)
            if refused is not None:
                return refused
        verdict = self._by_gate(task, jobs, size_b, now, ahead_jobs, ahead_b)
        if type(verdict) is Rejected:
            return verdict
        if quota is not None:
            quota.take(jobs=jobs, size_b=size_b, now=now)
        self._budget_takes(jobs, now=now)
        return verdict

    def quota(self) -> Quota | None:
        """Return the limits of the caller's tenant; None where it has none."""
        quotas = self._front.watchman.quotas
        return quotas.get(caller().tenant) if quotas else None

    def _over_quota(
        self, quota: Quota, task: str, jobs: int, size_b: int, ahead: Held, now: float
    ) -> Rejected | None:
        tenant, requests = caller().tenant, self._front.requests
        own = self._front.broker.holding_now(tenant, now=now) or NOTHING
        asked = NOTHING if requests is None else requests.held_by(tenant)
        held = Held(own.jobs + asked.jobs + ahead.jobs, own.bytes + asked.bytes + ahead.bytes)
        jitter = self._front.clock.random()
        refused = quota.look(jobs=jobs, size_b=size_b, held=held, now=now, jitter=jitter)
        return None if refused is None else self._with_time(task, refused, jitter)

    def tenant_refusal(self, task: str, *, size_b: int, now: float) -> Rejected | None:
        """Return why the caller's tenant may send no request of `size_b` bytes now; takes nothing."""
        quota = self.quota()
        return None if quota is None else self._over_quota(quota, task, 1, size_b, NOTHING, now)

    def tenant_takes(self, *, size_b: int, now: float) -> None:
        """Take a request that was let in from the rates of the caller's tenant."""
        quota = self.quota()
        if quota is not None:
            quota.take(jobs=1, size_b=size_b, now=now)
        self._budget_takes(1, now=now)

    def budget_refusal(self, *, now: float) -> Rejected | None:
        """Return why the budget of this request does not let it in, counted. Takes nothing: nothing may wait
        from here to `tenant_takes`."""
        over = over_budget(1, now=now)
        if over is None:
            return None
        self._front.meters.budgeted("refused", 1)
        return told_to_come(over, now=now)

    def _budget_takes(self, jobs: int, *, now: float) -> None:
        budget = budget_named()
        if budget is not None:
            budget.take(jobs, now=now)
            self._front.meters.budgeted("granted", jobs)

    def _with_time(self, task: str, refused: Rejected, jitter: float) -> Rejected:
        if refused.retry_after_s is None:  # something has to end first: a job at the pace of the task
            own = self._tasks[task]
            after_s = self._front.gates[task].retry_after_s(1, own.drain_per_s, jitter)
            refused = refused._replace(retry_after_s=after_s)
        return refused

    def _by_gate(
        self, task: str, jobs: int, size_b: int, now: float, ahead_jobs: int, ahead_b: int
    ) -> Accepted | Rejected:
        snapshot = self.snapshot(task, now=now)
        if ahead_jobs:
            snapshot = snapshot._replace(jobs=snapshot.jobs + ahead_jobs, bytes=snapshot.bytes + ahead_b)
        verdict = self._front.gates[task].admit(
            jobs=jobs, size_b=size_b, snapshot=snapshot, now=now, jitter=self._front.clock.random()
        )
        if type(verdict) is Rejected:
            return verdict
        own = self._tasks[task]
        own.taken_jobs += jobs
        own.taken_b += size_b
        return verdict

    def refusal(self, rejected: Rejected, task: str, *, now: float) -> ForebayError:
        """Return the error that tells a caller about a decision of the gate, and count it as refused.

        Whether this one queue drains or the whole server goes is known here alone.
        """
        self._front.meters.for_task(task).refused(rejected.reason.value, 1)
        rejected = told_to_come(rejected, now=now)
        drain_per_s = self._tasks[task].drain_per_s
        rejected = self._front.gates[task].told_to_come(rejected, drain_per_s=drain_per_s, now=now)
        if rejected.reason is Reason.OVER_BUDGET:
            self._front.meters.budgeted("refused", 1)
        if rejected.reason is not Reason.DRAINING:
            error = rejection(rejected, task)
            if error.retry_after_s is not None:
                error.service_s = self._front.estimators[task].service.mean_s()
            return error
        if self._front.lifecycle.draining:
            return DrainingError(retry_after_s=DRAINING_RETRY_S)
        after_s, load, rate = DRAINING_RETRY_S, self.load(task, now=now), self._tasks[task].drain_per_s
        if load.open and rate and not load.paused:
            after_s = self._front.gates[task].retry_after_s(load.open, rate, self._front.clock.random())
        return DrainingError(
            f"the queue of {task} is draining and takes no new work until it is resumed",
            retry_after_s=after_s,
        )

    def too_late(self, job: Job, *, now: float, ahead_jobs: int = 0) -> Rejected | None:
        """Return the refusal of a job whose ttl or deadline would pass first, counted as an arrival, or None.

        Not asked of what starts later by its own wish, of a paused queue, nor where nothing is open: that
        job is the one that measures. Nothing starts before the breaker of its task lets it, whatever was
        measured. `ahead_jobs` as in `admit_again`.
        """
        until = job.waits_until
        if until is None or until - now > HURRIED_S or job.run_at > now:
            return None
        front, load = self._front, self.load(job.task, now=now)
        closed_s = held_s(front, job.task)
        if load.paused or (load.open + ahead_jobs == 0 and closed_s is None):
            return None
        eta = front.estimators[job.task].eta(
            position=(front.broker.place_now(job, now=now) or load.queued + 1) + ahead_jobs,
            now=now,
            running=load.running,
            priority=job.priority,
            size_b=job.size,
        )
        if closed_s is not None:
            eta = (eta or Eta(0.0, 0.0)).later(closed_s)
        verdict = too_late(
            run_at=job.run_at,
            expires_at=job.expires_at,
            deadline_at=job.deadline_at,
            eta=eta,
            now=now,
            jitter=front.clock.random(),
        )
        if verdict is not None:
            self.arrived(job.task, 1, now=now)
        return verdict

    def full(self, task: str, *, now: float) -> bool:
        """Say whether not even one empty job would enter; takes nothing from the rate limit."""
        gate = self._front.gates[task]
        if not gate.pressured:  # the last verdict left room: what is exact is asked again after the body
            return False
        snapshot = self.snapshot(task, now=now)
        policy = gate.policy
        return snapshot.jobs >= policy.jobs_max or snapshot.bytes >= policy.bytes_max

    async def refresh(self, tasks: Sequence[str], *, now: float) -> None:
        """Read the depth of engines that cannot know it without IO, at most every DEPTH_FRESH_S."""
        broker = self._front.broker
        if self.live:
            return
        for task in tasks:
            own = self._tasks[task]
            if now - own.depth_at < DEPTH_FRESH_S:
                continue
            if broker.load_now(task, now=now) is not None:
                self.live = True
                return
            own.depth_at = now
            own.depth = await broker.depth(task, now=now)
            own.taken_jobs = own.taken_b = 0
