"""The search for bad items keeps its promises for every batch and every set of bad ones."""

import math

from hypothesis import given
from hypothesis import strategies as st

from forebay.child.halving import halve


def search(count: int, bad: set[int]) -> tuple[dict[int, bool], list[int], int]:
    """Return (blamed: only in company?, succeeded, calls)."""
    blamed: dict[int, bool] = {}
    good: list[int] = []
    calls = halve(count, blamed.__setitem__)
    made, indexes = 1, next(calls)
    while True:
        succeeded = not bad & set(indexes)
        if succeeded:
            good += indexes
        try:
            indexes = calls.send(succeeded)
        except StopIteration:
            return blamed, good, made
        made += 1


def test_one_bad_item_costs_log2_n_plus_one_more_calls_at_most():
    for count in range(1, 130):
        for place in range(count):
            blamed, good, calls = search(count, {place})
            assert set(blamed) == {place}
            assert sorted(good) == [n for n in range(count) if n != place]
            assert calls - 1 <= math.ceil(math.log2(count)) + 1


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_the_bad_are_blamed_and_the_good_succeed_exactly_once(case):
    count, bad = case
    blamed, good, calls = search(count, bad)
    assert set(blamed) == bad
    assert sorted([*good, *blamed]) == list(range(count))
    assert calls <= 2 * count
    bound = len(bad) * (math.ceil(math.log2(count)) + 1)
    if bound < count:  # else the other bound is the lower one
        assert calls - 1 <= bound


def test_a_good_batch_is_one_call():
    assert search(8, set()) == ({}, list(range(8)), 1)
