"""AlarmWatch: looks each second whether something should wake somebody, logs it, and shows it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.core.alerting import MACHINE, Alarms, Change, Firing, Severity, Signal, Signals, task_signals
from forebay.core.job import Depth
from forebay.loops import goes_on
from forebay.observe.machine import MachineMeters
from forebay.observe.meters import Meters
from forebay.ports.clock import Clock

LOOK_S: Final = 1.0
MACHINE_LOOK_S: Final = 5.0  # files of the kernel are asked this often


class AlarmWatch:
    """One loop. `read` returns the signals of now from memory."""

    def __init__(self, read: Callable[[], Signals], clock: Clock, log: Any) -> None:
        self._alarms = Alarms()
        self._read = read
        self._clock = clock
        self._log = log
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.ensure_future(goes_on(self._run, "look for alerts"))

    async def close(self) -> None:
        """Stop; twice is harmless."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None

    def firing(self) -> list[Firing]:
        """Return what fires now, the most urgent first."""
        return self._alarms.firing()

    def look(self) -> None:
        """Look once."""
        for change in self._alarms.see(self._read(), now=self._clock.now()):
            self._tell(change)

    def families(self) -> Iterator[Metric]:
        """Yield what fires as a family."""
        family = GaugeMetricFamily(
            "inference_alert_firing", "1 while a shipped alert fires", labels=["alert", "subject"]
        )
        for one in self.firing():
            family.add_metric([one.alert.name, one.subject], 1.0)
        yield family

    def _tell(self, change: Change) -> None:
        one = change.firing
        facts: dict[str, object] = {
            "alert": one.alert.name,
            "subject": one.subject,
            "value": round(one.value, 3),
        }
        if not change.began:
            self._log.info("alert_ended", **facts, lasted_s=round(self._clock.now() - one.since, 1))
            return
        say = self._log.error if one.alert.severity is Severity.CRITICAL else self._log.warning
        say("alert", **facts, says=one.text, look=one.alert.look)

    async def _run(self) -> None:
        self.look()
        await self._clock.sleep(LOOK_S)


class Readings:
    """The signals of one process. `depths` is empty where this process does not answer for the queues."""

    def __init__(
        self,
        *,
        depths: Callable[[], Mapping[str, Depth]],
        capacities: Mapping[str, int],
        meters: Meters,
        machine: MachineMeters,
        now: Callable[[], float],
    ) -> None:
        self._depths = depths
        self._capacities = capacities
        self._meters = meters
        self._machine = machine
        self._now = now
        self._looked_at = float("-inf")
        self._looked: dict[Signal, dict[str, float]] = {}

    def now(self) -> dict[Signal, dict[str, float]]:
        """Return every signal."""
        at, meters = self._now(), self._meters
        found = task_signals(self._depths(), self._capacities, now=at)
        found[Signal.RESTARTS] = {
            meter.task: float(sum(count for reason, count in meter.restarts.items() if reason != "recycled"))
            for meter in meters.by_task.values()
        }
        found[Signal.TRIPS] = {name: float(count) for name, count in meters.breaker_trips.items()}
        if at - self._looked_at >= MACHINE_LOOK_S:
            self._looked_at = at
            self._looked = self._look_at_machine()
        return found | self._looked

    def _look_at_machine(self) -> dict[Signal, dict[str, float]]:
        values = {
            Signal.THROTTLED: self._machine.throttled_ratio(),
            Signal.DISK_USED: self._machine.disk_used_ratio(),
        }
        return {signal: {MACHINE: value} for signal, value in values.items() if value is not None}
