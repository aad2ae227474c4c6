"""A bucket never gives more than burst + rate * elapsed, whatever the clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.token_bucket import TokenBucket

STEPS = [
    # (count, now, answer): 10 per second, 5 at once
    (5, 0.0, 0.0),
    (1, 0.0, 0.1),
    (1, 0.1, 0.0),
    (3, 0.2, 0.2),
    (6, 0.2, float("inf")),
    (5, 100.0, 0.0),
    (1, 50.0, 0.1),  # the clock went back: nothing flows in, nothing is lost
    (1, 100.1, 0.0),
]


def test_a_walk_through_a_bucket():
    bucket = TokenBucket(rate_per_s=10.0, burst=5.0)
    for count, now, answer in STEPS:
        assert bucket.take(count, now=now) == pytest.approx(answer), (count, now)


takes = st.lists(st.tuples(st.integers(1, 8), st.floats(-5.0, 20.0)), max_size=60)


@given(takes, st.floats(0.1, 1_000.0), st.floats(1.0, 100.0))
def test_it_never_gives_more_than_burst_and_what_flowed_in(steps, rate, burst):
    bucket = TokenBucket(rate_per_s=rate, burst=burst)
    given_out, latest, first = 0.0, None, None
    for count, now in steps:
        if bucket.take(count, now=now) == 0.0:
            given_out += count
        first = now if first is None else first
        latest = now if latest is None else max(latest, now)
        assert given_out <= burst + rate * (latest - first) + 1e-6 * (1 + given_out)


@given(takes, st.integers(1, 8))
def test_who_comes_back_when_told_is_served(steps, count):
    bucket = TokenBucket(rate_per_s=3.0, burst=8.0)
    now = 0.0
    for taken, at in steps:
        now = max(now, at)
        bucket.take(taken, now=now)
    wait_s = bucket.take(count, now=now)
    assert wait_s == 0.0 or bucket.take(count, now=now + wait_s) == 0.0


def test_tokens_that_were_not_used_come_back_up_to_the_burst():
    bucket = TokenBucket(rate_per_s=1.0, burst=3.0)
    bucket.take(3, now=0.0)
    bucket.put_back(2)
    assert bucket.tokens_at(0.0) == 2.0
    bucket.put_back(9)
    assert bucket.tokens_at(0.0) == 3.0
    assert bucket.tokens_at(5.0) == 3.0
