"""Peaks of a gauge, between two looks and over a minute."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.peak import SECONDS, Peak


def test_what_happens_between_two_looks_is_not_lost():
    peak = Peak()
    for at, value in ((1.0, 3), (1.1, 250), (1.2, 0)):
        peak.see(value, now=at)
    assert peak.take() == 250
    assert peak.take() == 0


def test_a_queue_that_stays_full_is_full_at_each_look():
    peak = Peak()
    peak.see(40, now=1.0)
    assert [peak.take(), peak.take()] == [40, 40]


def test_what_was_never_sampled_has_no_peak():
    assert Peak().take() is None and Peak().last_minute(now=5.0) == 0


def test_taking_it_does_not_shorten_the_last_minute():
    peak = Peak()
    peak.see(9, now=100.0)
    peak.take()
    peak.take()
    assert peak.last_minute(now=159.9) == 9
    assert peak.last_minute(now=160.0) == 0


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(0, 1000)), max_size=50))
def test_the_last_minute_is_what_was_seen_in_it(samples):
    peak, at, seen = Peak(), 1_000.0, []
    for gap, value in samples:
        at += gap
        peak.see(value, now=at)
        seen.append((int(at), value))
    recent = [value for second, value in seen if second > int(at) - SECONDS]
    assert peak.last_minute(now=at) == max(recent, default=0)
