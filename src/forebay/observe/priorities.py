"""by_priority: how many wait of each priority, since when, and how long they waited: who starves is seen."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.core.job import Depth
from forebay.observe.meters import TaskMeter

_LABELS = ("task", "priority")


def by_priority(depths: Mapping[str, Depth], meters: Iterable[TaskMeter], now: float) -> Iterator[Metric]:
    """Yield the families by task and priority, 0 to 9; a priority that was seen and has nothing is 0."""
    length = GaugeMetricFamily("inference_priority_queue_length", "Jobs that may run now", labels=_LABELS)
    oldest = GaugeMetricFamily(
        "inference_priority_oldest_age_seconds", "How long the oldest of them has waited", labels=_LABELS
    )
    waited = SummaryMetricFamily("inference_priority_wait_seconds", "Ready to granted", labels=_LABELS)
    for meter in meters:
        depth = depths.get(meter.task)
        lines = {} if depth is None else {line.priority: line for line in depth.lines}
        for priority in sorted({*lines, *meter.waited}):
            labels, line = [meter.task, str(priority)], lines.get(priority)
            length.add_metric(labels, 0 if line is None else line.queued)
            oldest.add_metric(labels, 0.0 if line is None else max(0.0, now - line.oldest_at))
            count, total = meter.waited.get(priority, (0, 0.0))
            waited.add_metric(labels, count, total)
    yield from (length, oldest, waited)
