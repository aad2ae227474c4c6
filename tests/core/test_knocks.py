"""Knocks: whoever connected a moment ago and said nothing is about to; nobody else is."""

import pytest

from forebay.core.knocks import SILENT_S, Knocks


def test_nobody_is_expected_at_first():
    assert Knocks().until() is None


def test_the_newest_who_is_silent_is_expected_for_a_moment():
    knocks = Knocks()
    knocks.came(1, now=5.0)
    knocks.came(2, now=5.001)
    assert knocks.until() == pytest.approx(5.001 + SILENT_S)
    knocks.spoke(2)
    assert knocks.until() == pytest.approx(5.0 + SILENT_S)
    knocks.spoke(1)
    knocks.spoke(1)
    assert knocks.until() is None


def test_those_who_stay_silent_are_not_kept():
    knocks = Knocks()
    for who in range(1_000):
        knocks.came(who, now=10.0 + who)
    assert len(knocks._silent) == 1
