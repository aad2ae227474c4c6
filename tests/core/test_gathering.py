"""Gathering: a run that could start waits a moment for those who have just connected, and for nobody else."""

import pytest

from forebay.core.knocks import SILENT_S
from forebay.core.serving import GATHER_MAX_S
from tests.core.serving import RequestRig


def a_rig(**service):
    return RequestRig().learn_model(**service)


def comes(rig, who):
    rig.d.hand.basin.knocks.came(who, now=rig.now)


def speaks(rig, who, **more):
    rig.d.hand.basin.knocks.spoke(who)
    return rig.ask(**more)


def sizes(rig):
    return [len(run.items) for run in rig.ran]


def test_the_calls_of_a_burst_run_together_although_they_are_read_one_by_one():
    rig = a_rig()
    comes(rig, 0)
    for who in range(16):
        comes(rig, who + 1)
        speaks(rig, who)
        rig.now += 0.0002
    assert sizes(rig) == [16]


def test_one_that_comes_alone_starts_at_once():
    rig = a_rig()
    comes(rig, 1)
    speaks(rig, 1)
    assert sizes(rig) == [1]


def test_when_the_last_newcomer_has_spoken_nothing_is_waited_for():
    rig = a_rig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1)
    assert sizes(rig) == []
    speaks(rig, 2)
    assert sizes(rig) == [2]


def test_a_newcomer_who_says_nothing_is_waited_for_a_moment_and_the_lane_wakes_by_itself():
    rig = a_rig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1)
    assert rig.d.wake_at() == pytest.approx(rig.now + SILENT_S)
    rig.poll(SILENT_S + 1e-6)
    assert sizes(rig) == [1]


def test_a_newcomer_who_asks_for_something_else_delays_by_no_more():
    rig = a_rig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1)
    rig.d.hand.basin.knocks.spoke(2)
    rig.poll(1e-6)
    assert sizes(rig) == [1]


@pytest.mark.parametrize(("fixed_s", "longest_s"), [(0.020, 0.0044), (1.0, GATHER_MAX_S), (0.0, 0.0004)])
def test_however_many_knock_it_is_short_and_a_small_part_of_the_run(fixed_s, longest_s):
    rig = a_rig(fixed_s=fixed_s)
    comes(rig, 0)
    speaks(rig, 0, deadline_s=10.0)
    rig.ran.clear()
    rig = a_rig(fixed_s=fixed_s)
    began_at = rig.now
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1, deadline_s=10.0)
    while not rig.ran:
        assert rig.now < began_at + 0.1
        comes(rig, 2)
        rig.poll(0.0001)
    assert rig.now - began_at == pytest.approx(longest_s, abs=0.00021)


def test_nobody_becomes_late_for_the_sake_of_company():
    rig = a_rig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1, deadline_s=0.0275)
    assert rig.d.wake_at() == pytest.approx(rig.now + 0.0005)


def test_before_anything_was_measured_nobody_waits():
    rig = RequestRig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1)
    assert sizes(rig) == [1]


def test_jobs_do_not_take_the_replica_from_those_who_gather():
    rig = a_rig()
    comes(rig, 1)
    comes(rig, 2)
    speaks(rig, 1)
    rig.lease("t", 1)
    assert sizes(rig) == []
    speaks(rig, 2)
    assert sizes(rig)[0] == 2


def test_a_run_that_has_all_it_may_take_waits_for_nobody_else():
    """Nothing but single calls was seen: four of them surely leave half of the time, so a fifth would not run."""
    rig = RequestRig()
    for _ in range(20):
        rig.d.hand.tasks["t"].fit.observe(1, 0.022)
    comes(rig, 0)
    for who in range(9):
        comes(rig, who + 1)
        speaks(rig, who)
        rig.now += 0.0002
    assert sizes(rig) == [4]
