"""Numbers of bursts, bounds and rates that people have, each under its own name."""

from dataclasses import replace

import pytest

from forebay.config import Settings
from forebay.core.admission import Accepted, AdmissionPolicy, Gate, Reason, Rejected, Snapshot
from forebay.core.requests import RequestPolicy
from forebay.core.sizing.crew import workers_by_rule
from forebay.core.task import TaskSpec
from forebay.core.token_bucket import TokenBucket
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

MODEL, SERVICE = TaskSpec(name="M", kind="class", batch_max=16), Service(fixed_s=0.020, each_s=0.002)
CAPACITY = 16 / 0.052


def verdict(gate, jobs, *, drain_per_s=450.0):
    snapshot = Snapshot(jobs=jobs, bytes=0, drain_per_s=drain_per_s)
    return gate.admit(jobs=1, size_b=1, snapshot=snapshot, now=0.0, jitter=0.0)


def test_m11_a_queue_of_1000_warns_from_900_and_is_full_at_1000():
    gate = Gate(AdmissionPolicy(jobs_max=1_000))
    assert [verdict(gate, jobs) for jobs in (0, 898)] == [Accepted(False)] * 2
    assert [verdict(gate, jobs) for jobs in (899, 999)] == [Accepted(True)] * 2
    refused = verdict(gate, 1_000)
    assert (refused.reason, refused.limit) == (Reason.FULL, 1_000) and refused.retry_after_s > 0


def test_m20_the_queue_of_the_incident_replayed_256_512_842_1024():
    gate = Gate(AdmissionPolicy(jobs_max=1_000))
    seen = [verdict(gate, jobs) for jobs in (256, 512, 842, 1_024)]
    assert seen[:3] == [Accepted(False)] * 3
    assert isinstance(seen[3], Rejected) and seen[3].reason is Reason.FULL


def test_m21_a_request_has_thirty_seconds_unless_it_says_otherwise():
    assert Settings().request_deadline == 30.0


def test_m22_of_1200_at_once_each_refused_one_is_told_a_time_of_its_own_at_450_a_second():
    gate = Gate(AdmissionPolicy(jobs_max=200))
    told = [
        gate.told_to_come(verdict(gate, 200), drain_per_s=450.0, now=0.0).retry_after_s for _ in range(1_000)
    ]
    assert told == sorted(told) and told[-1] <= 1_000 / 450 + 0.1
    per_second = [sum(second <= one < second + 1 for one in told) for second in range(3)]
    assert max(per_second) <= 451 and sum(per_second) == 1_000, "no wave, and all back within three seconds"


def test_m26_a_server_of_two_cores_has_five_blocking_workers_and_not_one():
    assert workers_by_rule(2, blocking=True) == 5 and workers_by_rule(2, blocking=False) == 2


def test_m30_300_a_second_sends_1200_in_3_s_where_a_script_that_waits_and_sleeps_needs_6():
    bucket, now, sent = TokenBucket(rate_per_s=300.0, burst=300.0), 0.0, []
    while len(sent) < 1_200:
        wait_s = bucket.take(1, now=now)
        if wait_s:
            now += wait_s
        else:
            sent.append(now)
    assert sent[-1] == pytest.approx(3.0, abs=0.01) and sent[299] == 0.0
    assert max(sum(at <= one < at + 1.0 for one in sent) for at in (0.5, 1.0, 1.5, 2.0)) <= 301
    by_script_s = 3 * 2.0  # 300, wait for them, sleep 2, four times: before the last 300 even begin
    assert sent[-1] <= by_script_s / 2


def spiked(*, deadline_s, policy=None):
    """Play two seconds at half of the capacity, two at ten times as much and two at half again; return the world and
    the most that waited at once."""
    asked = [
        Wanted(at, "M", deadline_s)
        for seed, (rate, start, until) in enumerate(((0.5, 0.0, 2.0), (5.0, 2.0, 4.0), (0.5, 4.0, 6.0)))
        for at in poisson(Chance(seed), rate * CAPACITY, start=start, until=until)
    ]
    world = ServingWorld([MODEL], {"M": SERVICE}, sorted(asked), policy=policy)
    reservoir, most = world.dispatcher.hand.basin.reservoirs["M"], 0
    for step in range(1, 800):
        world.play(until=step / 50)
        most = max(most, len(reservoir))
    return world, most


def test_m44_a_spike_of_ten_times_is_absorbed_in_flat_memory_and_forgotten():
    world, most = spiked(deadline_s=0.2)
    assert most <= 0.2 * CAPACITY + 2 * MODEL.batch_max, "what can be done in time, and no more"
    after = [one for one in world.answers if one.wanted.at >= 4.5]
    assert all(one.good for one in after)
    assert not world.dispatcher.hand.basin.open or len(world.dispatcher.hand.basin.open) <= most


def test_m45_a_queue_of_256_in_place_of_one_without_bound_lowers_the_p99_by_more_than_40_percent():
    def p99_and_depth(policy):
        world, most = spiked(deadline_s=10.0, policy=policy)
        waits = sorted(one.at - one.wanted.at for one in world.answers if one.good)
        during = sum(one.good and 2.2 <= one.at < 4.0 for one in world.answers) / 1.8
        assert during >= 0.95 * CAPACITY
        return waits[int(0.99 * len(waits))], most

    unbounded = p99_and_depth(RequestPolicy(requests_max=100_000))
    bounded = p99_and_depth(replace(RequestPolicy(), requests_max=256))
    assert unbounded[1] > 1_500 and bounded[1] <= 256
    assert bounded[0] <= 0.6 * unbounded[0]
