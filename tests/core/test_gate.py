"""The queue of a stage: its bounds hold for items and bytes at every instant, and every frame gets a reason."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.accounts import Accounts, Latencies
from forebay.core.buffer import Backoff, Reason
from forebay.core.gate import Gate, GateTerms, bytes_needed
from forebay.core.ladder import Step
from forebay.core.lanes import OTHERS, STREAMS_MAX, StreamShare, Ticket
from forebay.core.sequence import Sequence

POLICIES = ["block", "drop_newest", "drop_oldest", "latest_only", "reject", Backoff()]


def gate_of(policy="drop_oldest", items_max=4, shares=None, **terms):
    return Gate(GateTerms(items_max=items_max, policy=policy, **terms), shares)


def frame(stream="a", seq=0, **facts):
    return Ticket(stream, seq, **({"captured_at": 0.0, "size_b": 10} | facts))


def offered(gate, stream, count, now=0.0):
    return [gate.offer(frame(stream, seq), now=now) for seq in range(count)]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("block", (False, None, ())),
        (Backoff(), (False, None, ())),
        ("drop_newest", (False, Reason.FULL, ())),
        ("reject", (False, Reason.REJECTED, ())),
    ],
    ids=str,
)
def test_a_full_queue_says_what_its_policy_is(policy, said):
    gate = gate_of(policy)
    assert all(let.entered for let in offered(gate, "a", 4))
    assert gate.offer(frame(), now=0.0) == said
    assert gate.depth == 4


def test_drop_oldest_drops_the_oldest_of_the_longest_line():
    gate = gate_of()
    offered(gate, "a", 3)
    offered(gate, "b", 1)
    let = gate.offer(frame("b", 9), now=0.0)
    ((victim, reason),) = let.shed
    assert (let.entered, victim.stream, victim.seq, reason) == (True, "a", 0, Reason.OLDEST)


def test_drop_newest_lets_a_quiet_stream_in_for_the_newest_of_a_crowding_one():
    gate = gate_of("drop_newest")
    offered(gate, "a", 4)
    let = gate.offer(frame("b"), now=0.0)
    ((victim, reason),) = let.shed
    assert (let.entered, victim.stream, victim.seq, reason) == (True, "a", 3, Reason.FULL)
    assert gate.offer(frame("a", 5), now=0.0).reason is Reason.FULL


def test_latest_only_keeps_one_frame_of_each_stream():
    gate = gate_of("latest_only")
    offered(gate, "a", 3)
    offered(gate, "b", 3)
    taken = gate.take(9, now=0.0).frames
    assert [(one.stream, one.seq) for one in taken] == [("a", 2), ("b", 2)]


def test_late_frames_are_dropped_at_the_door_and_before_the_model():
    gate = gate_of()
    assert gate.offer(frame(deadline=1.0), now=1.0).reason is Reason.LATE
    gate.offer(frame(seq=1, deadline=2.0), now=1.0)
    gate.offer(frame(seq=2, deadline=9.0), now=1.0)
    taken = gate.take(1, now=2.0)
    assert [one.seq for one in taken.late] == [1]
    assert [one.seq for one in taken.frames] == [2]


def test_bytes_are_a_bound_beside_items():
    gate = gate_of("drop_newest", items_max=100, bytes_max=35)
    assert [let.entered for let in offered(gate, "a", 4)] == [True, True, True, False]
    assert (gate.depth, gate.size_b, gate.room()) == (3, 30, 97)
    assert gate_of("block", bytes_max=35).offer(frame(size_b=36), now=0.0).reason is Reason.INVALID


def test_drop_oldest_makes_as_much_room_in_bytes_as_is_needed():
    gate = gate_of("drop_oldest", items_max=100, bytes_max=35)
    offered(gate, "a", 3)
    let = gate.offer(frame("b", size_b=30), now=0.0)
    assert (let.entered, len(let.shed), gate.size_b) == (True, 3, 30)


def test_frames_are_degraded_by_steps_and_a_protected_stream_one_step_later():
    steps = (Step(0.5, scale=0.5), Step(0.75, scale=0.25))
    gate = gate_of("drop_newest", items_max=8, ladder=steps, shares={"door": StreamShare(protected=True)})
    offered(gate, "a", 4)
    half, door_as_it_is = frame("a", 4), frame("door", 0)
    gate.offer(half, now=0.0)
    gate.offer(door_as_it_is, now=0.0)
    quarter, door_half = frame("a", 5), frame("door", 1)
    gate.offer(quarter, now=0.0)
    gate.offer(door_half, now=0.0)
    scales = [gate.step_of(one).scale for one in (half, door_as_it_is, quarter, door_half)]
    assert scales == [0.5, 1.0, 0.25, 0.5]


def test_decimation_takes_one_frame_in_so_many_while_it_is_crowded():
    gate = gate_of("drop_newest", items_max=10, ladder=(Step(0.5, every=3),))
    lets = offered(gate, "a", 5 + 9)
    assert [let.entered for let in lets[:5]] == [True] * 5
    assert Counter(let.reason for let in lets[5:]) == {None: 3, Reason.DECIMATED: 6}


def test_drop_at_drops_before_the_queue_is_full():
    gate = gate_of("drop_newest", items_max=10, drop_at=0.8)
    assert [let.reason for let in offered(gate, "a", 10)] == [None] * 8 + [Reason.WATERMARK] * 2
    assert gate.room() == 0


def test_what_queues_can_hold_in_bytes():
    terms = [GateTerms(items_max=300), GateTerms(items_max=1000, bytes_max=1_000_000)]
    assert bytes_needed(terms, 6_220_800) == 300 * 6_220_800 + 1_000_000


STREAMS = st.sampled_from("abc")
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "offer", "offer", "take"]), STREAMS, st.integers(1, 60), st.integers(0, 9)
    ),
    max_size=150,
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@given(acts=ACTS, drop_at=st.none() | st.floats(0.2, 1.0), steps=st.booleans())
def test_every_frame_is_accounted_for_within_the_bounds_whatever_happens(policy, acts, drop_at, steps):
    ladder = (Step(0.1, scale=0.5), Step(0.15, every=2)) if steps else ()
    terms = GateTerms(items_max=6, policy=policy, bytes_max=100, drop_at=drop_at, ladder=ladder)
    gate, accounts, now = Gate(terms, {"c": StreamShare(2.0, True)}), Accounts(), 0.0
    for act, stream, size_b, wait in acts:
        now += 0.1
        if act == "offer":
            ticket = Ticket(stream, accounts.open(stream), now, deadline=now + wait / 10, size_b=size_b)
            let = gate.offer(ticket, now=now)
            for victim, reason in let.shed:
                accounts.drop(victim, reason)
            if let.reason is not None:
                accounts.drop(ticket, let.reason)
            elif not let.entered:
                assert policy == "block" or isinstance(policy, Backoff)
                accounts.drop(ticket, Reason.TIMEOUT)
        else:
            taken = gate.take(wait, now=now)
            for late in taken.late:
                accounts.drop(late, Reason.LATE)
            for ticket in taken.frames:
                accounts.serve(ticket, now=now)
        assert gate.depth <= 6 and gate.size_b <= 100
        assert sum(one.in_flight for one in accounts.streams.values()) == gate.depth
        assert all(one.adds_up for one in accounts.streams.values())


def test_results_leave_in_the_order_of_their_stream_by_one_hand_at_a_time():
    sequence = Sequence()
    a0, a1, a2, b0 = frame("a", 0), frame("a", 1), frame("a", 2), frame("b", 0)
    for ticket in (a0, a1, b0, a2):
        sequence.took(ticket)
    assert not sequence.done(a1, "second"), "the first is not done"
    assert sequence.done(b0, "other")
    assert sequence.next("b") == (b0, "other")
    assert sequence.done(a0, "first")
    assert sequence.next("a") == (a0, "first")
    assert not sequence.done(a2, "third"), "somebody hands on this stream already"
    assert [sequence.next("a"), sequence.next("a"), sequence.next("a")] == [
        (a1, "second"),
        (a2, "third"),
        None,
    ]
    assert sequence.next("b") is None
    assert len(sequence) == 0


def test_quantiles_are_at_most_a_bucket_too_high():
    latencies = Latencies()
    for milliseconds in range(1, 1001):
        latencies.add(milliseconds / 1000)
    assert 0.5 <= latencies.quantile(0.5) <= 0.5 * 1.051
    assert 0.99 <= latencies.quantile(0.99) <= 0.99 * 1.051
    assert Latencies().quantile(0.5) is None


def test_2_of_3000_frames_dropped_is_well_and_3_are_an_alert():
    accounts = Accounts()
    for number in range(3000):
        ticket = Ticket("cam", accounts.open("cam"), 0.0)
        accounts.drop(ticket, Reason.LATE) if number < 2 else accounts.serve(ticket, now=0.01)
    account = accounts.streams["cam"]
    assert (account.lost, account.alert) == (2, False)
    accounts.drop(Ticket("cam", accounts.open("cam"), 0.0), Reason.FULL)
    accounts.drop(Ticket("cam", accounts.open("cam"), 0.0), Reason.FULL)
    assert account.alert


def test_recent_quantiles_forget_what_was_a_minute_ago():
    accounts = Accounts()
    for now, took_s in ((0.0, 1.0), (31.0, 1.0), (100.0, 0.1)):
        accounts.serve(Ticket("cam", accounts.open("cam"), now - took_s), now=now)
    assert accounts.streams["cam"].recent_quantile(0.99) < 0.11
    assert accounts.streams["cam"].latency.quantile(0.99) >= 1.0


def test_past_the_bound_of_streams_all_others_are_one():
    accounts = Accounts()
    for number in range(STREAMS_MAX):
        accounts.open(accounts.name(f"s{number}"))
    assert accounts.name("one more") == OTHERS
    assert accounts.name("s0") == "s0"
