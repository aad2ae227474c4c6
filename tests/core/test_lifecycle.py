"""The life of a job: every pair of state and event, and what the table as a whole promises."""

import itertools

import pytest

from forebay.core.lifecycle import (
    FINAL,
    STATUS,
    TRANSITIONS,
    WAITING,
    Event,
    IllegalTransitionError,
    State,
    next_state,
)

# Written out a second time on purpose: a slip in the table is a slip in nobody's copy.
LEGAL = {
    ("scheduled", "due"): "queued",
    ("scheduled", "ttl_passed"): "expired",
    ("scheduled", "deadline_passed"): "expired",
    ("scheduled", "cancelled"): "cancelled",
    ("queued", "leased"): "running",
    ("queued", "ttl_passed"): "expired",
    ("queued", "deadline_passed"): "expired",
    ("queued", "cancelled"): "cancelled",
    ("retrying", "due"): "queued",
    ("retrying", "ttl_passed"): "expired",
    ("retrying", "deadline_passed"): "expired",
    ("retrying", "cancelled"): "cancelled",
    ("running", "completed"): "succeeded",
    ("running", "failed"): "retrying",
    ("running", "exhausted"): "dead",
    ("running", "released"): "queued",
    ("running", "suspected"): "queued",
    ("running", "lost"): "queued",
    ("running", "deferred"): "scheduled",
    ("running", "deadline_passed"): "expired",
    ("running", "cancelled"): "cancelled",
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_each_event_leads_where_the_table_says_or_is_refused(state, event):
    expected = LEGAL.get((state.value, event.value))
    if expected is None:
        with pytest.raises(IllegalTransitionError, match=f"{state.value}.*{event.value}"):
            next_state(state, event)
    else:
        assert next_state(state, event) is State(expected)


def test_every_state_has_a_row_and_every_event_is_used():
    assert set(TRANSITIONS) == set(State)
    assert {event for rows in TRANSITIONS.values() for event in rows} == set(Event)


@pytest.mark.parametrize("state", [state for state in State if state in FINAL])
def test_a_final_state_is_never_left(state):
    assert not TRANSITIONS[state]


def reachable(start):
    seen, edge = {start}, [start]
    while edge:
        for state in TRANSITIONS[edge.pop()].values():
            if state not in seen:
                seen.add(state)
                edge.append(state)
    return seen


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_every_open_state_can_reach_every_final_one(state):
    assert reachable(state) >= FINAL


@pytest.mark.parametrize("start", [State.QUEUED, State.SCHEDULED])
def test_every_state_is_reachable_from_where_jobs_begin(start):
    assert reachable(start) == set(State)


def test_open_waiting_and_final_are_all_states():
    assert WAITING | {State.RUNNING} | FINAL == set(State)
    assert not WAITING & FINAL
    assert {"succeeded", "dead", "cancelled", "expired"} == {state.value for state in FINAL}


def test_only_a_queued_job_can_be_leased():
    assert [state for state in State if Event.LEASED in TRANSITIONS[state]] == [State.QUEUED]


def test_the_tables_cannot_be_changed():
    with pytest.raises(TypeError):
        TRANSITIONS[State.DEAD] = {}
    with pytest.raises(TypeError):
        TRANSITIONS[State.QUEUED][Event.DUE] = State.DEAD


def test_every_state_has_its_status_in_answers():
    assert {state.value: STATUS[state] for state in State} == {
        "scheduled": "PENDING",
        "queued": "PENDING",
        "retrying": "PENDING",
        "running": "PROCESSING",
        "succeeded": "COMPLETED",
        "dead": "FAILED",
        "cancelled": "CANCELLED",
        "expired": "EXPIRED",
    }
