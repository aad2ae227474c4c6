"""What takes much longer than expected: who is late, and what goes back to others."""

import pytest

from forebay.core.lateness import LATE_S, OVERRUN, late_at, overrun_at
from forebay.core.planning import piece_of
from tests.sim.rig import Rig, a_spec


@pytest.mark.parametrize(
    ("each_s", "expected_s"), [(None, LATE_S), (0.01, LATE_S), (1.0, OVERRUN * 1.0), (0.2, OVERRUN * 0.2)]
)
def test_a_head_is_late_when_it_takes_much_longer_than_expected(each_s, expected_s):
    rig = Rig()
    if each_s:
        rig.learn(each_s)
    rig.lease()
    replica = rig.d.hand.replicas[1]
    assert late_at(rig.d.hand, replica) == pytest.approx(rig.now + expected_s)
    rig.poll(after=expected_s)
    assert replica.late and late_at(rig.d.hand, replica) is None
    assert rig.backs == []  # nothing waits behind it


def test_an_async_replica_is_never_late():
    rig = Rig(a_spec(concurrency=4))
    rig.lease(count=2)
    assert late_at(rig.d.hand, rig.d.hand.replicas[1]) is None


def test_a_late_replica_is_on_time_again_when_it_answers():
    rig = Rig()
    rig.lease()
    rig.poll(after=1.0)
    rig.done(1)
    assert not rig.d.hand.replicas[1].late


COUNT = 49  # of single calls of 0.1 ms each: what a lease of 5 ms brings


def framed():
    """A replica with a frame of single calls that should take 0.1 ms each."""
    rig = Rig()
    rig.learn(0.0001)
    rig.give([])
    rig.ring()
    (run,) = rig.lease(count=COUNT)
    assert len(run.items) == COUNT
    return rig, [tag for tag, _ in run.items]


def test_a_frame_that_takes_much_longer_as_a_whole_is_asked_back_once():
    rig, tags = framed()
    began = rig.now
    for tag in tags[:24]:
        rig.done(tag, after=0.01)
    assert rig.backs == []
    assert overrun_at(rig.d.hand, rig.d.hand.replicas[1]) == pytest.approx(began + LATE_S)
    assert rig.d.wake_at() <= began + LATE_S
    for tag in tags[24:30]:
        rig.done(tag, after=0.01)
    assert rig.backs == [1]
    assert not rig.d.hand.replicas[1].late, "its head is not"


def test_what_comes_back_of_it_goes_to_others_but_for_what_is_done_here_soon():
    rig, tags = framed()
    for tag in tags[:9]:
        rig.done(tag, after=0.03)
    runs = rig.returned(*tags[10:])
    assert rig.d.hand.tasks["t"].fit.run_s(1) == pytest.approx(0.03, rel=0.2), "it is believed at once"
    assert sum(len(run.items) for run in runs) <= 1
    released = [job for job, event in rig.events() if event == "released"]
    kept = [f"j{number}" for number in range(11, COUNT + 1) if f"j{number}" not in released]
    assert len(kept) == pytest.approx(LATE_S / 0.03, abs=2)
    assert kept == [f"j{number}" for number in range(11, 11 + len(kept))], "the first in line stay"


def test_a_frame_of_which_nothing_waits_any_more_is_not_asked_back():
    rig, tags = framed()
    rig.done(*tags[:-1], after=0.2)
    assert overrun_at(rig.d.hand, rig.d.hand.replicas[1]) is None


def test_a_frame_that_is_a_little_slow_goes_on():
    rig, tags = framed()
    for tag in tags[:-1]:
        rig.done(tag, after=0.005)
    assert rig.backs == []


def test_what_is_held_for_batches_or_for_calls_beside_each_other_is_no_surplus():
    for spec in (a_spec(batch_max=8), a_spec(concurrency=8)):
        rig = Rig(spec)
        rig.learn(10.0)
        rig.give(rig.jobs(8))
        assert rig.events() == []


def test_after_a_frame_that_was_late_the_next_ones_are_as_short_as_it_got_and_grow_again():
    rig, tags = framed()
    rig.done(*tags[:4])
    rig.poll(after=LATE_S)
    assert rig.backs == [1]
    task = rig.d.hand.tasks["t"]
    assert piece_of(task) == 4
    rig.returned(*tags[5:])
    rig.done(tags[4], after=0.05)
    sizes = []
    for _ in range(40):
        if "t" in rig.asked:
            rig.lease(count=rig.asked["t"])
        run = rig.d.hand.replicas[1].runs[0]
        sizes.append(run.size)
        rig.done(*run.items, after=0.0001 * run.size)
    assert sizes[0] <= 4
    assert all(later <= 2 * max(4, *sizes[:number]) for number, later in enumerate(sizes) if number > 1), (
        sizes
    )
    assert max(sizes) > 20
