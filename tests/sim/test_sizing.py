"""Sizing against the simulator: with the replicas it names, the promised share really waits no longer.

The formulas are told the rate and the law of the service; the simulated basin runs the real dispatcher.
"""

import math

import pytest

from forebay.core.sizing.crew import replicas_for_wait, wait_of
from forebay.core.sizing.law import ServiceLaw
from forebay.core.sizing.little import holding
from tests.sim.queueing import a_plan, mean, poisson, waits

LIVELY = math.sqrt(math.log(2.0))  # spread of a lognormal whose variance is its mean squared, as exponential
BATCHES = {"fixed_s": 0.02, "each_s": 0.002}


def late(values, quantile):
    return values[math.ceil(quantile * len(values)) - 1]


def played(rate, seconds, *, law, replicas, spread=0.0, batch_wait_s=0.0, seed=3):
    times = poisson(rate, seconds, seed=seed)
    return waits(
        a_plan(
            times,
            fixed_s=law.fixed_s,
            each_s=law.each_s,
            spread=spread,
            replicas=replicas,
            batch_max=law.batch_max,
            batch_wait_s=batch_wait_s,
            kind="class",
        )
    )


def agrees(rate, seconds, *, law, wait_max_s, quantile, spread=0.0, batch_wait_s=0.0):
    """Size it, play it, and compare. A lively service has the variance of an exponential one and a longer
    tail, which is what the larger tolerance is for."""
    variance = math.exp(spread * spread) - 1.0
    known = {"quantile": quantile, "spread": variance, "batch_wait_s": batch_wait_s}
    replicas = replicas_for_wait(law, rate, wait_max_s, **known)
    told = wait_of(law, rate, replicas, **known)
    seen = played(rate, seconds, law=law, replicas=replicas, spread=spread, batch_wait_s=batch_wait_s)
    assert told.late_s <= wait_max_s
    assert late(seen, quantile) <= told.late_s * 1.3 + 0.002, (replicas, told, late(seen, quantile))
    assert late(seen, quantile) <= wait_max_s * (1.3 if spread else 1.1), (
        replicas,
        told,
        late(seen, quantile),
    )
    return told, seen


@pytest.mark.parametrize("spread", [0.0, LIVELY])
def test_the_replicas_it_names_keep_the_promise(spread):
    told, seen = agrees(60.0, 60.0, law=ServiceLaw(each_s=0.05), wait_max_s=0.2, quantile=0.95, spread=spread)
    assert mean(seen) == pytest.approx(told.mean_s, rel=0.5)


def test_the_replicas_it_names_keep_the_promise_for_batches():
    agrees(
        600.0, 8.0, law=ServiceLaw(**BATCHES, batch_max=16), wait_max_s=0.1, quantile=0.95, batch_wait_s=0.005
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("spread", [0.0, LIVELY])
@pytest.mark.parametrize(("rate", "wait_max_s"), [(15.0, 0.2), (15.0, 1.0), (150.0, 0.02), (150.0, 0.2)])
def test_the_p99_is_kept_at_every_load_and_promise(rate, wait_max_s, spread):
    agrees(
        rate, 8_000 / rate, law=ServiceLaw(each_s=0.05), wait_max_s=wait_max_s, quantile=0.99, spread=spread
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rate", "wait_max_s"), [(20.0, 0.06), (150.0, 0.06), (290.0, 0.2), (1_000.0, 0.06)])
def test_the_p99_of_batches_is_kept_at_every_load(rate, wait_max_s):
    told, seen = agrees(
        rate,
        8_000 / rate,
        law=ServiceLaw(**BATCHES, batch_max=16),
        wait_max_s=wait_max_s,
        quantile=0.99,
        batch_wait_s=0.005,
    )
    # Rather late than early, and yet of some use.
    assert late(seen, 0.99) > told.late_s / 4


def test_the_line_holds_what_littles_law_says():
    law = ServiceLaw(each_s=0.05)
    seen = played(60.0, 60.0, law=law, replicas=4)
    assert holding(60.0, mean(seen)).waiting < holding(60.0, 0.2).bound
