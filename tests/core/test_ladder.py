"""A ladder degrades by steps and does not flap; thresholds that contradict each other are resolved and explained."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.core.buffer import CALM_SHARE
from forebay.core.ladder import Ladder, Step, check_steps, scaled, thresholds
from forebay.core.watermark import Watermark
from forebay.errors import InvalidError

STEPS = (Step(0.90, scale=0.5), Step(0.95, scale=0.25))


def test_each_step_begins_at_its_share():
    ladder = Ladder(STEPS)
    assert [ladder.see(share) for share in (0.0, 0.89, 0.90, 0.94, 0.95, 1.0)] == [0, 0, 1, 1, 2, 2]
    assert [ladder.step(number).scale for number in (0, 1, 2)] == [1.0, 0.5, 0.25]


def test_a_step_is_left_well_below_where_it_began():
    ladder = Ladder(STEPS)
    assert [ladder.see(share) for share in (0.96, 0.90, 0.86, 0.85, 0.82, 0.80)] == [2, 2, 2, 1, 1, 0]


SHARES = st.integers(0, 48).map(lambda number: number / 40)  # the marks and their calm shares among them


@example(ats={20}, shares=[0.5, 0.5 * CALM_SHARE])  # just where it is left
@given(ats=st.sets(st.integers(1, 40), max_size=5), shares=st.lists(SHARES, max_size=60))
def test_the_step_is_the_highest_whose_mark_is_raised_whatever_came_before(ats, shares):
    ladder = Ladder([Step(at / 40) for at in sorted(ats)])
    marks = [Watermark(low=at / 40 * CALM_SHARE, high=at / 40) for at in sorted(ats)]
    for share in shares:
        raised = [number for number, mark in enumerate(marks, 1) if mark.see(share)]
        assert ladder.see(share) == max(raised, default=0)


def test_900_950_1000_contradicts_itself_and_is_resolved_with_an_explanation():
    marks = thresholds(1000, drop=900, degrade=950)
    assert (marks.degrade_at, marks.drop_at) == (0.90, 0.95)
    assert "degrade from 900 on, drop from 950 on" in marks.note
    check_steps((Step(marks.degrade_at),), marks.drop_at)


def test_thresholds_that_make_sense_stay_as_they_are():
    assert thresholds(1000, drop=950, degrade=900) == (0.90, 0.95, "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"drop": 900, "degrade": 900}, "both 900"),
        ({"drop": 1001, "degrade": 5}, "drop must be a whole number from 1 to maxsize"),
        ({"drop": 5, "degrade": 0}, "degrade must be a whole number"),
        ({"drop": True, "degrade": 5}, "drop must be a whole number"),
    ],
)
def test_thresholds_that_cannot_be_are_refused_in_one_line(settings, said):
    with pytest.raises(InvalidError, match=said) as told:
        thresholds(1000, **settings)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("steps", "drop_at", "said"),
    [
        ([Step(0.9), Step(0.9)], None, "0.9 follows 0.9"),
        ([Step(0.0)], None, "above 0"),
        ([Step(1.1)], None, "at most 1"),
        ([Step(True)], None, "above 0"),
        ([Step(0.9, scale=0.0)], None, "Scale"),
        ([Step(0.9, scale=2)], None, "Scale"),
        ([Step(0.9, every=0)], None, "Decimate"),
        ([Step(0.9, every=1.5)], None, "Decimate"),
        ([Step(0.95)], 0.95, "must lie below drop_at"),
        ([Step(n / 10) for n in range(1, 10)], None, "8 steps at most"),
    ],
)
def test_steps_that_make_no_sense_are_refused_in_one_line(steps, drop_at, said):
    with pytest.raises(InvalidError, match=said) as told:
        check_steps(steps, drop_at)
    assert "\n" not in str(told.value)


def test_a_length_at_a_scale_is_never_zero():
    assert [scaled(480, 0.5), scaled(1, 0.25), scaled(3, 0.5)] == [240, 1, 2]
