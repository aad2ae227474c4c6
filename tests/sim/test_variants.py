"""Variants in the simulator: attainment at more than the large model can do, and no flapping at any load."""

import pytest

from forebay.core.codel import Discipline
from forebay.core.job import PRIORITY_HIGH, PRIORITY_NORMAL
from forebay.core.task import TaskSpec
from forebay.core.variants import LadderPolicy, Rung
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

LARGE = Service(fixed_s=0.020, each_s=0.002, spread=0.05)
MEDIUM = Service(fixed_s=0.008, each_s=0.0008, spread=0.05)
SMALL = Service(fixed_s=0.0025, each_s=0.00025, spread=0.05)
CAPACITY = 16 / 0.052
BEGINS, ENDS = 2.0, 9.0
LADDER = LadderPolicy(rungs=(Rung(name="medium"), Rung(name="small")))


def a_model(ladder=LADDER, **more):
    return TaskSpec(name="M", kind="class", batch_max=16, ladder=ladder, **more)


def wanted(rate, since, until, seed, **more):
    return [Wanted(at, "M", 0.2, **more) for at in poisson(Chance(seed), rate, start=since, until=until)]


def over(times, seed=1, after=7.0):
    """Return a calm start, an overload, and half the capacity after it."""
    calm = wanted(30.0, 0.5, BEGINS, seed + 100)
    then = wanted(0.5 * CAPACITY, ENDS, ENDS + after, seed + 200)
    return calm + wanted(times * CAPACITY, BEGINS, ENDS, seed) + then


def played(asked, spec=None, **more):
    world = ServingWorld([spec or a_model()], {"M": LARGE}, asked, levels={"M": [MEDIUM, SMALL]}, **more)
    return world, world.play(until=asked[-1].at + 2.0)


def attained(answers, since=BEGINS, until=ENDS):
    inside = [one for one in answers if since <= one.wanted.at < until]
    return sum(one.good for one in inside) / len(inside)


def steps(world):
    return [(moved.at, moved.was, moved.step) for _, moved in world.moves]


@pytest.mark.parametrize("seed", [1, 2])
def test_at_twice_the_capacity_nearly_all_are_answered_in_time_and_the_large_model_comes_back(seed):
    world, answers = played(over(2.0, seed))
    assert attained(answers) >= 0.99
    assert steps(world)[0][1:] == (0, 1) and steps(world)[-1][2] == 0
    assert len(steps(world)) <= 4
    after = [one for one in answers if one.wanted.at > ENDS + 4.5]
    assert all(one.good and one.level == 0 for one in after)


def test_without_variants_half_of_them_are_refused():
    _, answers = played(over(2.0), a_model(ladder=None))
    assert attained(answers) < 0.55


@pytest.mark.parametrize("times", [0.3, 0.6])
def test_what_the_large_model_can_do_alone_it_does_alone(times):
    world, answers = played(over(times))
    assert not world.moves and attained(answers) == 1.0
    assert {one.level for one in answers} == {0}


def test_five_times_the_capacity_takes_both_steps_within_half_a_second():
    world, answers = played(over(5.0))
    (first, *_), (second, was, step), *_ = steps(world)
    assert (was, step) == (1, 2) and second - BEGINS < 0.5 and second - first >= 0.2499
    assert attained(answers) >= 0.97


@pytest.mark.parametrize("discipline", [Discipline.CODEL, Discipline.NEWEST])
def test_a_discipline_that_keeps_waits_short_does_not_keep_the_variants_away(discipline):
    asked = [one._replace(deadline_s=10.0) for one in over(2.0)]
    world, answers = played(asked, a_model(discipline=discipline))
    assert steps(world)[0][2] == 1 and attained(answers) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("times", [0.7, 0.85, 0.9, 0.95, 1.0, 1.1, 1.5, 2.0, 2.4, 2.6, 3.0, 6.0])
def test_no_load_that_stays_makes_it_swing_faster_than_the_stay(times, seed):
    world, _ = played(over(times, seed))
    moves = [move for move in steps(world) if move[0] < ENDS]
    for (before, *_), (at, was, step) in zip(moves, moves[1:], strict=False):
        assert abs(step - was) == 1
        assert at - before >= (0.9999 if step < was else 0.2499)
    assert len(moves) <= 6  # in 7 s


def levels_of(answers, priority):
    return {one.level for one in answers if one.wanted.priority == priority and one.good}


def test_a_few_urgent_requests_keep_the_large_model_while_all_others_go_down():
    urgent = wanted(3.0, BEGINS, ENDS, 7, priority=PRIORITY_HIGH)
    _, answers = played(sorted(over(1.5) + urgent))
    assert levels_of(answers, PRIORITY_HIGH) == {0} and max(levels_of(answers, PRIORITY_NORMAL)) >= 1
    assert attained(answers) >= 0.98


def test_where_nearly_each_batch_has_an_urgent_one_they_go_down_too_and_nobody_starves():
    urgent = wanted(0.3 * CAPACITY, BEGINS, ENDS, 7, priority=PRIORITY_HIGH)
    world, answers = played(sorted(over(1.5) + urgent))
    assert attained(answers) >= 0.85
    late = [one for one in answers if BEGINS + 2.5 < one.wanted.at < ENDS]
    assert sum(one.good for one in late) >= 0.98 * len(late)


def test_urgent_requests_alone_go_down_as_well_when_nothing_else_is_left():
    asked = [one._replace(priority=PRIORITY_HIGH) for one in over(2.0)]
    world, answers = played(asked)
    assert max(one.level for one in answers) >= 1 and attained(answers) >= 0.9
    assert steps(world)[-1][2] == 0


def test_a_lower_resolution_runs_above_950_queued_items_of_1000():
    """The variant is the same model on half the input; nothing is refused, and the full one comes back."""
    ladder = LadderPolicy(rungs=(Rung(name="half", enter=0.95, leave=0.5),))
    spec = TaskSpec(name="M", kind="class", batch_max=16, ladder=ladder)
    world = ServingWorld(
        [spec],
        {"M": LARGE},
        [],
        levels={"M": [MEDIUM]},
        queue_max=1000,
        jobs={"M": 900},
        more=[(1.0, "M", 600)],
    )
    world.play(until=20.0)
    assert len(world.jobs_done) == 1500
    moves = steps(world)
    assert [(was, step) for _, was, step in moves] == [(0, 1), (1, 0)]
    assert moves[0][0] == pytest.approx(1.0, abs=0.06)
    down = [at for (at, *_), level in zip(world.runs, world.run_levels, strict=True) if level == 1]
    assert down and moves[0][0] <= min(down) and max(down) <= moves[1][0]
