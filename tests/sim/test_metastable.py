"""Metastable overload: a storm of retries that outlives its trigger, and what gets a service out of it.

Callers ask for four fifths of what a model can do and try again until they are answered. For five seconds the model
takes five times as long; then it is as it was.
"""

from functools import cache

import pytest

from forebay.sim.service import Service
from forebay.sim.storm import Storm, good_at_once, play

pytestmark = pytest.mark.slow  # the storm is a hundred thousand tries

CAPACITY = 16 / (0.040 + 16 * 0.005)
BEGINS, GOES = 5.0, 10.0
RECOVERY_MAX_S = 40.0  # after the trigger has gone
END = 62.0


@cache
def played(refusal, budget):
    service = Service(fixed_s=0.040, each_s=0.005, regimes=((BEGINS, 5.0), (GOES, 1.0)))
    storm = Storm(
        service=service, rate_per_s=0.8 * CAPACITY, until=END, gives_up_s=20.0, refusal=refusal, budget=budget
    )
    return storm, play(storm)


def share(refusal, budget, start, end):
    storm, callers = played(refusal, budget)
    return good_at_once(callers, storm, start, end)


def answered_per_s(refusal, budget, start, end):
    _, callers = played(refusal, budget)
    return sum(one.good_at is not None and start <= one.good_at < end for one in callers) / (end - start)


@pytest.mark.parametrize(("refusal", "budget"), [(True, True), (True, False), (False, True), (False, False)])
def test_before_the_trigger_all_are_answered_at_once_and_within_it_most_are_not(refusal, budget):
    assert share(refusal, budget, 0.0, BEGINS - 1.5) >= 0.99
    assert share(refusal, budget, BEGINS + 1.0, GOES - 1.0) <= 0.5


def test_without_refusal_and_without_a_budget_for_retries_it_never_gets_out():
    assert share(False, False, GOES + RECOVERY_MAX_S, END - 2.0) <= 0.01
    assert answered_per_s(False, False, GOES + RECOVERY_MAX_S, END) <= 0.05 * CAPACITY, "busy with the dead"


def test_a_budget_for_retries_alone_gets_a_plain_queue_out_of_it():
    assert share(False, True, GOES + RECOVERY_MAX_S, END - 2.0) >= 0.98


@pytest.mark.parametrize("budget", [True, False])
def test_refusal_keeps_the_goodput_through_it_and_all_are_answered_at_once_again(budget):
    assert answered_per_s(True, budget, GOES, GOES + 5.0) >= 0.8 * CAPACITY, "as soon as callers come back"
    assert answered_per_s(True, budget, GOES + 5.0, GOES + 15.0) >= 0.95 * CAPACITY
    assert share(True, budget, GOES + RECOVERY_MAX_S / 2, END - 2.0) >= 0.98


def test_both_need_a_few_more_tries_than_callers_and_the_storm_needs_ten_times_as_many():
    storm = sum(one.tries for one in played(False, False)[1])
    both = sum(one.tries for one in played(True, True)[1])
    assert both <= 2 * len(played(True, True)[1]) and storm >= 10 * both
