"""of_spool: what waits beside an engine that is away, as Prometheus families."""

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.ports.broker import Broker
from forebay.ports.spool import spool_of


def of_spool(broker: Broker) -> list[Metric]:
    """Return its families; none where submissions are not spooled."""
    spool = spool_of(broker)
    if spool is None:
        return []
    return [
        GaugeMetricFamily(
            "inference_spooled", "Submissions that wait on this machine for the store", len(spool)
        ),
        GaugeMetricFamily("inference_spooled_bytes", "Their bytes", spool.bytes),
    ]
