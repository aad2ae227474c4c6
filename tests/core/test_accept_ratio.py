"""A producer whose server takes few of its calls sends about twice what is taken, a trickle, and no more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.accept_ratio import (
    ACCEPT_FACTOR,
    KINDS_MAX,
    TRICKLE_BURST,
    TRICKLE_PER_S,
    WELL_CALLS,
    WELL_S,
    WINDOW_S,
    AcceptRatio,
    AcceptRatios,
    Held,
)


def counted(taken, refused, *, now=0.0):
    """Return a ratio that has seen so much, its last call a refused one, without a trickle left."""
    ratio = AcceptRatio()
    ratio.answered(taken=taken, refused=0, now=now)
    if refused:
        ratio.answered(taken=0, refused=refused, now=now, after_s=3.0)
    ratio._trickle.take(TRICKLE_BURST, now=now)
    return ratio


@pytest.mark.parametrize(
    ("taken", "refused", "share"),
    [
        (0, 0, 0.0),
        (100, 0, 0.0),
        (50, 50, 0.0),  # half are taken: K is 2
        (49, 51, 2 / 101),
        (10, 90, 80 / 101),
        (0, 1, 1 / 2),
        (0, 99, 99 / 100),
    ],
)
def test_b35_the_share_that_is_held_back_is_calls_less_twice_the_taken_of_calls_and_one(
    taken, refused, share
):
    ratio = counted(taken, refused)
    assert ACCEPT_FACTOR == 2.0 and ratio.share(now=0.0) == pytest.approx(share)
    assert ratio.ask(now=0.0, draw=share) is None
    if share:
        assert ratio.ask(now=0.0, draw=share - 1e-9) == Held(taken + refused, taken, 3.0)


def test_what_is_held_back_counts_as_asked_for_and_is_told_what_is_left_of_the_time():
    ratio = counted(10, 90)
    assert ratio.ask(now=0.0, draw=0.0) == Held(100, 10, 3.0)
    assert ratio.share(now=0.0) == pytest.approx(81 / 102)
    ratio._trickle.take(1, now=1.0)
    ratio._trickle.take(9, now=1.0)
    assert ratio.ask(4, now=1.0, draw=0.0) == Held(101, 10, 2.0)
    assert ratio.share(now=1.0) == pytest.approx(85 / 106)


def test_few_refusals_hold_nothing_back():
    ratio = AcceptRatio()
    ratio.answered(taken=0, refused=1, now=0.0)
    for _ in range(int(TRICKLE_BURST)):
        assert ratio.ask(now=0.0, draw=0.0) is None
        ratio.answered(taken=0, refused=1, now=0.0)
    assert ratio.ask(now=0.0, draw=0.0) is not None
    assert ratio.ask(now=1.0 / TRICKLE_PER_S, draw=0.0) is None, "and ten a second never"


def test_what_is_older_than_the_window_counts_no_more():
    ratio = counted(0, 100)
    assert ratio.share(now=WINDOW_S - 1.0) > 0.9 and ratio.share(now=WINDOW_S) == 0.0
    ratio = counted(0, 100)
    assert ratio.share(now=1e9) == 0.0


def test_a_clock_that_goes_back_stands_still():
    ratio = counted(0, 100, now=50.0)
    assert ratio.share(now=-1e9) == pytest.approx(100 / 101)
    ratio.answered(taken=300, refused=0, now=0.0)
    assert ratio.share(now=50.0) == 0.0


def test_a_server_that_refuses_none_for_a_second_is_well_again():
    ratio = counted(0, 10_000)
    for number in range(1, WELL_CALLS):
        ratio.answered(taken=1, refused=0, now=WELL_S * number)
        assert ratio.share(now=WELL_S * number) > 0.9, "too few to tell"
    ratio.answered(taken=1, refused=0, now=9.5)
    assert ratio.share(now=9.5) == 0.0


def test_a_server_that_takes_a_batch_at_a_time_is_not_well():
    ratio = counted(0, 10_000)
    for tenth in range(1, 90):
        for _ in range(2 * WELL_CALLS):
            ratio.answered(taken=1, refused=0, now=tenth / 10)
        ratio.answered(taken=0, refused=30, now=tenth / 10)
    assert ratio.share(now=9.0) > 0.5


def played(seed, *, offered_per_s, capacity_per_s, until):
    """Play an open loop against a server that takes at most so many in each tenth of a second; return for each
    second what was sent and what was taken."""
    chance, ratio, now = random.Random(seed), AcceptRatio(), 0.0
    sent, taken, room, tenth = [0] * (int(until) + 1), [0] * (int(until) + 1), 0.0, -1
    while (now := now + chance.expovariate(offered_per_s)) < until:
        if int(now * 10) != tenth:
            tenth, room = int(now * 10), capacity_per_s(now) / 10
        if ratio.ask(now=now, draw=chance.random()) is not None:
            continue
        good = room >= 1
        room -= good
        sent[int(now)] += 1
        taken[int(now)] += good
        ratio.answered(taken=good, refused=not good, now=now)
    return sent, taken


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_ten_times_the_capacity_it_sends_about_twice_and_the_server_stays_full(seed):
    sent, taken = played(seed, offered_per_s=1_000, capacity_per_s=lambda _: 100.0, until=40.0)
    steady = slice(10, 40)
    assert sum(taken[steady]) >= 0.97 * 100 * 30
    assert 1.5 <= sum(sent[steady]) / sum(taken[steady]) <= 2.5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_server_that_was_down_has_a_trickle_and_all_its_calls_again_two_seconds_after_it_is_back(seed):
    up = 20.0
    sent, taken = played(
        seed, offered_per_s=400, capacity_per_s=lambda now: 1e6 if now >= up else 0.0, until=30.0
    )
    assert sum(sent[5:20]) <= 15 * (TRICKLE_PER_S + 2)
    assert sum(taken[22:30]) >= 0.9 * 400 * 8


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 0.5), st.floats(0.0, 0.999)), max_size=300))
def test_what_is_below_half_is_never_held_back_and_the_share_stays_a_share(walk):
    ratio, now, calls, taken = AcceptRatio(), 0.0, 0, 0
    for good, pause_s, draw in walk:
        now += pause_s
        assert 0.0 <= ratio.share(now=now) < 1.0
        held = ratio.ask(now=now, draw=draw)
        if held is None:
            calls, taken = calls + 1, taken + good
            ratio.answered(taken=int(good), refused=int(not good), now=now)
        else:
            assert held.calls > ACCEPT_FACTOR * held.taken


def test_kinds_are_counted_apart_and_the_one_longest_unused_is_forgotten():
    ratios = AcceptRatios()
    full = ratios.of("full")
    full.answered(taken=0, refused=100, now=0.0)
    assert ratios.of("full") is full and ratios.of("other").share(now=0.0) == 0.0
    for number in range(KINDS_MAX - 2):
        ratios.of(f"kind {number}")
    assert ratios.of("full") is full
    for number in range(KINDS_MAX):
        ratios.of(f"new {number}")
    assert ratios.of("full") is not full
