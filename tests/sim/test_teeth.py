"""The simulator finds every planted bug, and says which invariant it broke."""

import statistics

import pytest

from forebay.sim.invariants import BrokenError
from forebay.sim.plan import draw_plan
from tests.sim import harness
from tests.sim.planted import PLANTED

SEEDS_MAX = 800  # a bug that needs more is as good as not found
BLOCKS = (0, 10_000, 20_000)  # independent families of seeds: the median says how long one waits


def seeds_to_find(invariants, block, jobs):
    for tried, seed in enumerate(range(block, block + SEEDS_MAX), 1):
        try:
            harness.play(draw_plan(seed, jobs=jobs))
        except BrokenError as error:
            assert error.invariant in invariants, f"found as another fault: {error}"
            return tried, error.invariant
    return None, None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name, monkeypatch, record_property):
    plant, invariants, jobs = PLANTED[name]
    plant(monkeypatch)
    found = [seeds_to_find(invariants, block, jobs) for block in BLOCKS]
    tries = [SEEDS_MAX + 1 if tried is None else tried for tried, _ in found]
    median = statistics.median(tries)
    record_property("median_seeds", median)
    print(f"{name}: {sorted({i for _, i in found if i})} after {median:.0f} seeds (median of {tries})")
    assert median <= SEEDS_MAX, f"not found in {SEEDS_MAX} seeds"


def test_a_world_without_faults_and_without_bugs_is_clean():
    for seed in range(30):
        harness.play(draw_plan(seed, faulty=False))


def test_a_failing_plan_is_cut_down_to_what_matters(monkeypatch):
    PLANTED["the mates of a crash are charged"][0](monkeypatch)
    for seed in range(SEEDS_MAX):
        plan = draw_plan(seed, jobs=12)
        error = harness.fails(plan)
        if error is not None:
            break
    small = harness.shrink(plan, lambda one: isinstance(harness.fails(one), BrokenError))
    assert len(small.jobs) < len(plan.jobs) and len(small.faults) <= max(1, len(plan.faults) // 2)
    text = harness.story(plan, harness.Ledger, error)
    assert f"seed {seed}" in text and "PlannedJob" in text
