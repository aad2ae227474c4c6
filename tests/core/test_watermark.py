"""A watermark does not flap between its two levels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.watermark import Watermark


@pytest.mark.parametrize(
    ("levels", "raised"),
    [
        ([0.0], [False]),
        ([0.9], [True]),
        ([0.85], [False]),
        ([0.95, 0.85, 0.81, 0.8, 0.85], [True, True, True, False, False]),
        ([0.9, 0.8, 0.9], [True, False, True]),
    ],
)
def test_it_is_raised_at_the_high_level_and_lowered_at_the_low_one(levels, raised):
    mark = Watermark(low=0.8, high=0.9)
    assert [mark.see(level) for level in levels] == raised


@given(st.lists(st.floats(0.0, 1.0)))
def test_between_the_levels_it_stays_as_it_was(levels):
    mark, before = Watermark(low=0.3, high=0.7), False
    for level in levels:
        now = mark.see(level)
        assert now is (True if level >= 0.7 else False if level <= 0.3 else before)
        before = now


def test_one_level_for_both_is_allowed_and_a_wrong_order_is_not():
    assert Watermark(low=0.5, high=0.5).see(0.5)
    with pytest.raises(AssertionError):
        Watermark(low=0.6, high=0.5)
