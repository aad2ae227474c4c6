"""An audit gives back what nobody has, and nothing that somebody may still have."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.buffer import IN_STAGES, Reason
from forebay.core.slots import (
    AT_DOOR,
    COUNTERS,
    DOOR_AT,
    INNER,
    INNER_AT,
    LOOKS,
    SEAT_SHIFT,
    SlotState,
    Snapshot,
    moved_on,
    seat_of,
    slots_of,
    state_of,
    strays,
)

FREE, QUEUED = (int(SlotState.FREE), 7), (int(SlotState.QUEUED), 7)


def owned(state, seat):
    return int(state) | seat << SEAT_SHIFT


def test_a_stray_is_in_no_pipe_at_any_look_and_never_changed():
    rows = [FREE, QUEUED, FREE, QUEUED, FREE]
    looks = [Snapshot(rows, {2}), Snapshot(rows, {3}), Snapshot(rows, set()), Snapshot(rows, {4})]
    assert strays(looks) == [0, 1]


def test_a_slot_that_changed_between_the_looks_is_nobodys_loss():
    before = Snapshot([FREE, QUEUED, QUEUED], set())
    after = Snapshot([(int(SlotState.FREE), 8), FREE, (owned(SlotState.TAKEN, 1), 7)], set())
    assert strays([before, before, before, after]) == []


def test_a_slot_that_is_on_its_way_at_three_looks_has_changed_at_the_fourth():
    # freed, on its way into the hot pipe; from there to the cold one; out of that, to be marked
    on_its_way, marked = Snapshot([FREE], set()), Snapshot([(owned(SlotState.HELD, 2), 7)], set())
    looks = [on_its_way] * (LOOKS - 1)
    assert strays(looks) == [0]
    assert strays([*looks, marked]) == []


def test_a_slot_in_somebodys_hands_is_no_stray():
    rows = [(owned(state, 1), 7) for state in SlotState if state not in (SlotState.FREE, SlotState.QUEUED)]
    assert strays([Snapshot(rows, set())] * LOOKS) == []


def test_the_slots_of_the_dead_are_those_in_their_hands():
    words = [owned(SlotState.TAKEN, 3), owned(SlotState.HELD, 4), owned(SlotState.SETTLING, 3)]
    words += [owned(SlotState.LINGERING, 3), int(SlotState.FREE), int(SlotState.QUEUED)]
    assert slots_of(words, {3}) == [0, 2, 3]
    assert slots_of(words, {0}) == []


def test_who_was_inside_must_have_moved():
    assert moved_on([2, 3, 5], [2, 4, 7])
    assert not moved_on([2, 3], [9, 3])


@given(state=st.sampled_from(SlotState), seat=st.integers(0, 127))
def test_a_state_word_gives_back_what_went_in(state, seat):
    word = owned(state, seat)
    assert (state_of(word), seat_of(word)) == (state, seat)


def test_every_reason_is_counted_and_no_two_in_one_place():
    places = [*DOOR_AT.values(), *INNER_AT.values(), 0]
    assert sorted(places) == list(range(len(COUNTERS)))
    assert {*AT_DOOR, *INNER} == set(Reason) - set(IN_STAGES)
