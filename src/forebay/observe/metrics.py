"""Exposition: meters, depths and workers -> Prometheus families, read at scrape time without IO."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.core.arrivals import ArrivalWindows
from forebay.core.job import Depth
from forebay.core.peak import Peak
from forebay.observe.guarding import guarding
from forebay.observe.meters import Histogram, Meters, TaskMeter
from forebay.observe.priorities import by_priority
from forebay.observe.scaling import scaling
from forebay.observe.together import Together

RENDER_FRESH_S = 0.1
RENDERED_KINDS_MAX = 16
Bounds = tuple[int, int]  # jobs and bytes one task may hold
Wanted = Callable[[Mapping[str, Depth], float], Mapping[str, int]]
Coverage = tuple[float, float] | None  # share of jobs that ended by their p50 and by their p90


class Readers(NamedTuple):
    """What is known of event streams: open now, gaps told ever, bytes of events kept."""

    open: int
    gaps: int
    size_b: int


class Recent(NamedTuple):
    """What is remembered of each task's last hour and since the last scrape."""

    arrivals: Mapping[str, ArrivalWindows] = {}
    peaks: Mapping[str, Peak] = {}

    @classmethod
    def of(cls, tasks: Iterable[str]) -> "Recent":
        """Return what remembers nothing yet."""
        names = list(tasks)
        return cls({name: ArrivalWindows() for name in names}, {name: Peak() for name in names})


class Exposition(Meters):
    """Meters that can be scraped. `depths`, `coverages` and `workers` are asked at each scrape and must
    answer from memory; `now` is seconds since the epoch. `more` are families of others.
    """

    def __init__(
        self,
        tasks: Iterable[str],
        *,
        now: Callable[[], float],
        depths: Callable[[], Mapping[str, Depth]] = dict,
        coverages: Callable[[], Mapping[str, Coverage]] = dict,
        recent: Recent = Recent(),  # noqa: B008 - it cannot change
        bounds_of: Mapping[str, Bounds] | None = None,
        workers: Callable[[], Sequence[Mapping[str, object]]] = tuple,
        readers: Callable[[], Readers] = lambda: Readers(0, 0, 0),
        blobs: Callable[[], Mapping[str, int]] = dict,
        quarantined: Callable[[], Mapping[str, int]] = dict,
        wanted: Wanted = lambda _depths, _now: {},
        more: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        super().__init__(tasks)
        self._now = now
        self._rendered: dict[str, tuple[float, bytes]] = {}  # media type -> (when, text)
        self._registry = CollectorRegistry()
        reader = _Reader(
            self, now, depths, coverages, recent, bounds_of or {}, workers, readers, blobs, quarantined,
            wanted,
        )  # fmt: skip
        self._registry.register(Together(reader, more))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition text for an Accept header, and its media type.

        Scrapes within RENDER_FRESH_S of each other get the same text: it costs milliseconds of the loop.
        """
        encode, kind = choose_encoder(accept)
        at, text = self._rendered.get(kind, (float("-inf"), b""))
        now = self._now()
        if now - at > RENDER_FRESH_S:
            text = encode(self._registry)
            if len(self._rendered) >= RENDERED_KINDS_MAX:
                self._rendered.clear()
            self._rendered[kind] = (now, text)
        return text, kind


class _Reader(Collector):
    def __init__(
        self,
        meters: Meters,
        now: Callable[[], float],
        depths: Callable[[], Mapping[str, Depth]],
        coverages: Callable[[], Mapping[str, Coverage]],
        recent: Recent,
        bounds_of: Mapping[str, Bounds],
        workers: Callable[[], Sequence[Mapping[str, object]]],
        readers: Callable[[], Readers],
        blobs: Callable[[], Mapping[str, int]],
        quarantined: Callable[[], Mapping[str, int]],
        wanted: Wanted,
    ) -> None:
        self._wanted = wanted
        self._readers = readers
        self._blobs = blobs
        self._quarantined = quarantined
        self._meters = meters
        self._now = now
        self._depths = depths
        self._coverages = coverages
        self._recent = recent
        self._bounds_of = bounds_of
        self._workers = workers

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry need not collect to register."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from _queues(self._depths(), self._bounds_of, self._now())
        yield from _recent(self._recent, self._now())
        meters = list(self._meters.by_task.values())
        yield from _counters(meters)
        yield from _histograms(meters)
        yield from by_priority(self._depths(), meters, self._now())
        yield _coverage(self._coverages())
        reached = CounterMetricFamily(
            "inference_bounds_reached", "Bounds that were reached", labels=["bound"]
        )
        for bound, count in self._meters.bounds.items():
            reached.add_metric([bound], count)
        yield reached
        yield from _event_streams(self._readers())
        tried = CounterMetricFamily(
            "inference_webhook_deliveries",
            "Tries to tell a callback, by what they led to",
            labels=["outcome"],
        )
        for outcome, count in self._meters.deliveries.items():
            tried.add_metric([outcome], count)
        yield tried
        budgeted = CounterMetricFamily(
            "inference_budget_jobs", "Submissions counted by a budget of producers", labels=["decision"]
        )
        for decision, count in self._meters.budgets.items():
            budgeted.add_metric([decision], count)
        yield budgeted
        yield _crons(self._meters.cron_turns)
        yield from _replicas(self._workers())
        yield from _blobs(self._blobs())
        yield from guarding(self._meters)
        yield from scaling(self._meters, self._wanted(self._depths(), self._now()))
        held = GaugeMetricFamily(
            "inference_quarantined_inputs", "Inputs that are refused: they killed workers", labels=["task"]
        )
        for task, count in self._quarantined().items():
            held.add_metric([task], count)
        yield held


def _queues(depths: Mapping[str, Depth], bounds_of: Mapping[str, Bounds], now: float) -> Iterator[Metric]:
    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=["task"])

    length = gauge("inference_queue_length", "Jobs that wait and may run now")
    held = gauge("inference_queue_bytes", "Bytes of every open job")
    running = gauge("inference_queue_running", "Jobs that run now")
    oldest = gauge("inference_queue_oldest_age_seconds", "How long the oldest waiting job has waited")
    dead = gauge("inference_dead_letters", "Dead letters kept")
    capacity = gauge("inference_queue_capacity", "Open jobs the task may hold")
    paused = gauge("inference_queue_paused", "1 while nothing is handed out")
    for task, depth in depths.items():
        length.add_metric([task], depth.queued)
        held.add_metric([task], depth.bytes)
        running.add_metric([task], depth.running)
        oldest.add_metric([task], 0.0 if depth.oldest_at is None else max(0.0, now - depth.oldest_at))
        dead.add_metric([task], depth.dead)
        paused.add_metric([task], float(depth.paused))
    for task, (jobs_max, _) in bounds_of.items():
        capacity.add_metric([task], jobs_max)
    yield from (length, held, running, oldest, dead, capacity, paused)


def _recent(recent: Recent, now: float) -> Iterator[Metric]:
    rate = GaugeMetricFamily(
        "inference_arrival_rate_p99",
        "Submissions a second: p99 of sliding 1 s windows with any in them, over the last hour",
        labels=["task"],
    )
    for task, windows in recent.arrivals.items():
        rate.add_metric([task], windows.peaks(now=now).p99_per_s)
    longest = GaugeMetricFamily(
        "inference_queue_length_peak", "Largest of the 100 ms samples since the last scrape", labels=["task"]
    )
    for task, peak in recent.peaks.items():
        most = peak.take()
        if most is not None:
            longest.add_metric([task], most)
    yield from (rate, longest)


def _counters(meters: Sequence[TaskMeter]) -> Iterator[Metric]:
    arrivals = CounterMetricFamily(
        "inference_arrivals", "Submissions, whatever became of them", labels=["task"]
    )
    admission = CounterMetricFamily(
        "inference_admission", "Decisions at the door", labels=["task", "decision", "reason"]
    )
    attempts = CounterMetricFamily("inference_attempts", "Ended attempts", labels=["task", "outcome"])
    stale = CounterMetricFamily("inference_stale_commits", "Commits with an old fence", labels=["task"])
    restarts = CounterMetricFamily(
        "inference_worker_restarts", "Replicas started again", labels=["task", "reason"]
    )
    good = CounterMetricFamily(
        "inference_slo_good", "Requests answered with their output within their deadline", labels=["task"]
    )
    requests = CounterMetricFamily(
        "inference_requests", "Requests that were let in, by how they ended", labels=["task", "outcome"]
    )
    for meter in meters:
        good.add_metric([meter.task], meter.slo_good)
        for outcome, count in meter.requests.items():
            requests.add_metric([meter.task, outcome], count)
        arrivals.add_metric([meter.task], meter.arrivals)
        admission.add_metric([meter.task, "accepted", ""], meter.admitted_count)
        if meter.replays:
            admission.add_metric([meter.task, "replayed", ""], meter.replays)
        if meter.joins:
            admission.add_metric([meter.task, "joined", ""], meter.joins)
        for reason, count in meter.refusals.items():
            admission.add_metric([meter.task, "refused", reason], count)
        for outcome, count in meter.attempts.items():
            attempts.add_metric([meter.task, outcome], count)
        stale.add_metric([meter.task], meter.stale_commits)
        for reason, count in meter.restarts.items():
            restarts.add_metric([meter.task, reason], count)
    yield from (arrivals, admission, attempts, stale, restarts, good, requests)


def _histograms(meters: Sequence[TaskMeter]) -> Iterator[Metric]:
    def family(name: str, text: str, read: Callable[[TaskMeter], Histogram]) -> Metric:
        found = HistogramMetricFamily(name, text, labels=["task"])
        for meter in meters:
            histogram = read(meter)
            found.add_metric([meter.task], _buckets(histogram), histogram.total)
        return found

    yield family("inference_queue_wait_seconds", "Ready to granted", lambda meter: meter.wait_s)
    yield family("inference_latency_seconds", "Accepted to final", lambda meter: meter.latency_s)
    yield family("inference_batch_size", "Jobs that ran together", lambda meter: meter.batch_size)
    yield family(
        "inference_eta_error_seconds", "Told at submit against true", lambda meter: meter.eta_error_s
    )


def _coverage(coverages: Mapping[str, Coverage]) -> Metric:
    held = GaugeMetricFamily(
        "inference_eta_coverage_ratio",
        "Share of the last jobs that ended by the time told at submit; p50 should be 0.5, p90 0.9",
        labels=["task", "quantile"],
    )
    for task, shares in coverages.items():
        if shares is not None:
            held.add_metric([task, "p50"], shares[0])
            held.add_metric([task, "p90"], shares[1])
    return held


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    running = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        running += count
        buckets.append((bound, running))
    return buckets


def _event_streams(readers: Readers) -> Iterator[Metric]:
    yield GaugeMetricFamily("inference_event_readers", "Event streams open now", readers.open)
    yield CounterMetricFamily(
        "inference_event_gaps", "Times that a reader was told it missed events", readers.gaps
    )
    yield GaugeMetricFamily("inference_event_bytes", "Bytes of recent events kept", readers.size_b)


def _blobs(counts: Mapping[str, int]) -> Iterator[Metric]:
    moved = CounterMetricFamily("inference_blob_bytes", "Bytes of blobs over HTTP", labels=["direction"])
    moved.add_metric(["in"], counts.get("bytes_in", 0))
    moved.add_metric(["out"], counts.get("bytes_out", 0))
    events = CounterMetricFamily("inference_blobs", "Blobs stored over HTTP, and removed", labels=["event"])
    events.add_metric(["stored"], counts.get("made", 0))
    events.add_metric(["removed"], counts.get("removed", 0))
    yield from (moved, events)


def _crons(turns: Mapping[tuple[str, str], int]) -> Metric:
    runs = CounterMetricFamily(
        "inference_cron_runs",
        "Due instants of cron entries, by what became of them",
        labels=["cron", "outcome"],
    )
    for key, count in turns.items():
        runs.add_metric(key, count)
    return runs


def _replicas(workers: Sequence[Mapping[str, object]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("inference_worker_up", "1 while the replica serves", labels=["worker"])
    memory = GaugeMetricFamily("inference_worker_memory_bytes", "Resident bytes", labels=["worker"])
    for record in workers:
        if record.get("state") == "parked":  # nothing is to be up there
            continue
        name = str(record.get("worker"))
        up.add_metric([name], 1.0 if record.get("state") in {"ready", "busy", "idle", "running"} else 0.0)
        size = record.get("memory_bytes")
        if isinstance(size, int | float):
            memory.add_metric([name], size)
    yield from (up, memory)
