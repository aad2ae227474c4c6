"""Report: what a pipeline has done, by stream and by stage; plain values, ready for JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from forebay.core.accounts import StreamAccount
from forebay.core.throttling import CpuStat


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """One stream. `sent == served + sum(dropped.values()) + in_flight`, always; times count from capture."""

    stream: str
    sent: int
    served: int
    in_flight: int
    dropped: Mapping[str, int]
    drop_ratio: float
    alert: bool  # 0.1 % or more was dropped
    degraded_ratio: float  # of those served
    degraded: Mapping[str, int]  # by step of a ladder
    fallback: int
    p50_s: float | None  # of what was served in the last half minute to minute
    p95_s: float | None
    p99_s: float | None
    run_p50_s: float | None  # of all that was served
    run_p95_s: float | None
    run_p99_s: float | None
    depth: int = 0  # frames that wait at any stage
    source: Mapping[str, int] = field(default_factory=dict[str, int])  # what its source counted itself


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One stage and the queue before it. Shares are of the time since the start."""

    stage: str
    depth: int
    capacity: int
    size_bytes: int
    capacity_bytes: int | None
    oldest_age_s: float
    level: int  # the step of its ladder now
    replicas: int
    processes: bool
    calls: int
    handed_on: int
    dropped: Mapping[str, int]
    service_p50_s: float | None  # of one call
    service_p99_s: float | None
    producer_wait_ratio: float
    consumer_idle_ratio: float
    restarts: Mapping[str, int]  # of processes, by reason
    breaker: str | None
    breaker_trips: int
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A pipeline at one instant, or at its end."""

    pipeline: str
    state: str  # starting, running, draining, ended
    seconds: float
    streams: tuple[StreamReport, ...]
    stages: tuple[StageReport, ...]
    sink_errors: int
    sinks: Mapping[str, int]
    cpus: float | None = None  # of the CPU quota that holds this process, None without one
    throttled: CpuStat | None = None  # what it cut since the start

    @property
    def throttled_ratio(self) -> float:
        """The share of the periods of the CPU quota in which it cut this process off, 0 without one."""
        return 0.0 if self.throttled is None else self.throttled.ratio

    @property
    def sent(self) -> int:
        """Frames of all streams that were offered."""
        return sum(one.sent for one in self.streams)

    @property
    def served(self) -> int:
        """Frames of all streams that came out."""
        return sum(one.served for one in self.streams)

    @property
    def dropped(self) -> int:
        """Frames of all streams that did not."""
        return sum(sum(one.dropped.values()) for one in self.streams)

    @property
    def drop_ratio(self) -> float:
        """The share of what was sent that was dropped."""
        return self.dropped / self.sent if self.sent else 0.0

    def items(self) -> list[dict[str, Any]]:
        """Return its streams as GET /v1/streams shows them."""
        return [{"pipeline": self.pipeline, "state": self.state, **asdict(one)} for one in self.streams]

    def stage_items(self) -> list[dict[str, Any]]:
        """Return its stages as GET /v1/streams shows them."""
        return [{"pipeline": self.pipeline, **asdict(one)} for one in self.stages]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return asdict(self)


def stream_report(name: str, account: StreamAccount, depth: int, source: Mapping[str, int]) -> StreamReport:
    """Return an account for readers."""
    degraded = {str(step): count for step, count in sorted(account.degraded.items())}
    lately, ever = account.recent_quantile, account.latency.quantile
    return StreamReport(
        stream=name,
        sent=account.sent,
        served=account.served,
        in_flight=account.in_flight,
        dropped=dict(sorted(account.dropped.items())),
        drop_ratio=account.drop_share,
        alert=account.alert,
        degraded_ratio=sum(degraded.values()) / account.served if account.served else 0.0,
        degraded=degraded,
        fallback=account.fallback,
        p50_s=lately(0.5),
        p95_s=lately(0.95),
        p99_s=lately(0.99),
        run_p50_s=ever(0.5),
        run_p95_s=ever(0.95),
        run_p99_s=ever(0.99),
        depth=depth,
        source=source,
    )
