"""What a CPU quota takes, out of the counters and limits of cgroup 1 and 2."""

import pytest

from forebay.core.throttling import CpuStat, cpus_of, stat_of

V1 = "nr_periods 12000\nnr_throttled 8450\nthrottled_time 3420000000\n"
V2 = "usage_usec 91\nuser_usec 90\nsystem_usec 1\nnr_periods 12000\nnr_throttled 8450\nthrottled_usec 3420000\n"


@pytest.mark.parametrize("text", [V1, V2], ids=["cgroup 1 in ns", "cgroup 2 in us"])
def test_m8_the_counters_of_the_incident_are_seventy_percent_and_three_and_a_half_seconds(text):
    stat = stat_of(text)
    assert stat == CpuStat(12_000, 8_450, pytest.approx(3.42))
    assert stat.ratio == pytest.approx(0.704, abs=1e-3)


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [
        ("200000", "100000", 2.0),
        ("200000 100000", "", 2.0),
        ("50000 100000\n", "", 0.5),
        ("-1", "100000", None),
        ("max 100000", "", None),
        ("", "", None),
        ("0", "0", None),
    ],
)
def test_m6_a_quota_is_so_many_cpus(quota, period, cpus):
    assert cpus_of(quota, period) == cpus


@pytest.mark.parametrize("text", ["", "usage_usec 91\n", "nr_periods x\nnr_throttled 1\n", "a b c\n"])
def test_counters_without_a_quota_are_none(text):
    assert stat_of(text) is None


def test_what_was_added_since_is_what_counts():
    added = CpuStat(30, 12, 1.5).since(CpuStat(10, 2, 0.5))
    assert added == CpuStat(20, 10, 1.0)
    assert added.ratio == 0.5
    assert CpuStat(0, 0, 0.0).ratio == 0.0
