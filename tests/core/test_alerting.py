"""Alerts: what fires, after how long, and when it ends; the same table as PromQL."""

from dataclasses import dataclass

import pytest

from forebay.core.alerting import (
    ALERTS,
    MACHINE,
    SUBJECTS_MAX,
    Alarms,
    Severity,
    Signal,
    camel,
    prometheus_rules,
    span,
    task_signals,
)
from forebay.core.job import Depth

BY_NAME = {alert.name: alert for alert in ALERTS}


@dataclass
class Watched:
    """Alarms that see one value of one signal, second by second."""

    alarms: Alarms
    signal: Signal
    at: float = 1_000.0

    def hold(self, value, seconds, subject="a"):
        """Return the names of what began, or ended (with a minus), while a value stood for so long."""
        told = []
        for _ in range(int(seconds)):
            self.at += 1.0
            for change in self.alarms.see({self.signal: {subject: value}}, now=self.at):
                told.append(("" if change.began else "-") + change.firing.alert.name)
        return told


def watched(name):
    return Watched(Alarms((BY_NAME[name],)), BY_NAME[name].signal)


@pytest.mark.parametrize(
    ("name", "over", "for_s"),
    [
        ("queue_deep", 801, 30),
        ("queue_over_300", 301, 120),
        ("queue_long", 251, 300),
        ("queue_nearly_full", 0.901, 10),
        ("oldest_waits", 601, 60),
        ("stalled", 61, 30),
        ("cpu_throttled", 0.201, 60),
        ("disk_nearly_full", 0.901, 60),
    ],
)
def test_it_fires_once_when_the_value_was_above_for_so_long_and_ends_when_it_is_not(name, over, for_s):
    seen = watched(name)
    assert seen.hold(BY_NAME[name].limit, for_s * 3) == [], "at the limit is not above it"
    assert seen.hold(over, for_s) == []
    assert seen.hold(over, for_s) == [name]
    assert [one.value for one in seen.alarms.firing()] == [over]
    assert seen.hold(0, 1) == [f"-{name}"] and seen.alarms.firing() == []


def test_a_moment_below_begins_the_time_anew():
    seen = watched("queue_deep")
    assert seen.hold(900, 29) + seen.hold(0, 1) + seen.hold(900, 29) == []


@pytest.mark.parametrize(
    ("name", "most", "window_s"),
    [("dead_letters_growing", 5, 900), ("worker_crash_loop", 3, 600), ("breaker_trips", 5, 3600)],
)
def test_what_grows_fires_at_one_more_than_may_be_and_ends_when_the_window_has_passed(name, most, window_s):
    seen = watched(name)
    assert seen.hold(100, 5) == [], "what was there before counts for nothing"
    assert seen.hold(100 + most, 5) == []
    assert seen.hold(101 + most, 1) == [name]
    assert seen.hold(101 + most, window_s - 20) == []
    assert seen.hold(101 + most, window_s // 30 + 40) == [f"-{name}"]


@pytest.mark.parametrize("every", [200, 1000])
def test_what_grows_slowly_enough_never_fires(every):
    seen, told = watched("worker_crash_loop"), []
    for number in range(40):
        told += seen.hold(number, every)
    assert told == []


def test_a_count_that_fell_began_anew():
    seen = watched("breaker_trips")
    seen.hold(1_000, 2)
    assert seen.hold(3, 2) == [] and seen.hold(8, 2) == [] and seen.hold(9, 1) == ["breaker_trips"]


def test_what_is_not_there_any_more_ends_its_alert():
    seen = watched("queue_deep")
    seen.hold(900, 40)
    (change,) = seen.alarms.see({}, now=seen.at + 1)
    assert not change.began and seen.alarms.firing() == []


def test_each_subject_is_watched_for_itself_and_the_critical_come_first():
    alarms = Alarms()
    for second in range(400):
        depths = {Signal.DEPTH: {"a": 260.0, "b": 900.0}, Signal.DISK_USED: {MACHINE: 0.95}}
        alarms.see(depths, now=1_000.0 + second)
    told = [(one.alert.name, one.subject) for one in alarms.firing()]
    assert told[:3] == [("queue_deep", "b"), ("disk_nearly_full", MACHINE), ("queue_over_300", "b")]
    assert set(told[3:]) == {("queue_long", "a"), ("queue_long", "b")}
    severities = [one.alert.severity for one in alarms.firing()]
    assert severities == sorted(severities, key=lambda one: one is not Severity.CRITICAL)
    assert alarms.firing()[0].text == "b: more than 800 have been waiting for 30 s"


def test_the_number_of_subjects_is_bounded():
    alarms = Alarms((BY_NAME["queue_deep"],))
    for at in (1.0, 100.0):
        alarms.see({Signal.DEPTH: {str(n): 900.0 for n in range(SUBJECTS_MAX + 50)}}, now=at)
    assert len(alarms.firing()) == SUBJECTS_MAX


def test_a_queue_says_how_it_is():
    depths = {
        "waits": Depth(queued=90, oldest_at=900.0),
        "runs": Depth(queued=90, running=1, oldest_at=900.0),
        "paused": Depth(queued=90, oldest_at=900.0, paused=True),
        "empty": Depth(dead=7),
    }
    told = task_signals(depths, {"waits": 100, "runs": 0}, now=1_000.0)
    assert told[Signal.DEPTH] == {"waits": 90, "runs": 90, "paused": 90, "empty": 0}
    assert told[Signal.FILL] == {"waits": 0.9}, "without a bound there is no share of it"
    assert told[Signal.OLDEST_S] == {"waits": 100, "runs": 100, "paused": 100, "empty": 0}
    assert told[Signal.STALLED_S] == {"waits": 100, "runs": 0, "paused": 0, "empty": 0}
    assert told[Signal.DEAD]["empty"] == 7


def test_names_and_times_are_written_as_prometheus_has_them():
    assert camel("queue_over_300") == "QueueOver300"
    assert [span(s) for s in (0, 30, 60, 90, 120, 600, 3600, 7200)] == [
        "0s", "30s", "1m", "90s", "2m", "10m", "1h", "2h",
    ]  # fmt: skip
    text = prometheus_rules()
    assert text.count("- alert:") == len(ALERTS) and "{subject}" not in text and "{limit}" not in text
