"""Lookout: what looks at the queues all the time: their depths, the peaks of these, and the alerts."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from forebay.core.peak import Peak
from forebay.observe.alarms import AlarmWatch, Readings
from forebay.observe.depths import Depths
from forebay.observe.machine import MachineMeters
from forebay.observe.meters import Meters
from forebay.observe.sampler import DepthSampler
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock


class Lookout:
    """Begins and ends them together. `bounds` are the jobs and bytes each task may hold,
    `data` is the directory of the store. Without `of_queues`
    nobody is alerted of queues here: of several processes on one engine those tell that answer for them."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        log: Any,
        bounds: Mapping[str, tuple[int, int]],
        peaks: Mapping[str, Peak],
        meters: Meters,
        data: Path,
        *,
        of_queues: bool,
    ) -> None:
        self.depths = Depths(broker, bounds, clock)
        self.sampler = DepthSampler(peaks, broker, clock)
        self.machine = MachineMeters(clock.now, data=data)
        readings = Readings(
            depths=self.depths.seen if of_queues else dict,
            capacities={task: jobs for task, (jobs, _) in bounds.items()},
            meters=meters,
            machine=self.machine,
            now=clock.now,
        )
        self.alarms = AlarmWatch(readings.now, clock, log)

    def families(self) -> Iterator[Metric]:
        """Yield what the machine and the alerts have to show, at a scrape."""
        yield from self.machine.families()
        yield from self.alarms.families()

    def start(self) -> None:
        """Begin."""
        for one in (self.depths, self.sampler, self.alarms):
            one.start()

    async def close(self) -> None:
        """Stop; twice is harmless."""
        for one in (self.alarms, self.sampler, self.depths):
            await one.close()
