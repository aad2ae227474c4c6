"""How long to wait before the next try: within bounds for every number of attempts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.retry import DELAY_FLOOR_S, RetryPolicy

POLICIES = [
    RetryPolicy(),
    RetryPolicy(base_s=1.0, factor=2.0, cap_s=3600.0),
    RetryPolicy(base_s=1.0, factor=1e9, cap_s=3600.0),
    RetryPolicy(base_s=0.0, factor=2.0, cap_s=3600.0),
    RetryPolicy(base_s=1.0, factor=1.0, cap_s=3600.0),
    RetryPolicy(base_s=1e308, factor=1e308, cap_s=1e308),
    RetryPolicy(base_s=5.0, factor=2.0, cap_s=0.0),
    RetryPolicy(base_s=1, factor=2, cap_s=3600),  # whole numbers grow without overflow, and then must be cut
    RetryPolicy(base_s=1e-300, factor=1.5, cap_s=60.0),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("jitter", [0.0, 0.5, math.nextafter(1.0, 0.0)])
def test_five_thousand_attempts_grow_up_to_the_cap_and_never_fail(policy, jitter):
    delays = [policy.delay_s(attempt=attempt, jitter=jitter) for attempt in range(5_001)]
    assert all(math.isfinite(delay) for delay in delays)
    assert min(delays) >= DELAY_FLOOR_S
    assert max(delays) <= max(policy.cap_s, DELAY_FLOOR_S)
    assert delays == sorted(delays)
    assert delays[0] == delays[1]  # an attempt "0" counts as the first


def test_the_waits_of_the_contract():
    policy = RetryPolicy()
    assert [policy._full_s(attempt) for attempt in (1, 2, 3, 4, 12, 13)] == [1, 2, 4, 8, 2048, 3600]


@given(attempt=st.integers(1, 10_000), jitter=st.floats(0, 1, exclude_max=True))
def test_jitter_stays_between_half_and_all_of_the_wait(attempt, jitter):
    policy = RetryPolicy(base_s=1.0, factor=2.0, cap_s=600.0)
    full = min(600.0, 2.0 ** min(attempt - 1, 100))
    assert full / 2 <= policy.delay_s(attempt=attempt, jitter=jitter) <= full


def test_a_herd_breaks_up():
    policy = RetryPolicy(base_s=10.0)
    delays = [policy.delay_s(attempt=1, jitter=n / 1_000) for n in range(1_000)]
    seconds = [sum(int(delay) == second for delay in delays) for second in range(5, 10)]
    assert max(seconds) <= 3 * sum(seconds) / len(seconds)


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [(None, 4.0), (0.0, 4.0), (3.9, 4.0), (4.1, 4.1), (86_400.0, 86_400.0), (-5.0, 4.0)],
)
def test_a_time_that_was_asked_for_wins_when_it_is_longer(after_s, expected):
    policy = RetryPolicy(base_s=8.0, cap_s=8.0)
    assert policy.delay_s(attempt=1, jitter=0.0, after_s=after_s) == expected


def test_again_now_for_ever_does_not_spin():
    policy = RetryPolicy(base_s=0.0)
    assert policy.delay_s(attempt=1, jitter=0.0, after_s=0.0) == DELAY_FLOOR_S > 0


@pytest.mark.parametrize("wrong", [{"base_s": -1.0}, {"factor": 0.5}, {"cap_s": -1.0}])
def test_a_policy_that_shrinks_is_refused(wrong):
    with pytest.raises(AssertionError):
        RetryPolicy(**wrong)
