"""Who is let in is answered in time, in virtual time: those who come later and go before it cost it nothing."""

from collections import Counter

import pytest

from forebay.core.requests import End
from forebay.core.task import TaskSpec
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

SLO_S = 0.2
MODEL = TaskSpec(name="M", kind="class", batch_max=16)
SERVICE = Service(fixed_s=0.020, each_s=0.002)
TICK_S = 0.004  # of a kernel's clock
CALLS = 1_200


def a_burst(seed, *, read_s, sent_s, service=SERVICE):
    """Return what became of 1,200 calls at once, sent within `sent_s` and read one each `read_s`. How long one
    lay in its socket is known to a tick, so that some who are read later have the earlier deadline."""
    chance = Chance(seed)
    asked = [Wanted(number / 30, "M", SLO_S) for number in range(60)]
    for number in range(CALLS):
        came_s = sent_s * number / CALLS
        lain_s = max(0.0, 0.001 + read_s * number - came_s)
        known_s = 0.0 if lain_s < 0.010 else lain_s + chance.between(-TICK_S / 2, TICK_S / 2)
        asked.append(Wanted(3.0 + came_s + lain_s, "M", SLO_S - known_s))
    world = ServingWorld([MODEL], {"M": service}, sorted(asked), way_s=0.0006, seed=seed)
    knocks = world.dispatcher.hand.basin.knocks
    for number, one in enumerate(asked[60:]):
        world.engine.at(one.at - 0.0003, lambda who=number: knocks.came(who, now=world.engine.now))
        world.engine.at(one.at - 1e-7, lambda who=number: knocks.spoke(who))
    return world.play(until=5.0)[60:], world


@pytest.mark.parametrize("sent_s", [0.027, 0.060])
@pytest.mark.parametrize("read_s", [0.00015, 0.00023, 0.00027])
def test_of_a_burst_on_new_connections_who_cannot_be_in_time_is_refused_at_the_door(read_s, sent_s):
    for seed in range(4):
        answers, world = a_burst(seed, read_s=read_s, sent_s=sent_s)
        assert sum(one.end is End.LATE for one in answers) <= 2
        assert sum(one.good and one.at <= 3.0 + SLO_S for one in answers) >= 52
        assert [items for at, _, items, _ in world.runs if at >= 3.0][:4] == [4, 16, 16, 16]


def test_of_uneven_runs_few_of_a_burst_are_let_in_and_late():
    uneven = Service(fixed_s=0.020, each_s=0.002, spread=0.05)
    ends = Counter()
    for seed in range(8):
        answers, _ = a_burst(seed, read_s=0.00023, sent_s=0.027, service=uneven)
        ends.update(one.end for one in answers)
        assert sum(one.good and one.at <= 3.0 + SLO_S for one in answers) >= 50
    assert ends[End.LATE] <= 0.05 * ends[End.DONE]


@pytest.mark.parametrize("times", [1.0, 2.0, 10.0])
@pytest.mark.parametrize(
    ("batch_max", "service", "deadlines", "most"),
    [
        (16, SERVICE, (0.1, 0.15, 0.2, 0.3, 0.5), 0.09),
        (1, Service(each_s=0.005), (0.02, 0.05, 0.1, 0.3), 0.02),
    ],
    ids=["batches", "singles"],
)
def test_with_deadlines_of_all_kinds_who_is_let_in_is_answered_at_the_same_goodput(
    batch_max, service, deadlines, most, times
):
    """The urgent ones go first, and each would push those back that wait already."""
    spec = TaskSpec(name="M", kind="class" if batch_max > 1 else "function", batch_max=batch_max)
    per_s = batch_max / service.run_s(batch_max, Chance(0), 0.0)
    ends, good = Counter(), 0
    for seed in range(3):
        chance = Chance(seed)
        arrivals = poisson(chance, times * per_s, start=0.0, until=6.0)
        asked = [Wanted(at, "M", chance.pick(deadlines)) for at in arrivals]
        answers = ServingWorld([spec], {"M": service}, asked, way_s=0.0005).play(until=8.0)
        ends.update(one.end for one in answers)
        good += sum(one.good and 1.0 <= one.at < 6.0 for one in answers)
    assert ends[End.LATE] <= most * ends[End.DONE]
    assert good / 3 / 5.0 >= 0.95 * per_s


@pytest.mark.parametrize("seed", range(1, 13))
def test_where_a_model_slows_twofold_batches_do_not_stay_small_for_those_who_are_nearly_late(seed):
    slows = Service(fixed_s=0.020, each_s=0.002, regimes=((4.0, 2.0),))
    arrivals = poisson(Chance(seed), 1.5 * 16 / 0.052, start=0.0, until=9.0)
    asked = [Wanted(at, "M", SLO_S) for at in arrivals]
    answers = ServingWorld([MODEL], {"M": slows}, asked).play(until=9.0)
    good = sum(one.good and 6.0 <= one.at < 9.0 for one in answers)
    assert good / 3.0 >= 0.95 * 16 / 0.104


@pytest.mark.parametrize("times", [1.0, 2.0, 10.0])
def test_tasks_that_share_replicas_keep_each_others_time_at_the_same_goodput(times):
    """Requests of the one are urgent, and each would push those of the other back that wait already."""
    specs = [TaskSpec(name="A"), TaskSpec(name="B")]
    service, ends, good = Service(each_s=0.005), Counter(), 0
    for seed in range(2):
        chance = Chance(seed)
        asked = []
        for at in poisson(chance, times * 200, start=0.0, until=5.0):
            asked.append(Wanted(at, "A", 0.05) if chance.hit(0.5) else Wanted(at, "B", 0.3))
        world = ServingWorld(specs, {"A": service, "B": service}, asked, way_s=0.0005)
        answers = world.play(until=7.0)
        ends.update(one.end for one in answers if one.wanted.at >= 1.0)  # before, not all was measured
        good += sum(one.good and 1.0 <= one.at < 5.0 for one in answers)
    assert ends[End.LATE] <= 0.01 * ends[End.DONE]
    assert good / 2 / 4.0 >= 0.95 * 200
