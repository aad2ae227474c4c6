"""MachineMeters: what a CPU quota takes, how full the disk and how busy the GPUs are, at each scrape."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from forebay.core.doctor.readings import Gpu
from forebay.core.throttling import CpuStat
from forebay.host.gpus import gpu_files, read_gpus
from forebay.host.machine import disk_under
from forebay.host.processors import Processors

WINDOW_S = 60.0  # that the throttled share is of
LOOKS_MAX = 600  # kept, of frequent scrapes
GPUS_EVERY_S = 5.0  # asking the driver starts a program, so it is done beside the scrapes
UNASKED_MAX_S = 60.0  # without a scrape the driver is left alone


class MachineMeters:
    """Reads on demand. A machine without a quota or without GPUs has no family of them."""

    def __init__(
        self,
        now: Callable[[], float],
        processors: Processors | None = None,
        gpus: Callable[[], tuple[Gpu, ...]] = lambda: read_gpus()[0],
        gpus_there: Callable[[], int] = gpu_files,
        data: Path | None = None,
    ) -> None:
        self._now = now
        self._data = data  # the directory of the store
        self._processors = processors or Processors()
        self._looks: deque[tuple[float, CpuStat]] = deque(maxlen=LOOKS_MAX)
        self._gpus = _Sampler(gpus, now) if gpus_there() else None
        self._look()

    def families(self) -> Iterator[Metric]:
        """Yield the families as they are now."""
        throttled, used = self.throttled_ratio(), self.disk_used_ratio()
        if throttled is not None:
            yield GaugeMetricFamily(
                "inference_cpu_throttled_ratio",
                "Share of the periods of the CPU quota in which it was cut off, of the last minute",
                throttled,
            )
        if used is not None:
            yield GaugeMetricFamily(
                "inference_disk_used_ratio",
                "Share of the disk under the data directory that is not free",
                used,
            )
        if self._gpus is not None:
            family = GaugeMetricFamily(
                "inference_gpu_utilization_ratio", "Share of the time in which a GPU worked", labels=["gpu"]
            )
            for number, gpu in enumerate(self._gpus.seen()):
                if gpu.busy_ratio is not None:
                    family.add_metric([str(number)], gpu.busy_ratio)
            yield family

    def throttled_ratio(self) -> float | None:
        """Return the share of the periods of the last minute that were cut, None without a quota."""
        self._look()
        return self._looks[-1][1].since(self._looks[0][1]).ratio if self._looks else None

    def disk_used_ratio(self) -> float | None:
        """Return the share of the disk under the data directory that is not free, None where none is."""
        disks = () if self._data is None else disk_under("store", self._data)
        return next((1.0 - disk.free_b / disk.size_b for disk in disks if disk.size_b), None)

    def _look(self) -> None:
        now, stat = self._now(), self._processors.look().stat
        if stat is None:
            return
        self._looks.append((now, stat))
        while len(self._looks) > 2 and now - self._looks[1][0] > WINDOW_S:
            self._looks.popleft()


class _Sampler:
    """Asks for the GPUs in a thread of its own, for as long as somebody scrapes."""

    def __init__(self, ask: Callable[[], tuple[Gpu, ...]], now: Callable[[], float]) -> None:
        self._ask, self._now = ask, now
        self._found: tuple[Gpu, ...] = ()
        self._wanted_at = float("-inf")
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def seen(self) -> tuple[Gpu, ...]:
        """Return what the last answer said; nothing before the first, nor after a time without a scrape."""
        with self._lock:
            self._wanted_at = self._now()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="forebay-gpus", daemon=True)
                self._thread.start()
        return self._found

    def _run(self) -> None:
        rest = threading.Event()
        wanted = True
        while wanted:
            try:
                self._found = self._ask()
            except Exception:  # whatever the driver said: it is asked again, and what it said before is old
                self._found = ()
            rest.wait(GPUS_EVERY_S)
            with self._lock:
                wanted = self._now() - self._wanted_at <= UNASKED_MAX_S
                if not wanted:
                    self._found, self._thread = (), None
