"""The machine's own gauges: throttling of the last minute, and GPUs without holding a scrape up."""

import threading

import pytest

from forebay.core.doctor.readings import Gpu
from forebay.core.throttling import CpuStat
from forebay.host.processors import Ticks
from forebay.observe import machine
from forebay.observe.machine import WINDOW_S, MachineMeters
from tests.waiting import until


class Processors:
    def __init__(self):
        self.stat = CpuStat(0, 0, 0.0)

    def look(self):
        return Ticks(self.stat, None, 0, 0)


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

    return Clock()


def value(meters, name):
    return {
        one.name: [(sample.labels, sample.value) for sample in one.samples] for one in meters.families()
    }.get(name)


def test_the_throttled_share_is_of_the_last_minute_and_not_of_all_time(clock):
    processors = Processors()
    meters = MachineMeters(lambda: clock.now, processors, gpus_there=lambda: 0)
    for second in range(1, 200):
        clock.now += 1
        cut = second if second <= 100 else 100
        processors.stat = CpuStat(second * 10, cut * 10, 0.0)
        ((_, ratio),) = value(meters, "inference_cpu_throttled_ratio")
        if second == 100:
            assert ratio == 1.0
    assert ratio == 0.0 and WINDOW_S < 99


def test_a_machine_without_a_quota_or_gpus_has_no_such_family(clock):
    processors = Processors()
    processors.stat = None
    assert list(MachineMeters(lambda: clock.now, processors, gpus_there=lambda: 0).families()) == []


def test_a_driver_that_hangs_holds_no_scrape_up_and_its_answer_comes_later(clock):
    held = threading.Event()

    def ask():
        held.wait(20)
        return (Gpu("A10", 0.9), Gpu("A10", None))

    meters = MachineMeters(lambda: clock.now, Processors(), ask, gpus_there=lambda: 2)
    assert value(meters, "inference_gpu_utilization_ratio") == []
    held.set()
    found = until(lambda: value(meters, "inference_gpu_utilization_ratio"), 10, "the answer of the driver")
    assert found == [({"gpu": "0"}, 0.9)]


def test_a_driver_whose_answer_cannot_be_read_is_asked_again(clock, monkeypatch):
    monkeypatch.setattr(machine, "GPUS_EVERY_S", 0.01)
    answers = [(Gpu("A10", 0.5),), None]

    def ask():
        answer = answers.pop(0) if answers else (Gpu("A10", 0.7),)
        if answer is None:
            raise ValueError("line contains NUL")
        return answer

    meters = MachineMeters(lambda: clock.now, Processors(), ask, gpus_there=lambda: 1)
    until(
        lambda: value(meters, "inference_gpu_utilization_ratio") == [({"gpu": "0"}, 0.7)], 10, "it is asked"
    )


def test_what_a_gpu_did_before_nobody_scraped_for_long_is_not_told_as_what_it_does_now(clock, monkeypatch):
    monkeypatch.setattr(machine, "GPUS_EVERY_S", 0.01)
    asked = []

    def ask():
        asked.append(clock.now)
        return (Gpu("A10", 0.9),)

    meters = MachineMeters(lambda: clock.now, Processors(), ask, gpus_there=lambda: 1)
    until(lambda: value(meters, "inference_gpu_utilization_ratio"), 10, "an answer")
    sampler = meters._gpus
    clock.now += machine.UNASKED_MAX_S + 1
    until(lambda: sampler._thread is None, 10, "nobody asks the driver any more")
    assert sampler._found == ()
