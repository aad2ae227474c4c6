"""Guarding: breakers, what stands in for what they hold back, and limits of upstreams, as families."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.observe.meters import Meters

_STATES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}


def guarding(meters: Meters) -> Iterator[Metric]:
    """Yield the families."""
    state = GaugeMetricFamily(
        "inference_breaker_state", "0 closed, 1 half-open, 2 open", labels=["breaker", "worker"]
    )
    for (worker, name), word in meters.breakers.items():
        state.add_metric([name, worker], _STATES.get(word, 0.0))
    trips = CounterMetricFamily(
        "inference_breaker_trips", "Times a breaker went from closed to open", labels=["breaker"]
    )
    for name, count in meters.breaker_trips.items():
        trips.add_metric([name], count)
    limits = GaugeMetricFamily(
        "inference_upstream_concurrency_limit", "Calls at once, 0 while it said not now", labels=["task"]
    )
    for task, calls in meters.limits.items():
        limits.add_metric([task], calls)
    gates = GaugeMetricFamily(
        "inference_upstream_gate_closed", "1 while no call begins, as the upstream is full", labels=["task"]
    )
    values = GaugeMetricFamily(
        "inference_upstream_saturation", "What the gate goes by; absent while unknown", labels=["task"]
    )
    for task, (stand, value) in meters.gates.items():
        gates.add_metric([task], float(stand == "closed"))
        if value is not None:
            values.add_metric([task], value)
    degraded = CounterMetricFamily("inference_degraded", "Results below what was asked for", labels=["level"])
    for level, count in meters.degraded.items():
        degraded.add_metric([level], count)
    levels = GaugeMetricFamily(
        "inference_level", "Variant that runs ordinary work, 0 is the task itself", labels=["task"]
    )
    for task, now in meters.levels.items():
        levels.add_metric([task], now)
    yield levels
    yield from (state, trips, *_of_tasks(meters), limits, gates, values, degraded)


def _of_tasks(meters: Meters) -> Iterator[Metric]:
    """Yield what the breakers inside handlers are to each task."""
    inside = GaugeMetricFamily(
        "inference_task_breaker_state",
        "Of a named breaker that guards calls of a task: the worst of its workers",
        labels=["task", "breaker"],
    )
    opened = GaugeMetricFamily(
        "inference_task_breaker_open_workers", "Workers in which it is open", labels=["task", "breaker"]
    )
    for (task, name), words in _inside(meters).items():
        inside.add_metric([task, name], max(_STATES.get(word, 0.0) for word in words))
        opened.add_metric([task, name], words.count("open"))
    yield from (inside, opened)


def _inside(meters: Meters) -> dict[tuple[str, str], list[str]]:
    """Return the states of each breaker that guards calls of a task, of the workers that run it."""
    by_lane: dict[tuple[str, str], list[str]] = {}
    for (worker, name), word in meters.breakers.items():
        by_lane.setdefault((worker.rpartition("/")[0], name), []).append(word)
    found = {
        (task, name): [word for lane in lanes for word in by_lane.get((lane, name), ())]
        for (task, name), lanes in meters.breaker_uses.items()
    }
    return {key: words for key, words in found.items() if words}
