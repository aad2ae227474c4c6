"""A machine that stands still for a moment: what was measured meanwhile does not shut the door afterwards."""

from dataclasses import replace

import pytest

from forebay.core.task import TaskSpec
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted


@pytest.mark.parametrize("stall_s", [1.0, 10.0])
@pytest.mark.parametrize(
    ("spec", "service", "rate"),
    [
        (TaskSpec(name="M"), Service(each_s=0.001), 600),
        (TaskSpec(name="M", kind="class", batch_max=16), Service(fixed_s=0.005, each_s=0.001), 1_000),
    ],
    ids=["singles", "batches"],
)
def test_one_run_that_hung_while_the_machine_stood_still_does_not_shut_the_door(spec, service, rate, stall_s):
    run_s = service.fixed_s + service.each_s * spec.batch_max
    hangs = replace(service, regimes=((2.0, stall_s / run_s), (2.0 + run_s, 1.0)))
    back_at = 2.0 + stall_s + 3.0  # what was measured may be tried three times, once a second
    asked = [Wanted(at, "M", 0.1) for at in poisson(Chance(1), rate, start=0.0, until=back_at + 2.0)]
    answers = ServingWorld([spec], {"M": hangs}, asked, way_s=0.0003).play(until=back_at + 4.0)
    good = sum(one.good for one in answers if one.wanted.at >= back_at)
    assert good / 2.0 >= 0.9 * min(rate, spec.batch_max / run_s)
