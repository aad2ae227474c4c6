"""Exposition: a pipeline's report as Prometheus families."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.pipeline.report import Report, StageReport, StreamReport

_Shown = TypeVar("_Shown", StreamReport, StageReport)
_STATES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}


class Exposition(Collector):
    """What a scrape of a pipeline gets. `report` is asked at each."""

    def __init__(self, report: Callable[[], Report]) -> None:
        self._report = report
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> bytes:
        """Return the text of an exposition."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry need not collect to register."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        report = self._report()
        yield from of_streams(report.streams)
        yield from of_stages(report.stages)
        yield GaugeMetricFamily(
            "inference_cpu_throttled_ratio",
            "Share of the periods of the CPU quota in which it was cut off, since the start",
            report.throttled_ratio,
        )
        yield CounterMetricFamily(
            "inference_sink_errors", "Results that a sink failed on", report.sink_errors
        )


def of_board(streams: Iterable[Mapping[str, object]], stages: Iterable[Mapping[str, object]]) -> list[Metric]:
    """Return the families of what a board shows, for the scrape of a server. Labels begin with the name of
    the pipeline: several may have a stream or a stage, and the server a task, of one name."""
    shown_streams = [_as(StreamReport, one, "stream") for one in streams]
    shown_stages = [_as(StageReport, one, "stage") for one in stages]
    return [*of_streams(shown_streams), *of_stages(shown_stages)]


def _as(kind: type[_Shown], item: Mapping[str, object], name: str) -> _Shown:
    return msgspec.convert({**item, name: f"{item['pipeline']}/{item[name]}"}, kind)


def of_streams(streams: Iterable[StreamReport]) -> Iterator[Metric]:
    """Yield the families of streams."""
    arrivals = CounterMetricFamily("inference_stream_frames", "Frames that sources gave", labels=["stream"])
    served = CounterMetricFamily("inference_stream_served", "Frames that came out", labels=["stream"])
    flying = GaugeMetricFamily("inference_stream_in_flight", "Frames on their way", labels=["stream"])
    dropped = CounterMetricFamily(
        "inference_dropped", "Frames that were not served", labels=["stream", "reason"]
    )
    share = GaugeMetricFamily("inference_drop_ratio", "Share of the frames sent", labels=["stream"])
    degraded = CounterMetricFamily("inference_degraded", "Results below what was asked for", labels=["level"])
    latency = GaugeMetricFamily(
        "inference_stream_latency_seconds", "From capture, of the last minute", labels=["stream", "quantile"]
    )
    levels: Counter[str] = Counter()
    for one in streams:
        arrivals.add_metric([one.stream], one.sent)
        served.add_metric([one.stream], one.served)
        flying.add_metric([one.stream], one.in_flight)
        share.add_metric([one.stream], one.drop_ratio)
        for reason, count in one.dropped.items():
            dropped.add_metric([one.stream, reason], count)
        for quantile, seconds in (("p50", one.p50_s), ("p95", one.p95_s), ("p99", one.p99_s)):
            if seconds is not None:
                latency.add_metric([one.stream, quantile], seconds)
        levels.update(one.degraded)
        levels["fallback"] += one.fallback
    for level, count in levels.items():
        degraded.add_metric([level], count)
    yield from (arrivals, served, flying, dropped, share, degraded, latency)


def of_stages(stages: Iterable[StageReport]) -> Iterator[Metric]:
    """Yield the families of stages. A stage is a task to those who watch queues."""

    def gauge(name: str, text: str, label: str = "task") -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=[label])

    length = gauge("inference_queue_length", "Frames that wait")
    size = gauge("inference_queue_bytes", "Bytes of the frames that wait")
    capacity = gauge("inference_queue_capacity", "Frames that may wait")
    oldest = gauge("inference_queue_oldest_age_seconds", "Since the capture of the oldest that waits")
    waits = gauge("inference_producer_wait_ratio", "Share of the time that those before it wait", "stage")
    idle = gauge("inference_consumer_idle_ratio", "Share of the time that it waits for frames", "stage")
    took = GaugeMetricFamily("inference_stage_seconds", "Of one call", labels=["stage", "quantile"])
    restarts = CounterMetricFamily(
        "inference_worker_restarts", "Processes started again", labels=["task", "reason"]
    )
    state = gauge("inference_breaker_state", "0 closed, 1 half-open, 2 open", "breaker")
    trips = CounterMetricFamily("inference_breaker_trips", "Times it opened", labels=["breaker"])
    for one in stages:
        length.add_metric([one.stage], one.depth)
        size.add_metric([one.stage], one.size_bytes)
        capacity.add_metric([one.stage], one.capacity)
        oldest.add_metric([one.stage], one.oldest_age_s)
        waits.add_metric([one.stage], one.producer_wait_ratio)
        idle.add_metric([one.stage], one.consumer_idle_ratio)
        for quantile, seconds in (("p50", one.service_p50_s), ("p99", one.service_p99_s)):
            if seconds is not None:
                took.add_metric([one.stage, quantile], seconds)
        for reason, count in one.restarts.items():
            restarts.add_metric([one.stage, reason], count)
        if one.breaker is not None:
            state.add_metric([one.stage], _STATES[one.breaker])
            trips.add_metric([one.stage], one.breaker_trips)
    yield from (length, size, capacity, oldest, waits, idle, took, restarts, state, trips)
