"""Numbers that people compute by hand when they size a queue, each under its own name."""

import json

import pytest

from forebay.cli.edge import run
from forebay.core.arrivals import ArrivalWindows
from forebay.core.sizing.growth import growth, lost_share
from forebay.core.sizing.law import law_of_rate
from forebay.core.sizing.little import holding
from forebay.core.sizing.plan import Load, sized


@pytest.fixture
def size(capsys):
    """Return a function that runs `forebay size` and returns its exit code and its document."""

    def call(line):
        code = run(["size", *line.split(), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def test_m4_ten_thousand_frames_a_second_on_gpus_of_four_thousand_need_three_or_drop_60_percent(size):
    code, found = size("--peak 10000/s --per-replica 4000/s --replicas 1")
    assert code == 1 and found["replicas"]["needed"] == 3
    assert found["replicas"]["lost_share"] == pytest.approx(0.6)
    assert "needs 3 replicas or drops 60 %" in found["verdict"]["text"]
    assert size("--peak 10000/s --per-replica 4000/s --replicas 3")[0] == 0


def test_m4_no_queue_of_a_thousand_matters_against_240_000_frames_too_many():
    assert growth(12_000, 4_000, 30).items == 240_000


def test_m19_more_than_five_thousand_frames_a_second_need_another_gpu():
    assert sized(Load(peak_per_s=5_001, law=law_of_rate(4_000))).for_load == 2


def test_m24_three_instances_of_150_take_400_a_second_and_not_460(size):
    assert size("--peak 400/s --per-replica 150/s --replicas 3")[0] == 0
    code, found = size("--peak 460/s --per-replica 150/s --replicas 3")
    assert code == 1 and found["replicas"]["needed"] == 4


@pytest.mark.parametrize(
    ("lasts", "items", "mb"), [("60s", 12_000, 12), ("5m", 60_000, 60), ("1h", 720_000, 720)]
)
def test_m35_a_thousand_in_and_800_out(size, lasts, items, mb):
    code, found = size(f"--in 1000/s --out 800/s --for {lasts} --item-size 1KB")
    assert (code, found["items"], found["bytes"]) == (0, items, mb * 1_000_000)


def test_m36_five_thousand_in_for_ten_seconds(size):
    _, found = size("--in 5000/s --out 800/s --for 10s --item-size 1KB")
    assert (found["items"], found["bytes"]) == (42_000, 42_000_000)


def test_m37_sixty_frames_a_second_and_200_ms_are_12_and_a_bound_of_16(size):
    _, found = size("--peak 60/s --wait-max 200ms --service 50ms --item-size 1KB")
    assert found["queue"]["waiting"] == pytest.approx(12) and found["queue"]["bound"] == 16
    assert found["queue"]["in_system"] == pytest.approx(15)
    assert holding(60, 0.2).bound == 16


def test_m48_a_thousand_in_a_minute_at_ten_a_minute_are_done_after_100_minutes(size):
    _, found = size("--in 1000/min --out 10/min --for 1m")
    assert found["done_s"] == pytest.approx(100 * 60) and found["items"] == 990


def test_b12_the_peak_is_the_p99_of_sliding_seconds():
    windows = ArrivalWindows()
    for tenth in range(6_000):  # ten minutes of 60 a second, with a burst of 400 in one of them
        windows.arrived(6 + 400 * (tenth == 3_000), now=tenth / 10)
    assert windows.peaks(now=601.0)[:2] == (60.0, 460.0)


def test_a_target_of_200_for_the_autoscaler_is_the_whole_budget_of_50_ms(size):
    line = "--peak 8000/s --per-replica 4000/s --wait-max 50ms --hpa-target 200"
    code, found = size(line)
    assert code == 1 and [one["code"] for one in found["findings"]] == ["hpa_over_wait"]
    assert "a wait of 50 ms" in found["findings"][0]["evidence"] and found["hpa"]["target"] == 160
    _, slow = size(line.replace("4000/s", "2000/s"))
    assert "a wait of 100 ms" in slow["findings"][0]["evidence"] and slow["hpa"]["target"] == 80


def test_a_thousand_raw_frames_do_not_fit_into_four_gigabytes(size):
    raw_b = 1920 * 1080 * 3
    assert 300 * raw_b == pytest.approx(1.87e9, rel=0.01)
    code, found = size(f"--queue-max 1000 --item-size {raw_b} --memory 4GB")
    assert code == 1 and found["findings"][0]["code"] == "queue_over_memory"
    assert size(f"--queue-max 300 --item-size {raw_b} --memory 4GB")[0] == 0


def test_three_attempts_have_no_use_for_four_pauses(size):
    code, found = size("--attempts 3 --backoff 1s,2s,4s,8s")
    assert code == 1 and found["findings"][0]["change"] == "attempts_max=5, or 2 pauses"
    assert size("--attempts 5 --backoff 1s,2s,4s,8s")[0] == 0


def test_what_lasts_beyond_the_capacity_is_lost_however_long_the_queue():
    assert lost_share(12_000, 4_000) == pytest.approx(2 / 3)


def codes(found):
    return [one["code"] for one in found["findings"]]


def test_m27_three_checks_30_s_apart_notice_a_dead_replica_too_late_and_two_10_s_apart_do_not(size):
    code, found = size("--health-check 30s --unhealthy-after 3")
    assert code == 1 and codes(found) == ["check_too_late"]
    assert found["findings"][0]["change"] == "a check each 10s, unhealthy after 2"
    assert size("--health-check 10s --unhealthy-after 2")[0] == 0


def test_m28_a_deregistration_delay_of_30_s_cuts_runs_of_45_s(size):
    code, found = size("--drain 30s --timeout 45s")
    assert code == 1 and codes(found) == ["drain_under_runs"]
    assert size("--drain 30s --timeout 30s")[0] == 0


def test_m29_two_to_ten_replicas_and_a_cooldown_of_300_s_come_too_late_for_1200_at_once(size):
    burst = "--peak 1200/s --per-replica 150/s --replicas 2 --queue-max 200 --cooldown 300s --start 60s"
    code, found = size(f"{burst} --replicas-max 10")
    assert code == 1 and codes(found) == ["scaled_too_late"]
    assert "after 222 ms" in found["findings"][0]["evidence"]
    steady = "--peak 280/s --per-replica 150/s --replicas 2 --queue-max 200 --cooldown 300s --start 60s"
    assert size(f"{steady} --replicas-max 10") == (0, {**size(steady)[1]})


def test_m34_a_cluster_of_at_most_20_does_not_do_what_needs_more(size):
    line = "--peak 3600/s --per-replica 150/s --replicas-max 20"
    code, found = size(line)
    assert code == 1 and codes(found) == ["maximum_under_need"]
    assert size(line.replace("3600", "2400"))[0] == 0
