"""Delivering: what a relay did with its message broker, as families, and whether that broker is there."""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.observe.spool import of_spool
from forebay.ports.broker import Broker
from forebay.ports.delivery import delivery_of


def of_delivery(broker: Broker) -> Iterator[Metric]:
    """Yield the families; none where there is no message broker."""
    delivery = delivery_of(broker)
    if delivery is None:
        return
    told = delivery.told()
    up = GaugeMetricFamily("inference_delivery_up", "1 while the message broker works", labels=["broker"])
    up.add_metric([told.broker], float(told.up))
    hints = CounterMetricFamily(
        "inference_delivery_hints", "Hints of work, by what became of them", labels=["event"]
    )
    for event, count in told.events.items():
        hints.add_metric([event], count)
    requests = CounterMetricFamily(
        "inference_delivery_requests", "Requests to the message broker", labels=["verb"]
    )
    for verb, count in told.requests.items():
        requests.add_metric([verb], count)
    waiting = GaugeMetricFamily("inference_delivery_pending", "Hints that wait to be sent", labels=[])
    waiting.add_metric([], told.pending)
    yield from (up, hints, requests, waiting)


def of_engine(broker: Broker) -> Iterator[Metric]:
    """Yield the families of what stands before a store: a spool, a message broker."""
    yield from of_spool(broker)
    yield from of_delivery(broker)


def said_of(log: Any) -> Callable[[BaseException | None], None]:
    """Return who logs that the message broker went away, and why, or that it is back."""

    def say(error: BaseException | None) -> None:
        if error is None:
            log.info("delivery_back")
        else:
            log.warning("delivery_down", error=str(error), hint="jobs go on by the store alone")

    return say
