"""CountsGauge: what tasks and tenants hold, as the newest script of this process found it, in memory."""

from collections.abc import Sequence

from forebay.brokers.redis.store import Counts
from forebay.brokers.shared.gauge import Gauge


class CountsGauge(Gauge):
    """A Gauge that is told of what changed, and of everything at each look."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int, int, str], tuple[int, int]] = {}

    def changed(self, counts: Counts) -> None:
        """Take in the counts that a script changed."""
        for task, priority, state, tenant, jobs, size in counts:
            key = (task, priority, state, tenant)
            before, before_b = self._counts.pop(key, (0, 0))
            if jobs:
                self._counts[key] = (jobs, size)
            self.moved(task, tenant, state, jobs - before, size - before_b)

    def looked(self, counts: Counts, taps: Sequence[tuple[str, bool, bool]]) -> None:
        """Take in everything there is."""
        self._counts = {
            (task, priority, state, tenant): (jobs, size)
            for task, priority, state, tenant, jobs, size in counts
        }
        self.saw([(task, tenant, state, jobs, size) for task, _, state, tenant, jobs, size in counts], taps)
