"""GET /v1/tasks, GET /v1/queues, and pause, resume, drain of one queue."""

import msgspec
from fastapi import Request, Response

from forebay.core.estimator import Estimator, Eta
from forebay.core.job import Depth
from forebay.core.scaling import wanted_of
from forebay.core.sizing.measured import measured
from forebay.core.task import TaskSpec
from forebay.core.units import print_duration
from forebay.server.asking import unknown_task
from forebay.server.breaker_views import BreakerView, TaskBreakerView
from forebay.server.caller import caller
from forebay.server.eta_views import EtaAccuracyView, QueueEtaView
from forebay.server.front import Front
from forebay.server.holding import held_s
from forebay.server.inner_breakers import of_tasks
from forebay.server.pressure import Pressure
from forebay.server.routing import Route, json_response
from forebay.server.storing import written
from forebay.server.times import stamp
from forebay.server.views import (
    BackoffView,
    QueueList,
    QueueView,
    RatesView,
    RequestsView,
    ServiceView,
    TaskList,
    TaskView,
    VariantView,
    WatermarksView,
)


class Queues:
    """What is served, how full it is, and the taps."""

    def __init__(self, front: Front, pressure: Pressure) -> None:
        self._front = front
        self._pressure = pressure

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        one = (404,)
        task, queue = "/v1/tasks/{task}", "/v1/queues/{task}"
        return (
            Route("GET", "/v1/tasks", self.tasks, "List tasks", "tasks", "TaskList"),
            Route("GET", task, self.task, "Show a task", "tasks", "TaskView", one),
            Route("GET", "/v1/queues", self.queues, "List queues", "queues", "QueueList"),
            Route("GET", queue, self.queue, "Show a queue", "queues", "QueueView", one),
            Route("POST", queue + "/pause", self.pause, "Stop granting; submissions still enter", "queues",
                  "QueueView", one),
            Route("POST", queue + "/resume", self.resume, "End a pause or a drain", "queues",
                  "QueueView", one),
            Route("POST", queue + "/drain", self.drain, "Refuse new submissions while the queue empties",
                  "queues", "QueueView", one),
        )  # fmt: skip

    async def tasks(self, request: Request) -> Response:
        """Answer all tasks."""
        inside = of_tasks(self._front)
        views = [self._task_view(spec, inside.get(spec.name, [])) for spec in self._front.tasks.values()]
        return json_response(TaskList(views))

    async def task(self, request: Request) -> Response:
        """Answer one task."""
        task = self._named(request)
        return json_response(self._task_view(self._front.tasks[task], of_tasks(self._front).get(task, [])))

    async def queues(self, request: Request) -> Response:
        """Answer all queues."""
        return json_response(QueueList([await self._queue_view(task) for task in self._front.tasks]))

    async def queue(self, request: Request) -> Response:
        """Answer one queue."""
        return json_response(await self._queue_view(self._named(request)))

    async def pause(self, request: Request) -> Response:
        """Stop granting jobs of one task, durably."""
        return await self._set_paused(request, paused=True)

    async def resume(self, request: Request) -> Response:
        """Grant again, and take submissions again."""
        task, now = self._named(request), self._front.clock.now()
        await written(self._front, self._front.broker.drain(task, draining=False, now=now))
        return await self._set_paused(request, paused=False)

    async def drain(self, request: Request) -> Response:
        """Refuse new submissions of one task (503) until it is resumed, durably."""
        task, now = self._named(request), self._front.clock.now()
        await written(self._front, self._front.broker.drain(task, draining=True, now=now))
        self._front.log.info("queue_draining", task=task)
        return json_response(await self._queue_view(task))

    async def _set_paused(self, request: Request, *, paused: bool) -> Response:
        task, now = self._named(request), self._front.clock.now()
        await written(self._front, self._front.broker.pause(task, paused=paused, now=now))
        self._front.log.info("queue_paused" if paused else "queue_resumed", task=task)
        return json_response(await self._queue_view(task))

    def _named(self, request: Request) -> str:
        task: str = request.path_params["task"]
        if task not in self._front.tasks:
            raise unknown_task(task, self._front.tasks)
        return task

    async def _queue_view(self, task: str) -> QueueView:
        front, now = self._front, self._front.clock.now()
        depth = await front.broker.depth(task, now=now)
        spec, estimator, policy = front.tasks[task], front.estimators[task], front.gates[task].policy
        eta = estimator.eta(position=depth.queued + 1, now=now, running=depth.running, priority=spec.priority)
        service = estimator.service_s()
        snapshot = self._pressure.snapshot(task, now=now)
        peaks = front.arrivals[task].peaks(now=now)
        view = QueueView(
            task=task,
            depth=depth.queued,
            depth_peak=max(depth.queued, front.peaks[task].last_minute(now=now)),
            open=depth.open,
            running=depth.running,
            scheduled=depth.scheduled,
            retrying=depth.retrying,
            dead=depth.dead,
            capacity=policy.jobs_max,
            bytes=depth.bytes,
            bytes_capacity=policy.bytes_max,
            oldest_age_s=None if depth.oldest_at is None else round(max(0.0, now - depth.oldest_at), 3),
            rates=RatesView(
                front.arrivals[task].mean_per_s(now=now),
                peaks.p99_per_s,
                peaks.max_per_s,
                estimator.measured_drain_per_s(now=now),
                estimator.capacity_per_s(),
            ),
            eta=self._waiting_view(spec, paused=depth.paused) or eta_view(eta, spec, now=now),
            service_p50_s=None if service is None else service[0],
            service_p90_s=None if service is None else service[1],
            eta_accuracy=accuracy_view(estimator),
            watermarks=WatermarksView(policy.soft_share, policy.soft_low_share, _level(depth, front, task)),
            breaker=self._breaker_view(task),
            paused=depth.paused,
            draining=snapshot.draining,
            replicas_wanted=wanted_of(
                estimator, spec, waiting=0 if depth.paused else depth.queued, running=depth.running,
                wait_s=front.settings.replicas_wait, now=now,
            ),
            requests=self._requests_view(task),
        )  # fmt: skip
        return view if caller().own is None else _for_tenant(view)

    def _requests_view(self, task: str) -> RequestsView | None:
        front = self._front
        if front.requests is None:
            return None
        held, settings = front.requests.held(task), front.settings
        wait_s = None if held.wait_s is None else round(held.wait_s, 6)
        return RequestsView(
            held.waiting, held.running, settings.requests_max, held.bytes, settings.requests_bytes_max, wait_s
        )

    def _waiting_view(self, spec: TaskSpec, *, paused: bool) -> QueueEtaView | None:
        if paused:
            return paused_view(spec)
        after_s = held_s(self._front, spec.name)
        return None if after_s is None else held_view(spec, after_s)

    def _breaker_view(self, task: str) -> BreakerView | None:
        node = self._front.node
        seen = None if node is None else node.breaker(task)
        return None if seen is None else msgspec.convert(seen, BreakerView)

    def _task_view(self, spec: TaskSpec, inside: list[TaskBreakerView]) -> TaskView:
        estimator, policy = self._front.estimators[spec.name], self._front.gates[spec.name].policy
        settings, retry = self._front.settings, spec.settle.retry
        service = estimator.service_s()
        return TaskView(
            task=spec.name,
            kind=spec.kind,
            description=spec.doc,
            version=spec.version,
            input_schema=spec.input_schema,
            output_schema=spec.output_schema,
            batch_max=spec.batch_max,
            batch_wait_s=spec.batch_wait_s,
            timeout_s=spec.timeout_s,
            attempts_max=spec.attempts_max,
            backoff=BackoffView(retry.base_s, retry.factor, retry.cap_s),
            ttl_s=spec.ttl_s,
            deadline_s=spec.deadline_s,
            priority=spec.priority,
            queue_max=policy.jobs_max,
            queue_bytes_max=policy.bytes_max,
            concurrency=spec.concurrency,
            lease_s=settings.lease,
            heartbeat_s=settings.heartbeat,
            grace_s=settings.grace,
            replicas=estimator.replicas,
            service=service_view(estimator),
            service_p50_s=None if service is None else service[0],
            service_p90_s=None if service is None else service[1],
            capacity_per_s=estimator.capacity_per_s(),
            eta_accuracy=accuracy_view(estimator),
            breaker=self._breaker_view(spec.name),
            breakers=inside,
            fallback="(canned answer)" if spec.canned is not None else spec.fallback or None,
            level=0 if self._front.node is None else self._front.node.level(spec.name),
            variants=_variants(spec),
        )


def _variants(spec: TaskSpec) -> list[VariantView]:
    rungs = () if spec.ladder is None else spec.ladder.rungs
    return [
        VariantView(level, rung.name, rung.quality, rung.enter, rung.leave)
        for level, rung in enumerate(rungs, 1)
    ]


def _for_tenant(view: QueueView) -> QueueView:
    """Return what one tenant may know of a queue that all share: how long the line is, which its own jobs'
    places tell as well, and nothing of who stands in it."""
    return msgspec.structs.replace(
        view,
        depth_peak=None,
        open=None,
        running=None,
        scheduled=None,
        retrying=None,
        dead=None,
        bytes=None,
        oldest_age_s=None,
        replicas_wanted=None,
        requests=None,
    )


def accuracy_view(estimator: Estimator) -> EtaAccuracyView | None:
    """Return how true the told times were, None when none was scored yet."""
    shares = estimator.coverage.shares()
    if shares is None:
        return None
    return EtaAccuracyView(round(shares[0], 3), round(shares[1], 3), estimator.coverage.count)


def service_view(estimator: Estimator) -> ServiceView | None:
    """Return what runs took, None before the first."""
    found = measured(estimator)
    return None if found is None else ServiceView(*found)


def _level(depth: Depth, front: Front, task: str) -> float:
    policy = front.gates[task].policy
    return round(max(depth.open / policy.jobs_max, depth.bytes / policy.bytes_max), 6)


def eta_view(eta: Eta | None, spec: TaskSpec, *, now: float) -> QueueEtaView | None:
    """Return the estimate for a job submitted now."""
    if eta is None:
        return None
    message = f"A {spec.name} job submitted now is expected to end in about {print_duration(eta.p50_s)}."
    return QueueEtaView(
        round(eta.p50_s, 3), round(eta.p90_s, 3), stamp(now + eta.p50_s), stamp(now + eta.p90_s), message
    )


def paused_view(spec: TaskSpec) -> QueueEtaView:
    """Return what is said in place of an estimate while nothing is handed out."""
    message = f"The queue of {spec.name} is paused: it takes jobs, and none starts until it is resumed."
    return QueueEtaView(None, None, None, None, message)


def held_view(spec: TaskSpec, after_s: float) -> QueueEtaView:
    """Return what is said in place of an estimate while jobs wait for an open breaker."""
    message = (
        f"What runs {spec.name} has been failing: its jobs wait, and its breaker lets one through "
        f"in about {print_duration(after_s)}."
    )
    return QueueEtaView(None, None, None, None, message)
