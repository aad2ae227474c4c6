"""The shapes of answers: what cold routes encode, and what the OpenAPI document says of all of them."""

from typing import Any

import msgspec

from forebay.server.asks import AmendAsk, EraseAsk, RedriveAsk
from forebay.server.blob_views import BlobView, ErasedView
from forebay.server.breaker_views import BreakerView, InnerBreakerView, TaskBreakerView
from forebay.server.eta_views import EtaAccuracyView, EtaView, QueueEtaView
from forebay.server.node_views import NodeList, NodeView
from forebay.server.timeline import ErrorView, EventView


class LinksView(msgspec.Struct, omit_defaults=True):
    """Where to go on; `deliveries` where there is a callback, `download` (signed) where `link_ttl` is set."""

    self: str
    result: str
    events: str
    deliveries: str | None = None
    download: str | None = None


class JobView(msgspec.Struct, kw_only=True):
    """A job. `status` is the coarse word, `state` the exact one; `result` is null in lists. `degraded` says
    that the result is not of the task itself: `fallback`."""

    job_id: str
    task: str
    status: str
    state: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    run_at: str
    expires_at: str | None
    deadline_at: str | None
    retry_at: str | None
    attempt: int
    attempts_max: int
    priority: int | str
    ordering_key: str | None
    waits_for: str | None
    cancel_requested: bool
    degraded: str | None
    progress: Any
    result: Any
    error: ErrorView | None
    position: int | None
    eta: EtaView | None
    links: LinksView
    metadata: dict[str, str | int | float | bool | None]
    redriven_from: str | None
    redriven_as: str | None
    timeline: list[EventView]
    spooled: bool = (
        False  # there when true: the store is away, and the job waits on this server's disk for it
    )


class JobList(msgspec.Struct):
    """One page, newest first. `next_cursor` null is the end; a page may be short and not the last."""

    items: list[JobView]
    next_cursor: str | None


class ServiceView(msgspec.Struct):
    """What runs took: `fixed_s + n * each_s` for n items; `variance` is relative to the mean squared;
    `p999_s` is the slowest of the runs while there were fewer than 1,000."""

    fixed_s: float
    each_s: float
    variance: float
    runs: int
    p999_s: float


class BackoffView(msgspec.Struct):
    """The longest pause after the first failed attempt, by what each next one is longer, and the cap."""

    base_s: float
    factor: float
    cap_s: float


class VariantView(msgspec.Struct):
    """A cheaper way to do a task: it runs from `enter` of the reservoir on and not below `leave`; `quality`
    is beside the task itself, which is 1."""

    level: int
    name: str
    quality: float | None
    enter: float
    leave: float


class TaskView(msgspec.Struct):
    """A served task: its schemas, limits and measured service."""

    task: str
    kind: str
    description: str
    version: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    batch_max: int
    batch_wait_s: float
    timeout_s: float
    attempts_max: int
    backoff: BackoffView
    ttl_s: float
    deadline_s: float | None
    priority: int
    queue_max: int
    queue_bytes_max: int
    concurrency: int
    lease_s: float
    heartbeat_s: float
    grace_s: float
    replicas: int
    service: ServiceView | None
    service_p50_s: float | None
    service_p90_s: float | None
    capacity_per_s: float | None
    eta_accuracy: EtaAccuracyView | None
    breaker: BreakerView | None
    breakers: list[TaskBreakerView]  # named ones inside its handlers that guarded a call of it
    fallback: str | None
    level: int  # which variant runs ordinary work now, 0 is the task itself
    variants: list[VariantView]


class TaskList(msgspec.Struct):
    """All served tasks."""

    items: list[TaskView]
    next_cursor: str | None = None


class RatesView(msgspec.Struct):
    """Jobs a second: what came of late, the p99 and the largest count of a sliding second over the last hour,
    what left of late, and what could leave, null where nothing was measured."""

    arrivals_per_s: float
    arrivals_p99_per_s: float
    arrivals_max_per_s: float
    drain_per_s: float
    capacity_per_s: float | None


class WatermarksView(msgspec.Struct):
    """From where on producers should slow down, as shares of capacity."""

    soft: float
    soft_low: float
    level: float


class RequestsView(msgspec.Struct):
    """What a task holds of requests: in memory, each until its deadline."""

    waiting: int
    running: int
    capacity: int
    bytes: int
    bytes_capacity: int
    wait_s: float | None  # one that comes now would start in so long


class QueueView(msgspec.Struct):
    """One task's queue: `depth` may run now, `depth_peak` is its largest 100 ms sample of the last minute,
    `open` also waits for a time or runs. Null: not told here."""

    task: str
    depth: int
    depth_peak: int | None
    open: int | None
    running: int | None
    scheduled: int | None
    retrying: int | None
    dead: int | None
    capacity: int
    bytes: int | None
    bytes_capacity: int
    oldest_age_s: float | None
    rates: RatesView
    service_p50_s: float | None
    service_p90_s: float | None
    eta: QueueEtaView | None
    eta_accuracy: EtaAccuracyView | None
    watermarks: WatermarksView
    breaker: BreakerView | None
    paused: bool
    draining: bool
    replicas_wanted: int | None  # on all nodes together
    requests: RequestsView | None = None  # null: none are served here, or not told


class QueueList(msgspec.Struct):
    """All queues."""

    items: list[QueueView]
    next_cursor: str | None = None


class EraseView(msgspec.Struct):
    """How many jobs were removed, and how many still run. `done` false: ask again."""

    removed: int
    running: int
    done: bool
    scrubbed: bool


class WorkerView(msgspec.Struct):
    """One replica."""

    worker: str
    task: str | None
    device: str | None
    state: str
    pid: int | None
    batch: list[str] | int | None
    memory_bytes: int | None
    restarts: int
    last_crash: Any
    breakers: list[InnerBreakerView]
    started_at: str | None
    node: str | None = None  # the process that holds it: another name after each start


class WorkerList(msgspec.Struct):
    """All replicas of this node; on an engine that is shared, those of every node on it."""

    items: list[WorkerView]
    next_cursor: str | None = None


class HealthView(msgspec.Struct):
    """Whether the process is alive, or ready."""

    status: str
    reason: str | None = None


class FieldErrorView(msgspec.Struct):
    """One field that breaks a rule."""

    path: str
    rule: str


class ProblemView(msgspec.Struct, omit_defaults=True):
    """RFC 9457 problem. `code` is stable and for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry_after_s: float | None = None
    service_s: float | None = None
    limit: float | int | None = None
    errors: list[FieldErrorView] = []
    earliest_p50_at: str | None = None
    earliest_p90_at: str | None = None
    ttl_needed_s: float | None = None
    deadline_needed_at: str | None = None


class SubmissionView(msgspec.Struct, omit_defaults=True):
    """One job to do. Durations are seconds or texts like "250ms", times RFC 3339 with a zone."""

    task: str
    payload: Any
    priority: int | str | None = None
    ttl: int | float | str | None = None
    deadline: int | float | str | None = None
    run_at: str | None = None
    metadata: dict[str, str | int | float | bool | None] | None = None
    attempts_max: int | None = None
    idempotency_key: str | None = None
    callback_url: str | None = None
    ordering_key: str | None = None


class VerdictView(msgspec.Struct, omit_defaults=True):
    """The verdict on one line: `job_id` when `status` is 202 or 200, else the members of a problem."""

    line: int
    status: int
    job_id: str | None = None
    replayed: bool | None = None
    joined: bool | None = None
    spooled: bool | None = None
    type: str | None = None
    title: str | None = None
    detail: str | None = None
    code: str | None = None
    retry_after_s: float | None = None
    service_s: float | None = None
    limit: float | int | None = None
    errors: list[FieldErrorView] | None = None


ALL = (
    JobView, JobList, TaskView, TaskList, QueueView, QueueList, RedriveAsk, EraseAsk, EraseView, WorkerView,
    WorkerList, BreakerView, InnerBreakerView, TaskBreakerView, HealthView, ProblemView, SubmissionView,
    AmendAsk, VerdictView, BlobView, ErasedView, NodeView, NodeList,
)  # fmt: skip
