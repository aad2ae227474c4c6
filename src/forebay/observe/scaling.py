"""Scaling: how many replicas tasks have and would need, as families."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.core.estimator import Estimator
from forebay.core.job import Depth
from forebay.core.scaling import wanted_of
from forebay.core.task import TaskSpec
from forebay.observe.meters import Meters


def wanted_by_task(
    tasks: Mapping[str, TaskSpec],
    estimators: Mapping[str, Estimator],
    wait_s: float,
    depths: Mapping[str, Depth],
    now: float,
) -> dict[str, int]:
    """Return how many replicas each task needs on all nodes together; a paused one none for what waits."""
    return {
        name: wanted_of(
            estimators[name],
            tasks[name],
            waiting=0 if depth.paused else depth.queued,
            running=depth.running,
            wait_s=wait_s,
            now=now,
        )
        for name, depth in depths.items()
    }


def scaling(meters: Meters, needed: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the families; `needed` is how many replicas each task would need on all nodes together."""
    kept = GaugeMetricFamily(
        "inference_replicas", "Replicas of a range that this node has now, or starts", labels=["task"]
    )
    for task, count in meters.replicas.items():
        kept.add_metric([task], count)
    changes = CounterMetricFamily(
        "inference_replica_changes", "Times that their number changed", labels=["task", "direction"]
    )
    for key, count in meters.replica_changes.items():
        changes.add_metric(key, count)
    wanted = GaugeMetricFamily(
        "inference_replicas_wanted",
        "Replicas on all nodes with which what waits starts within replicas_wait; 0: nothing waits or runs",
        labels=["task"],
    )
    for task, count in needed.items():
        wanted.add_metric([task], count)
    yield from (kept, changes, wanted)
