"""Goodput under overload, in virtual time: the decisions alone, with nothing of a machine in between."""

from collections import Counter
from dataclasses import replace

import pytest

from forebay.core.admission import Reason
from forebay.core.codel import Discipline
from forebay.core.estimator import Crew, Estimator
from forebay.core.replicas import Shut
from forebay.core.requests import End
from forebay.core.task import TaskSpec
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

CAPACITY = 16 / (0.020 + 16 * 0.002)
SLO_S = 0.2
MODEL = TaskSpec(name="M", kind="class", batch_max=16)
SERVICE = Service(fixed_s=0.020, each_s=0.002)


def wanted(times, *, seed=3, until=8.0, deadline_s=SLO_S, **more):
    arrivals = poisson(Chance(seed), CAPACITY * times, start=0.0, until=until)
    return [Wanted(at, "M", deadline_s, **more) for at in arrivals]


def played(asked, *, service=SERVICE, until=10.0, **more):
    return ServingWorld([MODEL], {"M": service}, sorted(asked), **more).play(until=until)


def good_per_s(answers, start, end):
    """Return the answers a second that were in time."""
    return sum(one.good and start <= one.at < end for one in answers) / (end - start)


@pytest.mark.parametrize(
    ("times", "least"), [(0.5, 0.485), (0.9, 0.88), (1.0, 0.95), (2.0, 0.98), (5.0, 0.98), (10.0, 0.98)]
)
def test_goodput_is_kept_at_any_load(times, least):
    answers = played(wanted(times))
    assert good_per_s(answers, 2.0, 8.0) >= least * CAPACITY
    if times < 1.0:
        assert sum(one.good for one in answers) >= 0.98 * len(answers)


@pytest.mark.parametrize("times", [1.5, 2.0, 10.0])
def test_a_model_that_slows_twofold_and_back_is_followed(times):
    service = Service(fixed_s=0.020, each_s=0.002, regimes=((4.0, 2.0), (9.0, 1.0)))
    answers = played(wanted(times, until=14.0), service=service, until=16.0)
    assert good_per_s(answers, 6.0, 9.0) >= 0.95 * CAPACITY / 2
    assert good_per_s(answers, 11.0, 14.0) >= 0.95 * CAPACITY


@pytest.mark.parametrize(("way_s", "least"), [(0.0, 0.97), (0.002, 0.97), (0.008, 0.96)])
def test_items_of_very_different_cost_do_not_cost_the_goodput(way_s, least):
    """Runs differ by a quarter: what is sent a fixed time before the expected end often comes late, and who is let
    in on the mean of them is late every second time. What is
    counted is time: how many items a second holds depends on the costs that are drawn."""
    useful_s, seeds = 0.0, (9, 10, 11)
    for seed in seeds:
        chance = Chance(seed)
        asked = [one._replace(cost=0.25 if chance.hit(0.8) else 4.0) for one in wanted(3.0, seed=seed)]
        answers = played(asked, way_s=way_s, seed=seed)
        useful_s += sum(
            0.020 / 16 + 0.002 * one.wanted.cost for one in answers if one.good and 2.0 <= one.at < 8.0
        )
    assert useful_s / 6.0 / len(seeds) >= least


@pytest.mark.parametrize("way_s", [0.0, 0.0005, 0.002, 0.008])
def test_three_tasks_share_one_pool(way_s):
    """However long the way to the worker is: the next piece leaves so much earlier."""
    services = {"a": Service(each_s=0.002), "b": Service(each_s=0.01), "c": Service(each_s=0.02)}
    asked = sorted(
        Wanted(at, task, SLO_S)
        for seed, task in enumerate(services)
        for at in poisson(Chance(seed), 300.0, start=0.0, until=8.0)
    )
    specs = [TaskSpec(name=task) for task in services]
    answers = ServingWorld(specs, services, asked, way_s=way_s).play(until=10.0)
    useful_s = sum(services[one.wanted.task].each_s for one in answers if one.good and 2.0 <= one.at < 8.0)
    assert useful_s / 6.0 >= 0.97


def test_a_tenant_that_floods_takes_nothing_from_one_that_does_not():
    asked = [*wanted(8.0, tenant="loud"), *wanted(0.2, seed=4, tenant="quiet")]
    answers = played(asked)
    assert good_per_s(answers, 2.0, 8.0) >= 0.98 * CAPACITY
    quiet = [one for one in answers if one.wanted.tenant == "quiet"]
    assert sum(one.good for one in quiet) >= 0.95 * len(quiet)


def test_the_urgent_class_is_served_and_the_lower_one_shed():
    answers = played([*wanted(2.0, priority=8), *wanted(0.5, seed=4, priority=2)])
    urgent = [one for one in answers if one.wanted.priority == 2]
    assert sum(one.good for one in urgent) >= 0.98 * len(urgent)
    assert good_per_s(answers, 2.0, 8.0) >= 0.98 * CAPACITY


def test_jobs_get_their_share_of_a_flood_of_requests_and_no_more():
    world = ServingWorld([MODEL], {"M": SERVICE}, wanted(3.0), jobs={"M": 100_000})
    answers = world.play(until=8.0)
    jobs = sum(2.0 <= at < 8.0 for at in world.jobs_done) / 6.0
    assert 0.08 * CAPACITY <= jobs <= 0.12 * CAPACITY
    assert good_per_s(answers, 2.0, 8.0) >= 0.85 * CAPACITY


def test_requests_get_their_answers_beside_a_backlog_of_jobs():
    world = ServingWorld([MODEL], {"M": SERVICE}, wanted(0.4), jobs={"M": 100_000})
    answers = world.play(until=10.0)
    assert sum(one.good for one in answers) >= 0.98 * len(answers)
    assert len(world.jobs_done) > 0.08 * CAPACITY * 8


def test_what_is_refused_never_ran_and_what_ran_was_nearly_always_wanted():
    world = ServingWorld([MODEL], {"M": SERVICE}, wanted(5.0))
    answers = world.play(until=10.0)
    ran = sum(items for _, _, items, _ in world.runs)
    assert ran - sum(one.good for one in answers) <= 0.02 * ran
    ends = Counter(one.end for one in answers)
    assert ends[End.LATE] <= 0.02 * ends[End.DONE]


def test_the_overload_is_forgotten_half_a_second_after_it():
    asked = [*wanted(10.0, until=4.0), *(one._replace(at=one.at + 4.5) for one in wanted(0.5, seed=5))]
    answers = played(asked, until=14.0)
    after = [one for one in answers if one.wanted.at >= 4.5]
    assert all(one.good for one in after)


@pytest.mark.parametrize("seed", [0, 11, 26])
def test_a_long_overload_of_full_batches_does_not_hide_how_long_small_ones_take(seed):
    """Fourteen seconds of nothing but full batches, then half the capacity: single items would be expected to
    take a sixteenth of them, each would be taken for another service, and the door would shut for seconds."""
    asked, at = [], 0.0
    for phase, (rate, seconds) in enumerate(((30.0, 3.0), (2 * CAPACITY, 14.0), (0.5 * CAPACITY, 4.0))):
        chance = Chance(10 * seed + phase)
        asked += [Wanted(when, "M", SLO_S) for when in poisson(chance, rate, start=at, until=at + seconds)]
        at += seconds
    answers = played(asked, until=23.0)
    after = [one for one in answers if one.wanted.at >= 17.25]
    assert sum(not one.good for one in after) <= 0.005 * len(after)


def test_a_burst_after_single_calls_is_answered_in_batches_from_the_second_run_on():
    """Nothing but single items was measured. Who is read late has the rest of its time alone."""
    asked = [Wanted(number / 30, "M", SLO_S) for number in range(60)]
    for number in range(700):
        read_s = 0.001 + 0.00027 * number
        asked.append(Wanted(3.0 + read_s, "M", SLO_S - read_s))
    world = ServingWorld([MODEL], {"M": SERVICE}, asked, way_s=0.0003)
    burst = world.play(until=5.0)[60:]
    assert sum(one.good for one in burst) >= 44
    assert not [one for one in burst if one.end is End.DONE and not one.good]
    assert [items for at, _, items, _ in world.runs if at >= 3.05][:2] == [16, 16]


def kept_short(discipline, times):
    """Return (share of the capacity, waits of the good ones, waits of those told no) of a long overload by
    callers who have thirty seconds."""
    spec = replace(MODEL, discipline=Discipline(discipline))
    asked = wanted(times, until=12.0, deadline_s=30.0)
    answers = ServingWorld([spec], {"M": SERVICE}, asked).play(until=50.0)
    late = [one for one in answers if 6.0 <= one.wanted.at < 12.0]
    good = sorted(one.at - one.wanted.at for one in late if one.good)
    told_no = sorted(one.at - one.wanted.at for one in late if not one.good)
    return good_per_s(answers, 6.0, 12.0) / CAPACITY, good, told_no


@pytest.mark.parametrize("times", [2.0, 10.0])
@pytest.mark.parametrize(
    ("discipline", "median_s", "p99_s"), [("newest", 0.1, 0.6), ("codel", 0.6, 0.7), ("deadline", 30, 30)]
)
def test_with_generous_deadlines_a_discipline_keeps_waits_short_at_the_same_goodput(
    discipline, median_s, p99_s, times
):
    share, good, told_no = kept_short(discipline, times)
    assert share >= 0.98
    assert good[len(good) // 2] <= median_s and good[int(0.99 * len(good))] <= p99_s
    if discipline == "deadline":
        assert good[len(good) // 2] >= 5.0, "the deadlines alone let them wait as long as they may"
    else:
        assert told_no[-1] <= 0.7, "nobody waits long to hear no"


@pytest.mark.parametrize("discipline", ["newest", "codel"])
def test_below_capacity_a_discipline_changes_nothing(discipline):
    asked = wanted(0.9, deadline_s=30.0)
    plain = ServingWorld([MODEL], {"M": SERVICE}, asked).play(until=12.0)
    spec = replace(MODEL, discipline=Discipline(discipline))
    other = ServingWorld([spec], {"M": SERVICE}, asked).play(until=12.0)
    assert [(one.at, one.end) for one in other] == [(one.at, one.end) for one in plain]


SLOW = Service(fixed_s=0.20, each_s=0.02)


def beside_jobs(times, *, until, **more):
    """Return a world of runs of half a second, with requests beside more jobs than can be done."""
    rate = times * CAPACITY / 10
    asked = [Wanted(at, "M", 2.0) for at in poisson(Chance(3), rate, start=0.0, until=until)] if rate else []
    return ServingWorld([MODEL], {"M": SLOW}, asked, jobs={"M": 10_000}, **more)


@pytest.mark.parametrize("times", [0.3, 0.8, 3.0])
def test_jobs_get_their_share_also_where_runs_are_long_and_few_requests_wait(times):
    world = beside_jobs(times, until=100.0)
    world.play(until=100.0)
    jobs_s = sum(
        SLOW.run_s(items, world.chance) for _, _, items, of_requests in world.runs if not of_requests
    )
    requests_s = sum(
        SLOW.run_s(items, world.chance) for _, _, items, of_requests in world.runs if of_requests
    )
    assert jobs_s / 100.0 >= 0.09 and requests_s / 100.0 <= 0.91


def test_jobs_that_wait_beside_requests_are_not_leased_again_and_again_while_the_replica_is_late():
    """The first run takes longer than anybody could foresee: what was leased is given back, once."""
    world = beside_jobs(3.0, until=3.0)
    world.play(until=3.0)
    assert 10_000 - world.jobs_left["M"] <= 100


@pytest.mark.parametrize("times", [0.0, 0.3, 0.8, 3.0])
def test_the_time_a_job_is_told_knows_of_the_requests_that_share_its_replicas(times):
    looked_at, position = 60.0, 100
    world = beside_jobs(times, until=150.0)
    estimator = Estimator.of(MODEL)
    estimator.crew = Crew(world.dispatcher.hand)
    estimator.crew.count = 1
    world.play(until=looked_at)
    for ran in world.dispatcher.take_ran():
        estimator.ran(items=ran.items, took_s=ran.took_s)
    told = estimator.eta(position=position, now=looked_at)
    place = len(world.jobs_done) + position
    drain = estimator.drain_per_s(now=looked_at)
    world.play(until=150.0)
    true_s = world.jobs_done[place] - looked_at
    assert told.starts_s == pytest.approx(true_s, rel=0.5)
    assert position / drain == pytest.approx(true_s, rel=0.6), "and the time to come back by the same"


CALLS = TaskSpec(name="U", kind="upstream", concurrency=256)
CALL = Service(each_s=0.05)


def before_an_upstream(limits, *, rate, until):
    asked = [Wanted(at, "U", 0.5) for at in poisson(Chance(3), rate, start=0.0, until=until)]
    return ServingWorld([CALLS], {"U": CALL}, asked, limits=limits).play(until=until + 2.0)


def test_goodput_follows_the_calls_at_once_that_an_upstream_allows():
    answers = before_an_upstream(((0.0, 8, None), (5.0, 4, None), (10.0, 16, None)), rate=600.0, until=15.0)
    for start, calls in ((2.0, 8), (7.0, 4), (12.0, 16)):
        assert good_per_s(answers, start, start + 3.0) >= 0.95 * calls / CALL.each_s, calls


def test_while_an_upstream_is_shut_nobody_is_called_and_nobody_hears_that_it_was_late():
    full = Shut(4.0, 5.0, "its gate is closed")
    looks = tuple((at, 0, full._replace(opens_at=at + 1.0)) for at in (4.0, 5.0, 6.0, 7.0))
    answers = before_an_upstream(((0.0, 8, None), *looks, (8.0, 8, None)), rate=300.0, until=12.0)
    shut_out = [one for one in answers if 4.0 <= one.wanted.at < 8.0]
    reasons = {one.refused.reason for one in shut_out if one.refused is not None}
    assert Reason.UPSTREAM_BUSY in reasons <= {Reason.UPSTREAM_BUSY, Reason.TOO_LATE}
    assert not any(one.end is End.LATE for one in shut_out)
    assert all(one.end in (None, End.BARRED, End.DONE) for one in shut_out)
    assert good_per_s(answers, 9.0, 12.0) >= 0.95 * 8 / CALL.each_s, "and then it goes on"
