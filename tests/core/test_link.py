"""Link: how a lost source is come back to, and when not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.buffer import Backoff
from forebay.core.link import GiveUp, Link, LinkState, Loss, Wait


def link_of(give_up_s=None, steady_s=5.0, **backoff):
    return Link(Backoff(**({"first": 1, "cap": 8} | backoff)), steady_s, give_up_s)


def test_each_try_in_vain_waits_twice_as_long_up_to_the_cap():
    link = link_of()
    waits = []
    for _ in range(6):
        link.connect(0.0)
        waits.append(link.lost(0.0, Loss.BROKEN, 0.999999).wait_s)
    assert waits == pytest.approx([1, 2, 4, 8, 8, 8], rel=1e-5)
    assert (link.losses[Loss.REFUSED], link.state) == (6, LinkState.WAITING)
    assert link.waited_s == pytest.approx(31, rel=1e-5)


@given(drawn=st.floats(0, 1, exclude_max=True), tries=st.integers(1, 200))
def test_half_of_a_wait_is_certain_and_half_is_drawn(drawn, tries):
    link = link_of()
    link.connect(0.0)
    for _ in range(tries):
        wait = link.lost(0.0, Loss.BROKEN, drawn)
    full_s = Backoff(1, cap=8).wait_s(tries)
    assert full_s / 2 <= wait.wait_s <= full_s


def test_after_a_link_that_held_the_waits_begin_anew():
    link = link_of()
    for _ in range(4):
        link.connect(0.0)
        link.lost(0.0, Loss.BROKEN, 0.0)
    link.connect(10.0)
    link.frame(10.0)
    link.frame(15.0)
    assert link.lost(15.1, Loss.BROKEN, 0.0) == Wait(0.5)


def test_a_link_that_gives_one_frame_and_breaks_again_and_again_waits_longer_each_time():
    link, waits = link_of(), []
    for number in range(4):
        link.connect(float(number))
        link.frame(float(number))
        waits.append(link.lost(number + 0.1, Loss.BROKEN, 0.0).wait_s)
    assert waits == [0.5, 1, 2, 4]
    assert (link.opened, link.reconnects, link.losses[Loss.BROKEN]) == (4, 3, 4)


def test_it_is_given_up_when_nothing_came_for_so_long_and_not_before():
    link = link_of(give_up_s=60)
    link.connect(100.0)
    link.frame(100.0)
    assert isinstance(link.lost(159.9, Loss.ENDED, 0.0), Wait)
    link.connect(159.9)
    assert link.lost(160.0, Loss.BROKEN, 0.0) == GiveUp(60.0)
    link.end()
    assert link.state is LinkState.FAILED


def test_who_never_came_is_given_up_counted_from_the_first_try():
    link = link_of(give_up_s=10)
    link.connect(5.0)
    assert isinstance(link.lost(6.0, Loss.BROKEN, 0.0), Wait)
    link.connect(15.0)
    assert isinstance(link.lost(15.0, Loss.BROKEN, 0.0), GiveUp)


def test_without_a_limit_it_is_never_given_up():
    link = link_of()
    link.connect(0.0)
    assert all(isinstance(link.lost(1e6 * n, Loss.STALLED, 0.5), Wait) for n in range(500))
    assert link.losses[Loss.STALLED] == 500


def test_the_states_follow_the_link():
    link, states = link_of(), []
    link.connect(0.0)
    states.append(link.state)
    link.frame(1.0)
    states.append(link.state)
    link.lost(2.0, Loss.ENDED, 0.0)
    states.append(link.state)
    link.end()
    states.append(link.state)
    assert [state.value for state in states] == ["connecting", "streaming", "waiting", "ended"]
