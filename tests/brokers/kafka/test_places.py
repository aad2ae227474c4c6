"""How far a partition is done: rows of (what came and was done, what may be committed)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.brokers.kafka.places import Place

ROWS = [
    # came, done, committable, open, span
    ([], [], None, 0, 0),
    ([0], [], 0, 1, 1),
    ([0], [0], 1, 0, 0),
    ([5, 6, 7], [], 5, 3, 3),
    ([5, 6, 7], [5], 6, 2, 2),
    ([5, 6, 7], [7], 5, 2, 3),
    ([5, 6, 7], [7, 6], 5, 1, 3),
    ([5, 6, 7], [7, 6, 5], 8, 0, 0),
    ([5, 6, 7], [5, 7], 6, 1, 2),
    ([5, 9, 30], [5], 9, 2, 2),  # what retention or a transaction took out leaves holes
    ([5, 9, 30], [30, 5, 9], 31, 0, 0),
]


@pytest.mark.parametrize(("came", "done", "committable", "open_", "span"), ROWS)
def test_only_what_lies_below_the_lowest_that_is_not_done_may_be_committed(
    came, done, committable, open_, span
):
    place = Place(1)
    assert all(place.came(offset) for offset in came)
    assert all(place.done(offset) for offset in done)
    assert (place.committable, place.open, place.span) == (committable, open_, span)


def test_what_is_not_held_is_passed_over():
    place = Place(1)
    place.came(3)
    assert place.done(3) and not place.done(3) and not place.done(4) and not place.done(2)
    assert place.committable == 4


def test_an_offset_that_does_not_lie_above_all_before_says_that_the_topic_is_another():
    place = Place(1)
    assert place.came(7) and not place.came(7) and not place.came(0)
    assert place.holds(7) and not place.holds(0)


@given(st.permutations(range(8)), st.integers(0, 8))
def test_in_whatever_order_hints_are_done_none_that_is_not_lies_below(order, count):
    place = Place(1)
    for offset in range(8):
        place.came(offset)
    for offset in order[:count]:
        place.done(offset)
    left = sorted(order[count:])
    assert place.committable == (left[0] if left else 8)
    assert place.span == (8 - left[0] if left else 0)
