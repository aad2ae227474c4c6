"""LaneMeters: what the lanes of a node tell (node.facts.LaneFacts), counted and logged."""

from collections.abc import Sequence

from forebay.core.actions import KillReplica
from forebay.core.batching import Trigger
from forebay.core.degraded import level_word
from forebay.core.job import Lease, Transition
from forebay.core.lifecycle import FINAL, Event, State
from forebay.core.quarantine import DeadlyInput
from forebay.core.requests import End, Ended
from forebay.core.variants import Moved
from forebay.observe.logs import Seldom
from forebay.observe.meters import Meters


class LaneMeters:
    """Feeds the meters of the tasks. Cheap enough for every job; never raises."""

    def __init__(self, meters: Meters, log: Seldom) -> None:
        self._meters = meters
        self._log = log

    def leased(self, task: str, leases: Sequence[Lease], now: float) -> None:
        """These were granted; their wait in the queue ended."""
        if leases:
            waits = [max(0.0, lease.leased_at - lease.ready_at) for lease in leases]
            self._meters.for_task(task).granted([lease.job.priority for lease in leases], waits)

    def batch(self, task: str, size: int, trigger: Trigger) -> None:
        """A run of `size` items was sent to a child."""
        self._meters.for_task(task).batch_size.observe(size)

    def settled(
        self,
        transitions: Sequence[Transition],
        leases: Sequence[Lease],
        applied: Sequence[bool],
        now: float,
    ) -> None:
        """These were offered to the store; those not applied were stale and changed nothing."""
        completed: dict[str, list[float]] = {}
        succeeded = State.SUCCEEDED
        for transition, lease, done in zip(transitions, leases, applied, strict=True):
            job = lease.job
            if done and transition.state is succeeded:  # nearly all: grouped, the rest one by one
                latencies = completed.get(job.task)
                if latencies is None:
                    latencies = completed[job.task] = []
                latencies.append(now - job.created_at)
                if transition.degraded:
                    self._count_degraded(transition.degraded)
                continue
            meter = self._meters.for_task(job.task)
            if not done:
                meter.stale()
                continue
            meter.attempted(transition.event.value)
            if transition.state in FINAL:
                meter.latency_s.observe(now - job.created_at)
        for task, latencies in completed.items():
            meter = self._meters.for_task(task)
            meter.attempted(Event.COMPLETED.value, len(latencies))
            meter.latency_s.observe_many(latencies)

    def condemned(self, deadly: DeadlyInput) -> None:
        """An input went into quarantine."""
        self._log.warning(
            "input_quarantined",
            about=deadly.fingerprint.hex(),
            task=deadly.task,
            version=deadly.version,
            fingerprint=deadly.fingerprint.hex(),
            deaths=deadly.deaths,
            job_id=deadly.job_id,
        )

    def _count_degraded(self, level: int) -> None:
        word, counts = level_word(level) or "", self._meters.degraded
        counts[word] = counts.get(word, 0) + 1

    def foretold(self, task: str, error_s: float) -> None:
        """A job ended so much later than was told at its submission (p50); negative: earlier."""
        self._meters.foretold(task, error_s)

    def answered(self, ended: Ended, now: float) -> None:
        """A request has ended."""
        request = ended.request
        meter = self._meters.for_task(request.job.task)
        came_at = request.job.created_at
        meter.requests[ended.end.value] = meter.requests.get(ended.end.value, 0) + 1
        if request.started_at is not None:
            meter.wait_s.observe(max(0.0, request.started_at - came_at))
        if ended.end is End.DONE:
            if request.level:
                self._count_degraded(request.level)
            meter.latency_s.observe(max(0.0, now - came_at))
            meter.slo_good += now <= request.deadline_at

    def lost(self, count: int) -> None:
        """So many leases were found lost at a renewal."""
        self._log.warning("leases_lost", count=count)

    def killed(self, kill: KillReplica) -> None:
        """A child is being killed on purpose."""
        self._log.warning(
            "child_killed",
            reason=kill.reason.value,
            worker=kill.name,
            task=kill.task,
            jobs=list(kill.job_ids),
        )

    def limited(self, task: str, calls: int) -> None:
        """An upstream is called so often at once from now on."""
        self._meters.limits[task] = calls

    def gated(self, task: str, stand: str, value: float | None, reason: str) -> None:
        """The gate of an upstream was looked at; with a reason it stands otherwise than before."""
        self._meters.gates[task] = (stand, value)
        if reason:
            self._log.warning(f"gate_{stand}", about=task, task=task, value=value, reason=reason)

    def scaled(self, task: str, replicas: int, was: int | None = None, reason: str = "") -> None:
        """A task has so many replicas from now on, for this reason; without `was` as it begins. As many as
        before: it needs more that cannot be had."""
        self._meters.scaled(task, replicas, was)
        if was is not None:
            event = "replicas_added" if replicas > was else "replicas_removed"
            if replicas == was:
                self._meters.bound_reached("REPLICAS_ROOM")
                event = "replicas_short"
            about = f"{task} {was} {replicas}"
            self._log.warning(event, about=about, task=task, replicas=replicas, was=was, reason=reason)

    def moved(self, task: str, level: int, moved: Moved) -> None:
        """Ordinary work of a task runs at this level from now on."""
        self._meters.levels[task] = level
        event = "degrading" if moved.step > moved.was else "recovering"
        self._log.warning(event, about=task, task=task, level=level, fill=round(moved.fill, 2))

    def breaker(
        self, worker: str, name: str, state: str, trips: int, reason: str, tasks: Sequence[str] = ()
    ) -> None:
        """A breaker of a worker or a task is in `state` now and tripped so often since it was last told."""
        self._meters.breaker(worker, name, state, trips)
        self._meters.breaker_used(worker, name, tasks)
        if trips > 0:
            self._log.warning("breaker_opened", breaker=name, worker=worker, reason=reason)

    def breakers_gone(self, worker: str) -> None:
        """The process that held these breakers is gone."""
        self._meters.breakers_gone(worker)

    def failed(self, verb: str, error: BaseException) -> None:
        """A verb of the engine failed; it is tried again unless the store is broken."""
        self._log.error("store_failed", verb=verb, error=str(error))
