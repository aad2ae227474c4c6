"""Theory as an oracle: queueing laws hold in the simulated world, and nothing is made or lost."""

import pytest

from forebay.core.ledger import Ledger
from forebay.core.lifecycle import State
from forebay.sim import arrivals
from forebay.sim.chance import Chance
from forebay.sim.plan import START, draw_plan
from forebay.sim.service import Service
from forebay.sim.world import World
from tests.sim import harness
from tests.sim.queueing import a_plan, mean, poisson, run


@pytest.mark.parametrize("replicas", [1, 3])
def test_littles_law_holds(replicas):
    times = poisson(8.0 * replicas, 160.0 / replicas)
    sojourns, seen = run(a_plan(times, spread=0.5, replicas=replicas), every_s=0.05)
    rate = len(times) / (times[-1] - START)
    assert mean(seen) == pytest.approx(rate * mean(sojourns), rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("rho", [0.3, 0.5, 0.7])
def test_the_mean_time_in_an_m_d_1_queue_is_what_theory_says(rho):
    times = poisson(rho / 0.05, 20_000 * 0.05 / rho, seed=7)
    sojourns, _ = run(a_plan(times))
    expected = 0.05 + rho * 0.05 / (2 * (1 - rho))
    assert mean(sojourns) == pytest.approx(expected, rel=0.03)


def test_a_steady_load_below_capacity_waits_for_nobody():
    sojourns, _ = run(a_plan(arrivals.steady(10.0, start=START + 1.0, until=START + 60.0)))
    assert max(sojourns) == pytest.approx(0.05, abs=1e-6)


def test_a_burst_drains_at_the_speed_of_the_replicas():
    times = [START + 1.0] * 200
    sojourns, _ = run(a_plan(times, replicas=4))
    assert max(sojourns) == pytest.approx(200 * 0.05 / 4, rel=0.02)


def test_batches_raise_what_a_model_with_a_fixed_cost_can_do():
    def longest(batch_max):
        plan = a_plan([START + 1.0] * 160, batch_max=batch_max, batch_wait_s=0.01)
        plan.services["t"] = Service(fixed_s=0.02, each_s=0.002)
        return max(run(plan)[0])

    assert longest(16) == pytest.approx(10 * (0.02 + 16 * 0.002), rel=0.05)
    assert longest(1) == pytest.approx(160 * 0.022, rel=0.05)


@pytest.mark.parametrize("seed", range(700, 715))
def test_accepted_is_final_plus_held_after_any_fault_plan(seed):
    plan = draw_plan(seed)
    book = Ledger()
    world = World(plan, book, reopen=harness.reopen)
    world.run()
    held = sum(book.depth(task, now=1e9).open for task in book.tasks())
    assert book.accepted == len(world.checker.jobs) and held == 0
    assert sum(sight.record.standing.state is not State.QUEUED for sight in world.checker.jobs.values())


# -- arrivals and chance ---------------------------------------------------------------------------


def test_arrivals_come_at_the_asked_rate():
    assert len(arrivals.steady(5.0, start=0.0, until=10.0)) == 50
    assert len(poisson(50.0, 200.0)) == pytest.approx(10_000, rel=0.03)
    waves = arrivals.bursts(Chance(1), start=0.0, until=1_000.0, every_s=10.0, size=7, width_s=0.5)
    assert waves == sorted(waves) and len(waves) % 7 == 0 and len(waves) / 7 == pytest.approx(100, rel=0.25)
    day = arrivals.day_curve(Chance(1), low_per_s=1, high_per_s=9, day_s=100, start=0, until=1_000)
    assert len(day) == pytest.approx(5_000, rel=0.05)
    noon = sum(40 <= at % 100 < 60 for at in day)
    night = sum(at % 100 < 10 or at % 100 >= 90 for at in day)
    assert noon > 5 * night


def test_draws_are_uniform_and_forks_are_independent():
    draws = [Chance(3).fork(i).random() for i in range(4_000)]
    assert mean(draws) == pytest.approx(0.5, abs=0.02) and len(set(draws)) == 4_000
    chance = Chance(4)
    assert mean([chance.normal() for _ in range(4_000)]) == pytest.approx(0.0, abs=0.06)
    assert {chance.whole(1, 3) for _ in range(100)} == {1, 2, 3}


def test_the_spread_of_a_service_keeps_its_mean():
    service, chance = Service(fixed_s=0.5, each_s=0.25, spread=0.4), Chance(5)
    assert mean([service.run_s(2, chance) for _ in range(8_000)]) == pytest.approx(1.0, rel=0.02)
