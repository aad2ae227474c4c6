"""Which variant of a task runs: hysteresis, a minimum stay, one step at a time; no flapping."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.core.job import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL
from forebay.core.variants import BUSY_MAX, STRAIN_S, Ladder, LadderPolicy, Rung, Seen

STAY_S = 1.0
TWO = LadderPolicy(rungs=(Rung(name="medium"), Rung(name="small")), stay_s=STAY_S)
FULL, HALF, EMPTY = 1.0, 0.6, 0.0


class Climber:
    """A ladder and its time. What is sent at a step ends 10 ms later, as long as `proves`."""

    def __init__(self, policy=TWO, at=100.0):
        self.ladder, self.now, self.proves = Ladder(policy), at, True
        self.moves = []  # (when, was, step)

    def see(self, fill, busy=0.0, *, after=0.0, urgent=False):
        """Look once, `after` seconds later; return the step."""
        self.now += after
        if self.proves:
            self.ladder.ran(self.now)
        moved = self.ladder.see(Seen(fill, busy, urgent), now=self.now)
        if moved is not None:
            self.moves.append((self.now, moved.was, moved.step))
        return self.ladder.step

    def during(self, seconds, fill, busy=0.0, *, every=0.05, urgent=False):
        """Look again and again; return the step at the end."""
        for _ in range(round(seconds / every)):
            self.see(fill, busy, after=every, urgent=urgent)
        return self.ladder.step


def test_it_goes_down_at_once_when_the_reservoir_is_as_full_as_the_variant_asks():
    one = Climber()
    assert one.see(0.74) == 0
    assert one.see(0.75) == 1


def test_between_leave_and_enter_it_stays_where_it_is_on_both_sides():
    one = Climber()
    assert one.during(10.0, HALF) == 0
    one.see(FULL)
    assert one.during(10.0, HALF) == 1


def test_it_comes_back_after_a_whole_stay_of_calm_and_no_sooner():
    one = Climber()
    one.see(FULL)
    assert one.during(0.9, EMPTY) == 1
    one.see(HALF)  # not calm: the stay begins again
    assert one.during(1.0, EMPTY) == 1
    assert one.during(0.15, EMPTY) == 0


def test_it_makes_one_step_at_a_time_and_a_quarter_of_the_stay_apart():
    one = Climber()
    one.during(2.0, FULL, every=0.01)
    assert [step for _, _, step in one.moves] == [1, 2]
    assert one.moves[1][0] - one.moves[0][0] == pytest.approx(0.25 * STAY_S, abs=0.011)


def test_it_goes_no_deeper_before_it_was_seen_what_the_last_step_brought():
    one = Climber()
    one.see(FULL)
    one.proves = False
    assert one.during(5.0, FULL) == 1
    one.proves = True
    assert one.see(FULL, after=0.01) == 2


def test_what_was_sent_before_the_step_proves_nothing():
    one = Climber()
    one.see(FULL)
    one.proves = False
    one.ladder.ran(one.now - 0.001)
    assert one.see(FULL, after=1.0) == 1
    one.ladder.ran(one.now)
    assert one.see(FULL, after=0.01) == 2


def test_it_does_not_come_back_while_what_comes_would_not_fit_one_level_up():
    one = Climber()
    one.see(FULL)
    assert one.during(30.0, EMPTY, busy=BUSY_MAX + 0.01) == 1
    assert one.during(1.1, EMPTY, busy=BUSY_MAX) == 0


def test_each_variant_has_marks_of_its_own():
    one = Climber(LadderPolicy(rungs=(Rung(enter=0.9, leave=0.5), Rung(enter=0.95, leave=0.8))))
    assert one.during(2.0, 0.92) == 1
    assert one.during(2.0, 0.96) == 2
    assert one.during(1.1, 0.75) == 1
    assert one.during(5.0, 0.75) == 1
    assert one.during(1.1, 0.5) == 0


def test_work_above_normal_priority_goes_down_last_and_only_while_there_is_some():
    one = Climber()
    assert one.during(5.0, FULL) == 2
    assert [one.ladder.level(p) for p in (PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_LOW)] == [0, 2, 2]
    one.during(0.3, FULL, urgent=True)
    assert [one.ladder.level(p) for p in (PRIORITY_HIGH, PRIORITY_NORMAL)] == [1, 2]
    one.during(5.0, FULL, urgent=True)
    assert [one.ladder.level(p) for p in (0, PRIORITY_HIGH, PRIORITY_NORMAL)] == [2, 2, 2]
    one.during(1.1, EMPTY)  # and comes back first
    assert [one.ladder.level(p) for p in (PRIORITY_HIGH, PRIORITY_NORMAL)] == [1, 2]


def test_who_went_up_in_vain_waits_twice_as_long_before_the_next_try():
    one = Climber(LadderPolicy(rungs=(Rung(),)))
    for _ in range(5):
        one.see(FULL, after=0.5)
        one.during(40.0, EMPTY)
        one.see(FULL)  # the moment it is up again
        while one.ladder.step:
            one.see(EMPTY, after=0.05)
    ups = [at for at, was, step in one.moves if step < was]
    downs = [at for at, was, step in one.moves if step > was]
    waits = [up - down for down, up in zip(downs, ups, strict=False)]
    assert waits[0] == pytest.approx(1.0, abs=0.11)
    relapsed = [
        up - down for down, up, before in zip(downs[1:], ups[1:], ups, strict=False) if down - before < 4
    ]
    assert relapsed and all(wait > 1.9 for wait in relapsed)


def test_what_callers_were_told_is_forgotten_after_a_quarter_of_a_second_and_by_a_step():
    ladder = Ladder(TWO)
    ladder.press(0.7, now=1.0)
    ladder.press(0.4, now=1.1)
    assert ladder.strain(now=1.0 + STRAIN_S) == 0.7
    assert ladder.strain(now=1.01 + STRAIN_S) == 0.0
    ladder.press(0.9, now=2.0)
    ladder.see(Seen(0.9, 0.0), now=2.0)
    assert ladder.step == 1 and ladder.strain(now=2.0) == 0.0
    ladder.press(0.9, now=2.1)  # by the law of the step before
    ladder.ran(2.05)
    assert ladder.strain(now=2.1) == 0.0


def test_it_looks_again_by_itself_only_while_it_is_down():
    one = Climber()
    assert one.ladder.wake_at(one.now) is None
    one.see(FULL)
    assert one.ladder.wake_at(one.now) > one.now


@given(
    fill=st.floats(0.0, 2.0),
    busy=st.floats(0.0, 3.0),
    urgent=st.booleans(),
    stay_s=st.sampled_from([0.2, 1.0, 5.0]),
    rungs=st.integers(1, 4),
)
def test_a_load_that_does_not_change_moves_it_one_way_only(fill, busy, urgent, stay_s, rungs):
    one = Climber(LadderPolicy(rungs=(Rung(),) * rungs, stay_s=stay_s))
    one.during(rungs * stay_s * 4, fill, busy, every=stay_s / 7, urgent=urgent)
    assert all(step == was + 1 for _, was, step in one.moves)


@given(
    looks=st.lists(st.tuples(st.floats(0.0, 1.5), st.floats(0.0, 1.5), st.floats(0.0, 0.5), st.booleans())),
    rungs=st.integers(1, 3),
)
def test_whatever_it_sees_it_makes_single_steps_and_never_comes_back_within_the_stay(looks, rungs):
    one = Climber(LadderPolicy(rungs=(Rung(),) * rungs, stay_s=STAY_S))
    for fill, busy, after, urgent in looks:
        one.see(fill, busy, after=after, urgent=urgent)
    changed_at = float("-inf")
    for at, was, step in one.moves:
        assert abs(step - was) == 1 and 0 <= step <= 2 * rungs
        least_s = STAY_S if step < was else 0.25 * STAY_S
        assert at - changed_at >= least_s
        changed_at = at


@given(capacities=st.tuples(st.floats(50, 400), st.floats(401, 2000)), offered=st.floats(10, 2500))
@example(capacities=(50.0, 401.0), offered=51.5)
def test_a_basin_that_fills_and_drains_at_a_constant_rate_never_swings_faster_than_the_stay(
    capacities, offered
):
    """A fluid model: the fill follows from what the level that runs can do. Two steps down lie a stay apart."""
    one, fill, size = Climber(LadderPolicy(rungs=(Rung(),))), 0.0, 60.0
    for _ in range(3000):
        can = capacities[one.ladder.step]
        fill = min(1.0, max(0.0, fill + (offered - can) * 0.01 / size))
        one.see(fill, offered / capacities[0], after=0.01)
    downs = [at for at, was, step in one.moves if step > was]
    assert all(later - sooner >= STAY_S for sooner, later in zip(downs, downs[1:], strict=False))
    if offered <= 0.9 * capacities[0]:
        assert not one.moves
    if max(capacities[0] * 1.02, capacities[0] + size / 25.0) < offered:  # full in time to be seen here
        assert len(downs) == 1 and one.ladder.step == 1  # it knows that going up would be in vain
