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
    yield from (state, trips, limits, gates, values, degraded)
