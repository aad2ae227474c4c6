"""How much is leased ahead follows how long a lease takes, between two bounds."""

import pytest

from forebay.core.ahead import AHEAD_MAX_S, AHEAD_S, Ahead
from tests.core.dispatching import tags_of
from tests.sim.rig import Rig


def told(lease_s, times=40):
    ahead = Ahead()
    for _ in range(times):
        ahead.took(lease_s)
    return ahead.s


def test_a_quick_store_is_asked_a_few_milliseconds_ahead_and_a_slow_one_as_early_as_it_takes():
    assert told(0.0) == told(0.002) == AHEAD_S
    assert told(0.02) == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("lease_s", [0.2, 60.0, float("inf")])
def test_a_store_that_hangs_does_not_lead_to_work_that_waits_long_in_one_hand(lease_s):
    assert told(lease_s) == pytest.approx(AHEAD_MAX_S, rel=0.01)


def test_a_clock_that_went_back_says_nothing():
    assert told(-5.0) == AHEAD_S


def test_one_slow_lease_is_forgotten():
    ahead = Ahead()
    ahead.took(60.0)
    assert AHEAD_S < ahead.s < AHEAD_MAX_S / 2
    for _ in range(20):
        ahead.took(0.001)
    assert ahead.s == AHEAD_S


def served(rig, lease_s, jobs):
    """Run jobs of 10 ms on one replica with leases that take so long; return the share of time it was busy."""
    began, done, running, given_at = rig.now, 0, [], None
    while done < jobs:
        if rig.asked and given_at is None:
            given_at = rig.now + lease_s
        instants = [at for at in (given_at, running[0][0] if running else None, rig.d.wake_at()) if at]
        rig.now = max(rig.now, min(instants))
        started = []
        if given_at is not None and rig.now >= given_at:
            given_at = None
            started = rig.lease(count=rig.asked["t"])
        elif running and rig.now >= running[0][0]:
            _, tag = running.pop(0)
            done += 1
            started = rig.done(tag)
        else:
            started = rig.poll()
        for tags in tags_of(started):
            for tag in tags:
                running.append(((running[-1][0] if running else rig.now) + 0.01, tag))
    return jobs * 0.01 / (rig.now - began)


def test_a_replica_does_not_wait_for_a_slow_store_between_two_short_jobs():
    rig = Rig()
    rig.learn(0.01)
    served(rig, 0.02, 50)
    assert served(rig, 0.02, 200) > 0.9
