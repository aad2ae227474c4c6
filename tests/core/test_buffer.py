"""A bounded buffer of frames decides the same way everywhere: rows of (policy, depth, decision), and properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.buffer import Accepted, Backoff, Door, Dropped, Enter, Hold, Reason, Refuse, instant
from forebay.errors import InvalidError

POLICIES = ["block", "drop_newest", "drop_oldest", "latest_only", "reject", Backoff()]
IN, OLDEST = Enter(degraded=False), Reason.OLDEST
ROWS = [
    # policy, settings, depth of 10, what is decided
    ("block", {}, 9, IN),
    ("block", {}, 10, Hold()),
    (Backoff("50ms"), {}, 10, Hold()),
    ("drop_newest", {}, 9, IN),
    ("drop_newest", {}, 10, Refuse(Reason.FULL)),
    ("drop_oldest", {}, 9, IN),
    ("drop_oldest", {}, 10, Enter(False, 1, OLDEST)),
    ("drop_oldest", {}, 12, Enter(False, 3, OLDEST)),
    ("latest_only", {}, 0, IN),
    ("latest_only", {}, 3, Enter(False, 3, Reason.REPLACED)),
    ("reject", {}, 9, IN),
    ("reject", {}, 10, Refuse(Reason.REJECTED)),
    # from drop_at on a frame costs a frame; those that wait when full are refused before it
    ("drop_oldest", {"drop_at": 0.8}, 8, Enter(False, 1, OLDEST)),
    ("drop_newest", {"drop_at": 0.8}, 8, Refuse(Reason.WATERMARK)),
    ("drop_newest", {"drop_at": 0.8}, 7, IN),
    ("drop_newest", {"drop_at": 0.8}, 10, Refuse(Reason.FULL)),
    ("block", {"drop_at": 0.8}, 8, Refuse(Reason.WATERMARK)),
    # degraded frames are taken in
    ("drop_newest", {"degrade_at": 0.5}, 5, Enter(True)),
    ("drop_newest", {"degrade_at": 0.5}, 4, IN),
    ("drop_oldest", {"degrade_at": 0.5}, 10, Enter(True, 1, OLDEST)),
    ("drop_newest", {"degrade_at": 0.5, "drop_at": 0.9}, 9, Refuse(Reason.WATERMARK)),
]


@pytest.mark.parametrize(("policy", "settings", "depth", "decision"), ROWS)
def test_a_door_decides_by_policy_and_depth(policy, settings, depth, decision):
    assert Door(policy, items_max=10, **settings).decide(depth) == decision


def test_degrading_does_not_flap_at_one_level():
    door = Door("drop_newest", items_max=100, degrade_at=0.5)
    seen = [door.decide(depth).degraded for depth in (49, 50, 49, 46, 45, 46, 50)]
    assert seen == [False, True, True, True, False, False, True]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(depth=st.integers(0, 40), items_max=st.integers(1, 20), drop_at=st.none() | st.floats(0.01, 1.0))
def test_what_is_taken_in_never_makes_more_than_the_bound(policy, depth, items_max, drop_at):
    decision = Door(policy, items_max=items_max, drop_at=drop_at).decide(depth)
    if isinstance(decision, Enter):
        assert depth - decision.evict + 1 <= items_max
        assert 0 <= decision.evict <= depth
    if isinstance(decision, Hold):
        assert depth >= items_max


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        ("drop_oldest", Enter(True, 1, OLDEST)),
        ("latest_only", Enter(True, 1, OLDEST)),
        ("block", Hold()),
        (Backoff(), Hold()),
        ("drop_newest", Refuse(Reason.NO_SLOT)),
        ("reject", Refuse(Reason.REJECTED)),
    ],
    ids=str,
)
def test_without_memory_a_door_does_what_it_does_when_full(policy, decision):
    assert Door(policy, items_max=4).no_slot(degraded=True) == decision


def test_a_backoff_doubles_up_to_its_cap():
    backoff = Backoff("100ms", cap="2s")
    assert [backoff.wait_s(tries) for tries in (0, 1, 2, 3, 4, 5, 6, 10**9)] == [
        0.1,
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        2,
        2,
    ]


@given(
    first=st.floats(0.001, 10), over=st.floats(1, 100), factor=st.floats(1, 100), tries=st.integers(0, 500)
)
def test_a_backoff_stays_between_first_and_cap_and_never_falls(first, over, factor, tries):
    backoff = Backoff(first, cap=first * over, factor=factor)
    assert first <= backoff.wait_s(tries) <= backoff.wait_s(tries + 1) <= first * over


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Backoff("2s", cap="1s"), r"cap \('1s'\) is shorter than first"),
        (lambda: Backoff(0), "first must be above zero"),
        (lambda: Backoff("soon"), "first: 'soon' is not a duration"),
        (lambda: Backoff(factor=0.5), "factor must be between 1 and 100"),
        (lambda: Backoff(factor=math.nan), "factor must be between 1 and 100"),
        (lambda: Door("newest", items_max=1), "policy must be one of block, drop_newest, .* or Backoff"),
        (lambda: Door("backoff", items_max=1), "policy must be one of"),
        (lambda: Door(None, items_max=1), "policy must be one of"),
        (lambda: Door("block", items_max=1, drop_at=1.1), "drop_at must be a share of maxsize"),
        (lambda: Door("block", items_max=1, degrade_at=0), "degrade_at must be a share of maxsize"),
        (lambda: Door("block", items_max=1, degrade_at=True), "degrade_at must be a share of maxsize"),
        (lambda: Door("block", items_max=9, degrade_at=0.9, drop_at=0.9), "none would be degraded"),
        (lambda: Door("block", items_max=9, degrade_at=0.95, drop_at=0.9), "must be below drop_at"),
        (lambda: instant("deadline", math.nan), "deadline must be a finite number"),
        (lambda: instant("deadline", "now"), "deadline must be a finite number"),
        (lambda: instant("captured_at", True), "captured_at must be a finite number"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(make, says):
    with pytest.raises(InvalidError, match=says) as told:
        make()
    assert "\n" not in str(told.value)


def test_a_verdict_is_true_if_the_frame_was_taken_in():
    assert Accepted(0)
    assert not Dropped("full")
