"""Budgets: never more than their rate together, and each refused producer has its turn when told."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.budget import (
    BACK_MAX_S,
    BUDGETS_MAX,
    IDLE_S,
    TENANT_BUDGETS_MAX,
    Budget,
    Budgets,
    budgets_of,
    read_budget,
)
from forebay.errors import InvalidError, QuotaExceededError


def a_budget(rate, now=0.0):
    return Budget(tenant="", name="ci", rate_per_s=rate, declared=False, now=now)


def ask(budget, jobs, now):
    """Return 0.0 when all are let in, else the seconds that were told."""
    if budget.has(jobs, now=now):
        budget.take(jobs, now=now)
        return 0.0
    return budget.refuse(jobs, now=now)


STEPS = [
    # (jobs, now, answer): 300 a second, 60 at once
    (60, 0.0, 0.0),
    (3, 0.0, 0.011),  # in whole milliseconds, and not a moment early
    (6, 0.0, 0.031),  # behind the three before
    (1, 0.0, 0.034),
    (3, 0.011, 0.0),  # who comes when told is let in
    (100, 0.03, 0.204),  # of more than may come at once the first 60 have their turn then
    (1, 10.0, 0.0),
]


def test_a_walk_through_a_budget():
    budget = a_budget(300.0)
    for jobs, now, answer in STEPS:
        assert ask(budget, jobs, now) == pytest.approx(answer, abs=1e-6), (jobs, now)
    assert (budget.granted, budget.refused) == (64, 110)


asks = st.lists(st.tuples(st.integers(1, 40), st.floats(0.0, 5.0)), max_size=80)


@given(asks, st.floats(0.01, 1e4))
def test_it_never_lets_in_more_than_its_rate(steps, rate):
    budget, now, let_in = a_budget(rate), 0.0, 0
    for jobs, pause_s in steps:
        now += pause_s
        let_in += jobs if ask(budget, jobs, now) == 0.0 else 0
        assert let_in <= budget.burst + rate * now + 1e-6 * (1 + let_in)


@given(st.integers(1, 60), st.floats(0.5, 2_000.0), st.lists(st.floats(0.0, 0.2), min_size=60, max_size=60))
def test_who_comes_back_when_told_is_let_in_then(producers, rate, starts):
    """All come about at once with a job each; nobody new comes in between."""
    budget, refusals = a_budget(rate), dict.fromkeys(range(producers), 0)
    budget.take(budget.burst, now=0.0)
    heap = [(0.2 * starts[n] / rate, n) for n in range(producers)]  # before the first turn
    heapq.heapify(heap)
    ended = 0.0
    while heap:
        now, producer = heapq.heappop(heap)
        wait_s = ask(budget, 1, now)
        if wait_s:
            refusals[producer] += 1
            heapq.heappush(heap, (now + wait_s, producer))
        ended = now
    assert max(refusals.values()) <= 1
    assert ended <= producers / rate + 0.2 / rate + 0.001 * producers + 1e-6


def run_producers(rate, counts, chunk, answer_s=0.002):
    """Producers that send chunks one after another and keep to what they are told; returns (time, calls)."""
    budget, now, calls = a_budget(rate), 0.0, 0
    left = list(counts)
    heap = [(0.0, n) for n in range(len(left))]
    while heap:
        now, producer = heapq.heappop(heap)
        calls += 1
        jobs = min(chunk, left[producer])
        let_in = min(jobs, int(budget.left(now=now) + 1e-9))
        budget.take(let_in, now=now)
        left[producer] -= let_in
        wait_s = budget.refuse(jobs - let_in, now=now) if jobs > let_in else 0.0
        if left[producer]:
            heapq.heappush(heap, (now + answer_s + wait_s, producer))
    return now, calls


@pytest.mark.parametrize("chunk", [1, 15, 30, 200])
def test_three_producers_of_400_share_300_a_second_and_use_it(chunk):
    took_s, calls = run_producers(300.0, [400] * 3, chunk)
    assert 1140 / 300 - 1e-6 <= took_s <= 1.2 * 1200 / 300
    assert calls <= 2.2 * 1200 / min(chunk, 60) + 30, "and hardly anybody comes in vain"


def test_a_full_budget_has_no_line_and_a_line_has_an_end():
    budget = a_budget(1.0)
    told = [ask(budget, 1, 0.0) for _ in range(5000)]
    assert told[:4] == [0.0, 0.0, 1.001, 2.001] and max(told) == BACK_MAX_S + 0.001
    assert budget.line_s(now=0.0) == BACK_MAX_S
    assert budget.line_s(now=2.0) == 0.0, "nobody came"
    assert [ask(budget, 1, 2.0) for _ in range(3)] == [0.0, 0.0, 1.001]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ci", ("ci", None)),
        ("ci=300/s", ("ci", 300.0)),
        (" nightly-2.x = 10/m ", ("nightly-2.x", 1 / 6)),
        ("a=5", ("a", 5.0)),
    ],
)
def test_what_names_a_budget(text, found):
    name, rate = read_budget(text)
    assert name == found[0] and rate == (None if found[1] is None else pytest.approx(found[1]))


@pytest.mark.parametrize(
    "text",
    ["", "=1/s", "ci=", "ci=0/s", "ci=-1/s", "ci=nan", "ci=1e9/s", "ci=1/4d", "a b", ".ci", "ä=1", "x" * 65],
)
def test_what_names_none(text):
    with pytest.raises(ValueError, match=r"."):
        read_budget(text)


def test_all_who_name_it_share_it_and_tenants_do_not():
    budgets = Budgets()
    first = budgets.of("a", "ci", 300.0, now=0.0)
    assert budgets.of("a", "ci", None, now=1.0) is first is budgets.of("a", "ci", 300.0, now=1.0)
    assert budgets.of("b", "ci", 5.0, now=1.0).rate_per_s == 5.0
    assert [one.tenant for one in budgets.kept(None, now=1.0)] == ["a", "b"]
    assert budgets.kept("a", now=1.0) == [first]


def test_another_rate_or_none_at_all_is_a_mistake_that_is_told():
    budgets = budgets_of(["ci=300/s"])
    assert budgets.of("a", "ci", None, now=0.0).rate_per_s == 300.0 and budgets.declared == {"ci": 300.0}
    for name, rate, said in (("ci", 200.0, "has 300 jobs a second"), ("new", None, "name its rate")):
        with pytest.raises(InvalidError, match=said):
            budgets.of("a", name, rate, now=0.0)


def test_an_idle_one_is_gone_and_not_before_it_is_full_again():
    budgets = Budgets()
    quick, slow = budgets.of("", "quick", 10.0, now=0.0), budgets.of("", "slow", 1 / 600, now=0.0)
    quick.take(1, now=0.0)
    slow.take(1, now=0.0)
    assert budgets.kept("", now=IDLE_S) == [quick, slow]
    assert budgets.kept("", now=IDLE_S + 1) == [slow]
    assert budgets.of("", "quick", 99.0, now=IDLE_S + 1).rate_per_s == 99.0
    assert budgets.of("", "slow", 1 / 600, now=1199.0) is slow
    assert budgets.of("", "slow", 1 / 600, now=1201.0) is not slow


def test_their_number_is_bounded_for_a_tenant_and_for_all_and_idle_ones_make_room():
    budgets = Budgets()
    for n in range(TENANT_BUDGETS_MAX):
        budgets.of("a", f"b{n}", 1.0, now=0.0)
    with pytest.raises(QuotaExceededError) as refused:
        budgets.of("a", "one-more", 1.0, now=1.0)
    assert (refused.value.limit, refused.value.retry_after_s) == (TENANT_BUDGETS_MAX, IDLE_S)
    for n in range(BUDGETS_MAX - TENANT_BUDGETS_MAX):
        budgets.of(f"t{n}", "ci", 1.0, now=1.0)
    with pytest.raises(QuotaExceededError) as refused:
        budgets.of("z", "ci", 1.0, now=1.0)
    assert refused.value.limit == BUDGETS_MAX
    assert budgets.of("a", "one-more", 1.0, now=IDLE_S + 2).name == "one-more"
    assert len(budgets.kept(None, now=IDLE_S + 2)) == 1
