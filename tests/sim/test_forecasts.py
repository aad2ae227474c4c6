"""What jobs of simulated bursts are told comes true as often as it says; the whole of it is bench/eta.py."""

import pytest

from bench import eta as bench

SOME = (
    "poisson, 1 replica",
    "on/off, batches of 8",
    "heavy tail, poisson",
    "two times slower",
    "replicas lost",
)


@pytest.mark.parametrize("name", SOME)
def test_half_end_by_p50_and_nine_of_ten_by_p90(name):
    row = bench.measure(name, range(1, 4), 500)
    assert row["jobs"] > 900
    assert 0.38 <= row["by_p50"] <= 0.62 and 0.83 <= row["by_p90"] <= 0.97, row


@pytest.mark.slow
@pytest.mark.parametrize("name", bench.FAMILIES)
def test_every_family_keeps_the_bar(name):
    row = bench.measure(name, range(1, 7), 900)
    assert row["ok"], row


def test_a_time_is_not_bought_by_telling_a_late_one():
    """The width of an interval is its price: where service hardly varies, it is a fraction of the wait."""
    row = bench.measure("on/off, 1 replica", range(1, 4), 500)
    assert row["width"] < 0.3 and row["error"] < 0.15, row


def test_the_same_seed_tells_the_same():
    family = bench.FAMILIES["priorities"]
    assert bench.play(family, 3, 200) == bench.play(family, 3, 200)
