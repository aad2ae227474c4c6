"""scrape: the metrics of a server as samples, and how far its clock is from ours."""

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from forebay.cli.show import Stop
from forebay.client import plans
from forebay.client.wire import Call

if TYPE_CHECKING:
    from forebay.client import Client

SAMPLES_MAX = 200_000
CLOCK_UNSURE_MAX_S = 1.0  # of an answer that took longer nothing is said


class Sample(NamedTuple):
    """One line of an exposition."""

    name: str
    labels: dict[str, str]
    value: float


class Scrape(NamedTuple):
    """What one look at the metrics brought."""

    samples: list[Sample]
    clock_ahead_s: float | None  # of the server, less what cannot be known; None: not told well enough


def scrape(client: "Client") -> Scrape:
    """Ask for the metrics. Raises ForebayError when there is no answer, Stop when it holds no metrics."""
    before = time.time()
    answer = client.run(plans.send(Call("GET", "/metrics"), client.terms))
    after = time.time()
    return Scrape(samples_of(answer.body), clock_ahead_s(answer.headers.get("date", ""), before, after))


def samples_of(body: bytes) -> list[Sample]:
    """Return the samples of an exposition in Prometheus' text format."""
    from prometheus_client.parser import text_string_to_metric_families

    found: list[Sample] = []
    try:
        for family in text_string_to_metric_families(body.decode()):
            found += [Sample(one.name, dict(one.labels), float(one.value)) for one in family.samples]
            if len(found) > SAMPLES_MAX:
                raise Stop(f"/metrics: more than {SAMPLES_MAX:,} samples", 1)
    except (ValueError, KeyError):
        raise Stop("/metrics: not the metrics of a Forebay server", 1) from None
    return found


def clock_ahead_s(date: str, before: float, after: float) -> float | None:
    """Return how far a clock that said `date` between two instants of ours is ahead, at least: a date counts
    whole seconds, and the call took its time. None: no date, or a slow call."""
    try:
        said = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    if after - before > CLOCK_UNSURE_MAX_S:
        return None
    if said > after:
        return said - after
    return min(0.0, said + 1.0 - before)
