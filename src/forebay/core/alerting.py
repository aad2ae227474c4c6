"""Alerts: one table of what should wake somebody, for Prometheus, CloudWatch and a server itself."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from forebay.core.job import Depth

SUBJECTS_MAX: Final = 1_024  # of one signal; what is beyond is not watched
POINTS: Final = 60  # kept of a window in which something may grow
STALLED_S: Final = 60.0
MACHINE: Final = "machine"


class Signal(StrEnum):
    """What is looked at. Each has one value for each subject: a task, a breaker, or the machine."""

    DEPTH = "depth"  # jobs that wait
    FILL = "fill"  # of the bound in jobs, 0 to 1
    OLDEST_S = "oldest_s"
    STALLED_S = "stalled_s"  # how long work has waited while nothing runs; 0 while the queue is paused
    DEAD = "dead"  # dead letters kept
    RESTARTS = "restarts"  # workers started again that were not to end
    TRIPS = "trips"  # of a breaker
    THROTTLED = "throttled"  # share of the periods of a CPU quota
    DISK_USED = "disk_used"  # share of the disk under the store


class Severity(StrEnum):
    """How soon somebody should look."""

    WARNING = "warning"
    CRITICAL = "critical"


class Alert(NamedTuple):
    """One row: it fires once the signal was above `limit` for `for_s`. With `grows_s` the signal is what it
    grew by within that time, counted as it goes: such an alert ends when the growth is that long ago."""

    name: str
    severity: Severity
    signal: Signal
    limit: float
    for_s: float
    says: str  # with {subject}
    look: str  # where to look first
    grows_s: float = 0.0


_WARN, _CALL = Severity.WARNING, Severity.CRITICAL

ALERTS: Final[tuple[Alert, ...]] = (
    Alert("queue_deep", _CALL, Signal.DEPTH, 800, 30,
          "{subject}: more than 800 have been waiting for 30 s",
          "more comes than can be served, or nothing serves: forebay top, forebay doctor"),
    Alert("queue_over_300", _CALL, Signal.DEPTH, 300, 120,
          "{subject}: more than 300 have been waiting for two minutes",
          "forebay size --url says how many replicas it takes"),
    Alert("queue_long", _WARN, Signal.DEPTH, 250, 300,
          "{subject}: more than 250 have been waiting for five minutes",
          "less than 50 is the aim: forebay size --url"),
    Alert("queue_nearly_full", _WARN, Signal.FILL, 0.9, 10,
          "{subject}: its queue is more than nine tenths full",
          "a full queue refuses: more replicas, or producers with a pace (forebay submit --rate)"),
    Alert("oldest_waits", _WARN, Signal.OLDEST_S, 600, 60,
          "{subject}: a job has been waiting for ten minutes",
          "forebay jobs explain says why"),
    Alert("stalled", _CALL, Signal.STALLED_S, STALLED_S, 30,
          "{subject}: jobs wait, none runs, and the queue is not paused",
          "forebay workers, forebay doctor"),
    Alert("dead_letters_growing", _WARN, Signal.DEAD, 5, 0,
          "{subject}: more than five jobs became dead letters within 15 minutes",
          "forebay dead-letters ls names the causes", 900),
    Alert("worker_crash_loop", _CALL, Signal.RESTARTS, 3, 0,
          "{subject}: its workers died more than three times within ten minutes",
          "forebay workers tells why; forebay dead-letters ls shows what ran", 600),
    Alert("breaker_trips", _WARN, Signal.TRIPS, 5, 0,
          "{subject}: the breaker opened more than five times within an hour",
          "what it guards fails again and again: its log", 3600),
    Alert("cpu_throttled", _WARN, Signal.THROTTLED, 0.2, 60,
          "a CPU quota stops this process in more than a fifth of its periods",
          "raise the quota: forebay doctor says to how much"),
    Alert("disk_nearly_full", _CALL, Signal.DISK_USED, 0.9, 60,
          "the disk under the store is more than nine tenths full",
          "free room or move --data: a full disk refuses every submission"),
)  # fmt: skip

Signals = Mapping[Signal, Mapping[str, float]]


class Firing(NamedTuple):
    """One alert that fires: about what, the value seen last, and since when (epoch seconds)."""

    alert: Alert
    subject: str
    value: float
    since: float

    @property
    def text(self) -> str:
        """What it says."""
        return self.alert.says.format(subject=self.subject)


class Change(NamedTuple):
    """An alert that began or ended just now."""

    firing: Firing
    began: bool


class _State:
    """One alert about one subject."""

    __slots__ = ("above_since", "points", "value")

    def __init__(self) -> None:
        self.above_since: float | None = None
        self.value = 0.0
        self.points: deque[tuple[float, float]] = deque(maxlen=POINTS + 2)  # (when, value), for what grows


class Alarms:
    """Watches signals and tells which alerts begin and end. Memory is bounded by SUBJECTS_MAX."""

    def __init__(self, alerts: tuple[Alert, ...] = ALERTS) -> None:
        self._alerts = alerts
        self._states: dict[tuple[str, str], _State] = {}
        self._firing: dict[tuple[str, str], Firing] = {}

    def firing(self) -> list[Firing]:
        """Return what fires, the critical ones first, then by when they began."""
        return sorted(
            self._firing.values(),
            key=lambda one: (one.alert.severity is not Severity.CRITICAL, one.since, one.alert.name),
        )

    def see(self, signals: Signals, *, now: float) -> list[Change]:
        """Take in the values of now; return what changed. A subject without a value ends its alerts."""
        changes: list[Change] = []
        seen: set[tuple[str, str]] = set()
        for alert in self._alerts:
            for number, (subject, value) in enumerate(signals.get(alert.signal, {}).items()):
                if number >= SUBJECTS_MAX:
                    break
                key = (alert.name, subject)
                seen.add(key)
                changes += self._look(alert, key, value, now)
        for key in [key for key in self._states if key not in seen]:
            del self._states[key]
            if key in self._firing:
                changes.append(Change(self._firing.pop(key), began=False))
        return changes

    def _look(self, alert: Alert, key: tuple[str, str], value: float, now: float) -> Iterator[Change]:
        state = self._states.setdefault(key, _State())
        state.value = _growth(state.points, alert.grows_s, value, now) if alert.grows_s else value
        if not state.value > alert.limit:
            state.above_since = None
            if key in self._firing:
                yield Change(self._firing.pop(key), began=False)
            return
        if state.above_since is None:
            state.above_since = now
        if key in self._firing:
            self._firing[key] = self._firing[key]._replace(value=state.value)
        elif now - state.above_since >= alert.for_s:
            self._firing[key] = Firing(alert, key[1], state.value, now)
            yield Change(self._firing[key], began=True)


def _growth(points: "deque[tuple[float, float]]", window_s: float, value: float, now: float) -> float:
    """Return what a count grew by within the window. One that fell began anew, as after a restart."""
    if points and value < points[-1][1]:
        points.clear()
    if not points or now - points[-1][0] >= window_s / POINTS:
        points.append((now, value))
    while len(points) > 1 and now - points[1][0] >= window_s:
        points.popleft()
    if now - points[0][0] > window_s + window_s / POINTS:
        points.clear()
        points.append((now, value))
    return value - points[0][1]


def task_signals(
    depths: Mapping[str, Depth], capacities: Mapping[str, int], *, now: float
) -> dict[Signal, dict[str, float]]:
    """Return what queues say of themselves."""
    ages = {
        task: 0.0 if depth.oldest_at is None else max(0.0, now - depth.oldest_at)
        for task, depth in depths.items()
    }
    return {
        Signal.DEPTH: {task: float(depth.queued) for task, depth in depths.items()},
        Signal.FILL: {
            task: depth.queued / capacities[task] for task, depth in depths.items() if capacities.get(task)
        },
        Signal.OLDEST_S: ages,
        Signal.STALLED_S: {
            task: ages[task] if depth.queued and not depth.running and not depth.paused else 0.0
            for task, depth in depths.items()
        },
        Signal.DEAD: {task: float(depth.dead) for task, depth in depths.items()},
    }


_PROMETHEUS: Final[Mapping[Signal, str]] = {
    Signal.DEPTH: "inference_queue_length > {limit}",
    Signal.FILL: "inference_queue_length / (inference_queue_capacity > 0) > {limit}",
    Signal.OLDEST_S: "inference_queue_oldest_age_seconds > {limit}",
    Signal.STALLED_S: (
        "inference_queue_oldest_age_seconds > {limit} and inference_queue_length > 0 "
        "and inference_queue_running == 0 unless inference_queue_paused == 1"
    ),
    Signal.DEAD: "delta(inference_dead_letters[{window}]) > {limit}",  # a gauge: letters are purged, too
    Signal.RESTARTS: (
        'sum by (task) (increase(inference_worker_restarts_total{{reason!="recycled"}}[{window}])) > {limit}'
    ),
    Signal.TRIPS: "sum by (breaker) (increase(inference_breaker_trips_total[{window}])) > {limit}",
    Signal.THROTTLED: "inference_cpu_throttled_ratio > {limit}",
    Signal.DISK_USED: "inference_disk_used_ratio > {limit}",
}
_SUBJECT: Final[Mapping[Signal, str]] = {
    Signal.TRIPS: "breaker",
    Signal.THROTTLED: "instance",
    Signal.DISK_USED: "instance",
}


def promql(alert: Alert) -> str:
    """Return the expression that is true while the alert's condition holds."""
    return _PROMETHEUS[alert.signal].format(limit=f"{alert.limit:g}", window=span(alert.grows_s))


def subject_label(alert: Alert) -> str:
    """Return the label of its metric that names the subject."""
    return _SUBJECT.get(alert.signal, "task")


def camel(name: str) -> str:
    """Return `queue_deep` as `QueueDeep`."""
    return "".join(word.capitalize() for word in name.split("_"))


def span(seconds: float) -> str:
    """Return a duration as Prometheus writes it: whole seconds, minutes or hours."""
    whole = math.ceil(seconds)
    for unit, size in (("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def prometheus_rules() -> str:
    """Return the alerts as a file of Prometheus rules."""
    lines = [
        "# Prometheus rules for queues, workers and the machine: rule_files names this file.",
        "# Made from core/alerting.py by docs/generate.py; a server evaluates the same table itself.",
        "groups:",
        "  - name: forebay",
        "    rules:",
    ]
    for alert in ALERTS:
        named = alert.says.format(subject="{{ $labels." + subject_label(alert) + " }}")
        lines += [
            f"      - alert: Forebay{camel(alert.name)}",
            f"        expr: {promql(alert)}",
            f"        for: {span(alert.for_s)}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f'          summary: "{named}"',
            f'          description: "{{{{ $value }}}}: {alert.look}"',
            f"          runbook: docs/alerts.md#{alert.name}",
        ]
    return "\n".join(lines) + "\n"
