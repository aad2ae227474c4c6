"""Numbers of incidents that people had, before and after, each under its own name and in virtual time."""

import json

import pytest

from forebay.cli.edge import run
from forebay.core.admission import Accepted, AdmissionPolicy, Gate, Reason, Snapshot
from forebay.core.requests import RequestPolicy
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted
from forebay.sim.storm import Storm, play
from tests.numbers.test_bursts import CAPACITY, MODEL, SERVICE


def spiked(*, deadline_s, policy=None):
    """Play ten seconds at half of the capacity, two at five times as much and eight at half again; return the times
    of those that were answered in the first ten seconds, and after them."""
    asked = [
        Wanted(at, "M", deadline_s)
        for seed, (load, start, until) in enumerate(((0.5, 0.0, 10.0), (5.0, 10.0, 12.0), (0.5, 12.0, 20.0)))
        for at in poisson(Chance(seed), load * CAPACITY, start=start, until=until)
    ]
    world = ServingWorld([MODEL], {"M": SERVICE}, sorted(asked), policy=policy)
    world.play(until=40.0)
    took = [(one.wanted.at, one.at - one.wanted.at) for one in world.answers if one.good]
    return [took_s for at, took_s in took if at < 10.0], [took_s for at, took_s in took if at >= 10.0]


def test_m1_45_ms_on_average_with_spikes_above_200_ms_and_none_where_200_ms_is_the_deadline():
    quiet, spike = spiked(deadline_s=60.0, policy=RequestPolicy(requests_max=100_000))
    assert sum(quiet) / len(quiet) == pytest.approx(0.045, rel=0.1) and max(quiet) < 0.2
    assert max(spike) > 2.0, "a line without a bound"
    quiet, spike = spiked(deadline_s=0.2)
    assert sum(quiet) / len(quiet) == pytest.approx(0.045, rel=0.1)
    assert max(spike) <= 0.2 and len(spike) >= 0.95 * 2 * CAPACITY, "and the model is as busy as before"


def test_m3_a_queue_of_300_never_holds_342_and_tells_the_42_so():
    gate, held, refused = Gate(AdmissionPolicy(jobs_max=300)), 0, []
    for _ in range(342):
        seen = Snapshot(jobs=held, bytes=0, drain_per_s=450.0)
        verdict = gate.admit(jobs=1, size_b=1, snapshot=seen, now=0.0, jitter=0.0)
        if isinstance(verdict, Accepted):
            held += 1
        else:
            refused.append(verdict)
    assert held == 300 and len(refused) == 42
    assert {(one.reason, one.limit) for one in refused} == {(Reason.FULL, 300)}
    assert all(one.retry_after_s > 0 for one in refused)


OWN_S, WORSE_S, BETTER_S = 5 * 60.0, 20 * 60.0, 6 * 60.0  # of a pipeline


def pipeline_s(*, refusal, until):
    """Return how long a pipeline takes whose last step are three runs of 400 calls at once at a service of 3 * 150 a
    second, half busy with others; infinity when it is not done by `until`. Played at a tenth of all of these."""
    storm = Storm(
        service=Service(fixed_s=0.0, each_s=1 / 45),
        batch_max=1,
        rate_per_s=0.5 * 45,
        patience_s=2.0,
        gives_up_s=20.0,
        bursts=((10.0, 3 * 40),),
        until=10.0 + until - OWN_S,
        budget=False,
        refusal=refusal,
    )
    ends = [one.good_at for one in play(storm) if one.burst]
    assert len(ends) == 120
    return float("inf") if None in ends else OWN_S + max(ends) - 10.0


@pytest.mark.slow  # a quarter of an hour of callers who ask again and again
@pytest.mark.timeout(300)
def test_m23_a_pipeline_of_5_minutes_that_a_storm_of_retries_makes_longer_than_20_takes_6_at_most():
    assert pipeline_s(refusal=False, until=WORSE_S) == float("inf"), (
        "1,200 at 450/s are three seconds, and a collapse"
    )
    assert OWN_S < pipeline_s(refusal=True, until=BETTER_S) <= BETTER_S


@pytest.mark.parametrize(
    ("busy", "waits_s"),
    [(0.92, 0.187), (0.98, 0.763)],
)
def test_m25_two_cores_that_are_92_to_98_percent_busy_are_a_wait_and_not_a_use(capsys, busy, waits_s):
    rate = busy * 2 * 150
    line = f"size --peak {rate}/s --per-replica 150/s --replicas 2 --cpus 2 --wait-max 50ms --json"
    code, found = run(line.split()), json.loads(capsys.readouterr().out)
    assert code == 1 and found["replicas"]["needed"] == 3
    assert found["replicas"]["wait_there_are"]["utilisation"] == pytest.approx(busy)
    assert found["replicas"]["wait_there_are"]["late_s"] == pytest.approx(waits_s, rel=0.01)
    assert found["verdict"]["text"].startswith("needs 3 replicas: with 2 the p99 waits ")


def test_m25_a_thousand_raw_frames_waiting_fit_into_its_8_gib_and_two_thousand_do_not(capsys):
    size = f"size --item-size {1920 * 1080 * 3} --memory 8GiB --queue-max"
    assert run([*size.split(), "1000"]) == 0
    assert run([*size.split(), "2000", "--json"]) == 1
    assert '"queue_over_memory"' in capsys.readouterr().out
