"""Streams take turns by their weights; who must lose a frame is who holds most for its weight, protected ones last."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.lanes import STREAMS_MAX, Lanes, StreamShare, Ticket


def filled(counts, shares=None, size_b=10):
    lanes = Lanes(shares)
    for stream, count in counts.items():
        for seq in range(count):
            lanes.add(Ticket(stream, seq, captured_at=float(seq), size_b=size_b))
    return lanes


def taken(lanes, count):
    return [lanes.next() for _ in range(count)]


def test_streams_take_turns_however_many_frames_each_has():
    lanes = filled({"a": 50, "b": 3, "c": 2})
    assert [one.stream for one in taken(lanes, 8)] == ["a", "b", "c", "a", "b", "c", "a", "b"]


def test_a_stream_of_twice_the_weight_has_twice_the_turns():
    lanes = filled({"a": 40, "b": 40}, {"a": StreamShare(weight=2.0)})
    assert Counter(one.stream for one in taken(lanes, 30)) == {"a": 20, "b": 10}


def test_an_idle_stream_saves_no_turns_up():
    lanes = filled({"a": 100})
    taken(lanes, 50)
    for seq in range(50):
        lanes.add(Ticket("b", seq, 0.0))
    assert Counter(one.stream for one in taken(lanes, 20)) == {"a": 10, "b": 10}


def test_frames_of_one_stream_leave_in_their_order():
    lanes = filled({"a": 5, "b": 7})
    order = [(one.stream, one.seq) for one in taken(lanes, 12)]
    assert [seq for stream, seq in order if stream == "b"] == list(range(7))
    assert lanes.next() is None


def test_the_longest_line_loses_the_frame():
    lanes = filled({"crowd": 8, "quiet": 1})
    assert lanes.shed("quiet", newest=False).stream == "crowd"
    assert lanes.shed("crowd", newest=False).stream == "crowd"


def test_the_oldest_or_the_newest_of_a_line_goes():
    assert filled({"a": 4}).shed("b", newest=False).seq == 0
    assert filled({"a": 4}).shed("b", newest=True).seq == 3


def test_the_newest_of_the_longest_line_is_the_one_that_comes():
    assert filled({"a": 4, "b": 1}).shed("a", newest=True) is None


def test_a_protected_stream_loses_frames_last():
    shares = {"door": StreamShare(protected=True)}
    lanes = filled({"door": 9, "yard": 2}, shares)
    assert [lanes.shed("door", newest=False).stream for _ in range(3)] == ["yard", "yard", "door"]


def test_beside_protected_frames_alone_the_one_that_comes_must_go():
    lanes = filled({"door": 4}, {"door": StreamShare(protected=True)})
    assert lanes.shed("yard", newest=False) is None


def test_one_frame_in_so_many_is_wanted_of_each_stream():
    lanes = Lanes()
    wanted = [(stream, lanes.wanted(stream, 3)) for _ in range(6) for stream in ("a", "b")]
    assert Counter(stream for stream, yes in wanted if yes) == {"a": 2, "b": 2}
    assert all(lanes.wanted("a", 1) for _ in range(5))


def test_streams_that_come_and_go_are_forgotten():
    lanes = Lanes()
    for number in range(10 * STREAMS_MAX):
        lanes.add(Ticket(f"s{number}", 0, 0.0))
        assert lanes.next().stream == f"s{number}"
    assert len(lanes._lanes) <= 2 * STREAMS_MAX


SHARES = {"b": StreamShare(weight=2.0), "c": StreamShare(protected=True), "d": StreamShare(0.5, True)}


def loser(counts, stream, newest):
    """The stream that must lose a frame, by the rule: the least protected, of these the longest for its weight."""
    parts = {one: 1 / SHARES.get(one, StreamShare()).weight for one in counts}
    guarded = {one: SHARES.get(one, StreamShare()).protected for one in counts}
    able = {
        one: count * parts[one] for one, count in counts.items() if count and guarded[one] <= guarded[stream]
    }
    if newest or counts[stream]:
        able[stream] = (counts[stream] + 1) * parts[stream]
    if not able:
        return None
    least = min(guarded[one] for one in able)
    able = {one: length for one, length in able.items() if guarded[one] == least}
    longest = max(able.values())
    found = stream if able.get(stream) == longest else next(one for one in able if able[one] == longest)
    return None if found == stream and newest else found


@given(
    counts=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    stream=st.sampled_from("abcd"),
    newest=st.booleans(),
)
def test_who_loses_a_frame_is_the_longest_line_for_its_weight_of_the_least_protected(counts, stream, newest):
    lanes = filled(dict.fromkeys("abcd", 1), SHARES)
    taken(lanes, 4)  # each stream has been seen, so that lines of one length stand in a known order
    for name, count in zip("abcd", counts, strict=True):
        for seq in range(count):
            lanes.add(Ticket(name, seq, 0.0))
    gone = lanes.shed(stream, newest=newest)
    assert (gone and gone.stream) == loser(dict(zip("abcd", counts, strict=True)), stream, newest)


STREAMS = st.sampled_from("abcd")
ACTS = st.lists(
    st.tuples(st.sampled_from(["add", "next", "oldest", "newest", "clear"]), STREAMS), max_size=120
)


@given(acts=ACTS)
def test_depth_and_bytes_are_those_of_the_frames_in_it_and_each_leaves_once(acts):
    lanes, inside, seqs = Lanes({"d": StreamShare(0.5, True)}), set(), Counter()
    for act, stream in acts:
        gone = []
        if act == "add":
            seqs[stream] += 1
            ticket = Ticket(stream, seqs[stream], 0.0, size_b=seqs[stream])
            lanes.add(ticket)
            inside.add(ticket)
        elif act == "next":
            gone = [lanes.next()]
            assert (gone[0] is None) == (not inside)
        elif act == "clear":
            gone = lanes.clear(stream)
        else:
            gone = [lanes.shed(stream, newest=act == "newest")]
        inside -= {one for one in gone if one is not None and (inside.remove(one) or True)}
        assert lanes.depth == len(inside)
        assert lanes.size_b == sum(one.size_b for one in inside)
        assert lanes.depths() == Counter(one.stream for one in inside)
    assert len(lanes.empty()) == len(inside)
    assert lanes.depth == lanes.size_b == 0
