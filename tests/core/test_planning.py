"""The plan of one moment: how much to lease, who gets it."""

import pytest

from forebay.core import planning
from forebay.core.ahead import AHEAD_S
from forebay.core.hand import Hand
from forebay.core.planning import FORESEEN_S, LEASE_MAX, RUNS_MAX
from forebay.core.replicas import Replica
from tests.sim.rig import Rig, a_spec


def a_hand(*specs, replicas=2, each_s=None):
    hand = Hand(specs or [a_spec()])
    for number in range(1, replicas + 1):
        hand.replicas[number] = Replica(number)
    for task in hand.tasks.values():
        for _ in range(5 if each_s else 0):
            task.fit.observe(1, each_s)
    return hand


def room(hand, name="t", now=0.0):
    return planning.room(hand, hand.tasks[name], now)


@pytest.mark.parametrize(
    ("spec", "each_s", "expected"),
    [
        (a_spec(), None, 2),
        (a_spec(), 1.0, 2),
        (a_spec(), 0.0009, 10),
        (a_spec(), 1e-9, 512),
        (a_spec(batch_max=8), None, 16),
        (a_spec(concurrency=32), 1.0, 64),
    ],
)
def test_room_of_idle_replicas_is_a_piece_each(spec, each_s, expected):
    assert room(a_hand(spec, each_s=each_s)) == expected


def test_room_is_bounded_and_closed_replicas_have_none():
    assert room(a_hand(each_s=1e-9, replicas=30)) == LEASE_MAX
    hand = a_hand()
    hand.replicas[1].retiring = True
    assert room(hand) == 1
    hand.replicas[2].late = True
    assert room(hand) == 0


def test_what_is_in_hand_and_suspects_take_room():
    rig = Rig(replicas=3)
    hand = rig.d.hand
    assert room(hand) == 3
    hand.suspects.append(hand.take_in(rig.jobs(1, suspect=True)[0], rig.now))
    assert room(hand) == 2


def test_a_replica_has_a_bounded_number_of_runs():
    rig = Rig()
    rig.learn(0.0005)
    rig.give([])
    rig.ring()
    for _ in range(50):
        if not rig.asked:
            break
        rig.lease(count=rig.asked["t"])
    assert len(rig.d.hand.replicas[1].runs) <= RUNS_MAX


def test_nothing_is_added_to_a_run_that_began_a_while_ago():
    rig = Rig()
    rig.learn(0.0009)
    rig.give([])
    rig.ring()
    rig.lease(count=1)
    rig.now += 3 * AHEAD_S
    assert room(rig.d.hand, now=rig.now) == 5  # about to be free: the next piece, in hand
    rig.ring()
    assert rig.lease(count=5) == []


@pytest.mark.parametrize(("each_s", "foreseen"), [(FORESEEN_S * 0.9, True), (FORESEEN_S * 1.1, False)])
def test_only_a_short_run_has_an_end_to_wake_for(each_s, foreseen):
    rig = Rig()
    rig.learn(each_s)
    rig.lease()
    at = planning.next_start_at(rig.d.hand, rig.now)
    assert at == (pytest.approx(rig.now + each_s - AHEAD_S) if foreseen else None)


def test_a_frame_behind_another_goes_to_the_replica_with_the_least_before_it():
    rig = Rig(replicas=2)
    rig.learn(0.002)
    rig.give([])
    rig.ring()
    rig.lease(count=3)
    loads = [replica.busy_until for replica in rig.d.hand.replicas.values()]
    rig.ring()
    (run, *_) = rig.lease(count=1)
    assert run.replica == 1 + loads.index(min(loads))


def test_deadlines_of_jobs_that_ended_do_not_pile_up():
    rig = Rig()
    for _ in range(400):
        if not rig.asked:
            rig.ring()
        rig.lease(deadline_at=rig.now + 10_000.0)
        rig.done(max(rig.d.hand.items), after=0.001)
    assert len(rig.d.hand.deadlines) <= 64 + 2
