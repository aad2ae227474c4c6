"""The gate of an upstream: closes and opens at two values, and stands open when nobody knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.saturation import Change, SaturationGate, SaturationPolicy, Stand

POLICY = SaturationPolicy(close_at=20.0, open_at=10.0, every_s=1.0, stale_s=10.0)


def seen(*values, gate=None):
    """Return how the gate stands after each value, one look a second."""
    gate = gate or SaturationGate(POLICY)
    stands = []
    for now, value in enumerate(values):
        gate.see(value, now=float(now), why="gone")
        stands.append(gate.stand.value)
    return stands


@pytest.mark.parametrize(
    ("values", "stands"),
    [
        ([0, 19.9, 20], ["open", "open", "closed"]),
        ([20, 19, 10.1, 10], ["closed", "closed", "closed", "open"]),
        ([15, 25, 15, 5, 15], ["open", "closed", "closed", "open", "open"]),
        ([20, None, None, 30, 9], ["closed"] * 4 + ["open"]),
    ],
)
def test_between_its_two_values_it_stays_as_it_is(values, stands):
    assert seen(*values) == stands


def test_each_change_has_its_reason_and_no_other_look_is_one():
    gate = SaturationGate(POLICY)
    assert gate.see(5.0, now=0.0) is None
    assert gate.see(23.0, now=1.0) == Change(Stand.CLOSED, "23 (closes at 20)")
    assert gate.see(24.0, now=2.0) is None
    assert gate.see(9.5, now=3.0) == Change(Stand.OPEN, "9.5 (opens at 10)")
    assert (gate.value, gate.closed) == (9.5, False)


def test_without_a_value_it_keeps_its_state_for_a_while_and_then_stands_open_and_says_why():
    gate = SaturationGate(POLICY)
    gate.see(30.0, now=0.0)
    assert gate.see(None, now=1.0, why="it answered 404") is None
    assert gate.see(None, now=10.9, why="it answered 404") is None
    assert (gate.closed, gate.value) == (True, 30.0)
    assert gate.see(None, now=11.0, why="it answered 404") == Change(
        Stand.BLIND, "no value for 10 s: it answered 404"
    )
    assert (gate.closed, gate.value) == (False, None)
    assert gate.see(None, now=99.0, why="it answered 404") is None, "told once"
    assert gate.see(15.0, now=100.0) == Change(Stand.OPEN, "15: there is a value again")


def test_one_value_between_begins_the_wait_anew():
    gate = SaturationGate(POLICY)
    gate.see(30.0, now=0.0)
    gate.see(None, now=1.0)
    gate.see(15.0, now=9.0)
    assert gate.see(None, now=12.0) is None
    assert gate.see(None, now=21.9) is None
    assert gate.see(None, now=22.0) is not None


def test_an_open_gate_that_never_had_a_value_says_so_too():
    gate = SaturationGate(POLICY)
    assert gate.see(None, now=5.0, why="no such metric") is None
    assert gate.see(None, now=15.0, why="no such metric") == Change(
        Stand.BLIND, "no value for 10 s: no such metric"
    )
    assert gate.see(20.0, now=16.0) == Change(Stand.CLOSED, "20 (closes at 20)")


@given(st.lists(st.none() | st.floats(0, 40), max_size=60))
def test_it_is_closed_only_while_the_last_value_was_above_the_lower_bound(values):
    gate, last, missing = SaturationGate(POLICY), 0.0, 0
    for now, value in enumerate(values):
        gate.see(value, now=float(now))
        last, missing = (last, missing + 1) if value is None else (value, 0)
        assert not (gate.closed and (last <= POLICY.open_at or missing > POLICY.stale_s))
        assert gate.closed or last < POLICY.close_at or missing > POLICY.stale_s
