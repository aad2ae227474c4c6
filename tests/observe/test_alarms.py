"""The watch over alerts: what it reads, logs and shows."""

import asyncio
from pathlib import Path

import pytest

from forebay.core.alerting import MACHINE, Signal
from forebay.core.job import Depth
from forebay.observe.alarms import MACHINE_LOOK_S, AlarmWatch, Readings
from forebay.observe.lookout import Lookout
from forebay.observe.machine import MachineMeters
from forebay.observe.meters import Meters
from tests.server.doors import HandClock, Log


class Machine:
    """A machine that can be told how it is."""

    def __init__(self):
        self.used, self.throttled, self.looks = 0.2, None, 0

    def throttled_ratio(self):
        self.looks += 1
        return self.throttled

    def disk_used_ratio(self):
        return self.used


class Seen:
    def __init__(self):
        self.clock, self.log, self.machine, self.meters = HandClock(), Log(), Machine(), Meters(["a"])
        self.depths = {}
        self.readings = Readings(
            depths=lambda: self.depths,
            capacities={"a": 1000},
            meters=self.meters,
            machine=self.machine,
            now=self.clock.now,
        )
        self.watch = AlarmWatch(self.readings.now, self.clock, self.log)

    def pass_by(self, seconds):
        for _ in range(seconds):
            self.clock.at += 1.0
            self.watch.look()


@pytest.fixture
def seen():
    return Seen()


def test_a_deep_queue_is_told_once_in_the_log_and_shown_while_it_lasts(seen):
    seen.depths = {"a": Depth(queued=850, running=3)}
    seen.pass_by(60)
    assert [(event, fields["alert"], fields["subject"]) for event, fields in seen.log.lines] == [
        ("alert", "queue_deep", "a")
    ]
    assert "more than 800" in seen.log.lines[0][1]["says"]
    (family,) = seen.watch.families()
    assert [(one.labels, one.value) for one in family.samples] == [
        ({"alert": "queue_deep", "subject": "a"}, 1.0)
    ]
    seen.depths = {"a": Depth(queued=0)}
    seen.pass_by(1)
    assert seen.log.lines[-1][0] == "alert_ended" and seen.log.lines[-1][1]["lasted_s"] == pytest.approx(
        30, abs=2
    )
    (family,) = seen.watch.families()
    assert family.samples == []


def test_workers_that_die_are_counted_and_those_that_were_to_end_are_not(seen):
    meter = seen.meters.for_task("a")
    seen.pass_by(1)
    for reason, times in (("recycled", 50), ("crash", 2), ("oom", 2)):
        for _ in range(times):
            meter.restarted(reason)
    assert seen.readings.now()[Signal.RESTARTS] == {"a": 4.0}
    seen.pass_by(1)
    assert [one.alert.name for one in seen.watch.firing()] == ["worker_crash_loop"]


def test_the_machine_is_asked_seldom_and_what_it_does_not_tell_is_left_out(seen):
    seen.pass_by(20)
    assert seen.machine.looks == 20 // MACHINE_LOOK_S
    assert Signal.THROTTLED not in seen.readings.now()
    seen.machine.used = 0.97
    seen.pass_by(80)
    assert [(one.alert.name, one.subject) for one in seen.watch.firing()] == [("disk_nearly_full", MACHINE)]


def test_trips_of_a_breaker_are_those_of_the_breaker(seen):
    seen.meters.breaker("w/0", "features", "open", 1)
    assert seen.readings.now()[Signal.TRIPS] == {"features": 1.0}


def test_the_disk_is_the_one_under_the_data_directory_though_it_is_not_made_yet(tmp_path):
    meters = MachineMeters(lambda: 1.0, data=tmp_path / "not" / "yet")
    assert 0.0 <= meters.disk_used_ratio() <= 1.0
    assert MachineMeters(lambda: 1.0).disk_used_ratio() is None


class FullQueue:
    """An engine with one queue that is full."""

    def depth_now(self, task, *, now):
        return Depth(queued=10)


@pytest.mark.parametrize("of_queues", [True, False])
def test_a_process_that_only_works_tells_nothing_of_queues(of_queues):
    clock, bounds = HandClock(), {"a": (10, 1000)}
    lookout = Lookout(FullQueue(), clock, Log(), bounds, {}, Meters(["a"]), Path("/"), of_queues=of_queues)
    for _ in range(20):
        clock.at += 1.0
        lookout.alarms.look()
    fires = {one.alert.name for one in lookout.alarms.firing()} - {"disk_nearly_full", "cpu_throttled"}
    assert fires == ({"queue_nearly_full"} if of_queues else set())
    assert "inference_alert_firing" in {family.name for family in lookout.families()}


def test_a_look_that_fails_is_told_and_the_next_ones_go_on(monkeypatch):
    monkeypatch.setattr("forebay.loops.PAUSE_S", 0.0)

    async def run():
        told, fails, looked = [], True, asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))

        def read():
            if fails:
                raise RuntimeError("odd")
            looked.set()
            return {}

        watch = AlarmWatch(read, HandClock(), Log())
        watch.start()
        try:
            async with asyncio.timeout(10):
                while not told:
                    await asyncio.sleep(0)
                fails = False
                await looked.wait()
            assert set(told) == {"failed to look for alerts"}
        finally:
            await watch.close()

    asyncio.run(run())
