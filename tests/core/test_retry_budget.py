"""Retries are at most what is held, a share of what succeeds, and a trickle: whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.retry_budget import RETRIES_HELD_MAX, RETRIES_PER_S, RETRY_SHARE, RetryBudget


def test_a_walk_through_a_budget():
    budget = RetryBudget()
    assert [budget.take(now=0.0) for _ in range(22)] == pytest.approx([0.0] * 20 + [0.1, 0.2])
    assert budget.take(now=0.2) == pytest.approx(0.1), "those who wait are served first"
    budget.put_back()
    assert budget.take(now=0.2) == pytest.approx(0.1)
    for _ in range(5):  # five that succeed pay for one
        budget.succeeded()
    assert budget.take(now=0.3) == pytest.approx(0.0, abs=1e-9)
    assert budget.take(now=0.0) == pytest.approx(0.1), "a clock that goes back brings nothing"


def test_another_rate_has_twice_of_it_at_once_and_one_at_least():
    large, small = RetryBudget(50.0), RetryBudget(0.2)
    assert [large.take(now=0.0) for _ in range(101)] == pytest.approx([0.0] * 100 + [0.02])
    assert [small.take(now=0.0) for _ in range(2)] == pytest.approx([0.0, 5.0])


steps = st.lists(st.tuples(st.booleans(), st.floats(0.0, 2.0)), max_size=200)


@given(steps)
def test_retries_are_never_more_than_their_share(walk):
    budget, now, succeeded, retries = RetryBudget(), 0.0, 0, []
    for works, pause_s in walk:
        now += pause_s
        if works:
            succeeded += 1
            budget.succeeded()
        else:
            retries.append(now + budget.take(now=now))
        for at in retries:
            made = sum(1 for other in retries if other <= at)
            assert made <= RETRIES_HELD_MAX + RETRY_SHARE * succeeded + RETRIES_PER_S * at + 1e-6


def test_what_succeeds_is_not_saved_up_without_end():
    budget = RetryBudget()
    for _ in range(10_000):
        budget.succeeded()
    waits = [budget.take(now=0.0) for _ in range(40)]
    assert sum(1 for wait_s in waits if wait_s == 0.0) == RETRIES_HELD_MAX
