"""Frames survive any cut of the stream, and what is no frame is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.job import JobError
from forebay.node import frames
from forebay.node.frames import (
    BreakerReport,
    Breakers,
    Cancel,
    FrameError,
    GiveBack,
    ItemResult,
    LoadFailed,
    Pass,
    Ping,
    Pong,
    Progress,
    Ready,
    Results,
    Returned,
    Run,
    RunItem,
    Splitter,
    Start,
    Stop,
    ToldBreaker,
    decode_to_child,
    decode_to_node,
    encode_frame,
)

TO_CHILD = [
    Start("app.py", ("A",), "cuda", 1, 99),
    Run(7, "A", [RunItem(1, b"{}", 2, "id", 1.5), RunItem(2, b"1")], True),
    Cancel(1),
    GiveBack(),
    Stop(),
    ToldBreaker("features", "open", 1.5, "3 bad calls"),
    Ping(3),
]
TO_NODE = [
    Ready(0.1, 0.2),
    LoadFailed("load_failed", "no file", "OSError", "a.py, line 3"),
    Results([ItemResult(1, b"{}"), ItemResult(2, None, JobError("c", "m", "T"), True, 2.0, True)], 0.5),
    Pass(7, 4),
    Progress([(1, 0.5, "half")]),
    Breakers([BreakerReport("features", "open", 1, 30.0, "3 bad calls", ("a", "b"), True)]),
    Returned([1, 2]),
    Pong(3),
]


@given(st.lists(st.integers(1, 60), max_size=60))
def test_any_cut_of_the_stream_gives_the_same_messages(cuts):
    stream = b"".join(encode_frame(message) for message in TO_CHILD + TO_NODE)
    splitter, bodies, at = Splitter(), [], 0
    for cut in [*cuts, len(stream)]:
        bodies += splitter.feed(stream[at : at + cut])
        at += cut
    count = len(TO_CHILD)
    assert [decode_to_child(body) for body in bodies[:count]] == TO_CHILD
    assert [decode_to_node(body) for body in bodies[count:]] == TO_NODE


def test_a_message_above_the_limit_is_refused_before_it_is_sent(monkeypatch):
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 100)
    with pytest.raises(FrameError, match="FRAME_BYTES_MAX"):
        encode_frame(Run(1, "A", [RunItem(1, b"x" * 200)]))


def test_a_length_above_the_limit_is_refused_before_anything_is_kept():
    with pytest.raises(FrameError):
        list(Splitter().feed(b"\xff\xff\xff\xff"))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_a_decode_error_and_nothing_else(data):
    for decode in (decode_to_child, decode_to_node):
        try:
            decode(data)
        except msgspec.DecodeError:
            continue
