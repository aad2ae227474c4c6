"""Together: families of metrics from two places as one exposition."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class Together(Collector):
    """Ours and those of others; of one name they are one family, and what has the same labels is added up."""

    def __init__(self, ours: Collector, others: Callable[[], Iterable[Metric]]) -> None:
        self._ours = ours
        self._others = others

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry need not collect to register."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        others = {family.name: family for family in self._others()}
        for family in self._ours.collect():
            same = others.pop(family.name, None)
            if same is not None:
                family.samples = added([*family.samples, *same.samples])
            yield family
        yield from others.values()


def added(samples: Iterable[Sample]) -> list[Sample]:
    """Return one sample for each name and set of labels."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        before = found.get(key)
        found[key] = sample if before is None else sample._replace(value=before.value + sample.value)
    return list(found.values())
