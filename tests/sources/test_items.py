"""Frames from user code: what goes in comes out, at its rate, and what is no frame is named."""

import threading

import numpy
import pytest

from forebay import sources
from forebay.errors import InvalidError
from forebay.streams import FrameQueue
from forebay.streams.ports import Captured, Pressure, Source


def frames(count, shape=(4, 6, 3)):
    return [numpy.full(shape, number, "uint8") for number in range(count)]


def test_it_satisfies_what_a_pipeline_asks():
    assert isinstance(sources.iterable([]), Source)
    assert isinstance(sources.arrays(numpy.zeros((2, 3))), Source)


def test_arrays_bytes_pairs_and_captured_come_out_as_they_went_in():
    given = [frames(1)[0], b"jpeg", (b"later", 17.5), Captured(b"own", "door", 3.0, 4.0, {"n": 1})]
    got = list(sources.iterable(given, stream="hall"))
    assert [one.stream for one in got] == ["hall", "hall", "hall", "door"]
    assert got[0].pixels is given[0]
    assert (got[2].captured_at, got[2].pixels) == (17.5, b"later")
    assert got[3] is given[3]


def test_the_capture_of_what_has_none_is_when_it_was_given():
    source = sources.iterable(frames(2))
    before = source.clock.now()
    first, second = source
    assert before <= first.captured_at <= second.captured_at <= source.clock.now()


def test_an_array_of_frames_is_given_along_its_first_axis_without_a_copy():
    stack = numpy.arange(24, dtype="uint8").reshape(4, 2, 3)
    source = sources.arrays(stack)
    got = [one.pixels for one in source]
    assert len(got) == 4 and all(numpy.shares_memory(one, stack) for one in got)
    assert source.item_bytes_max == 6
    assert source.counts()["frames"] == 4


@pytest.mark.parametrize("one", [numpy.zeros(3), 7, None, [1, 2], numpy.float64(3)])
def test_what_is_no_stack_of_frames_is_refused_in_one_line(one):
    with pytest.raises(InvalidError, match="along its first axis") as caught:
        sources.arrays(one)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (None, "is a NoneType: a frame is a numpy array, bytes"),
        ("text", "is a str"),
        (numpy.zeros((0, 4), "uint8"), "has no bytes"),
        (b"", "has no bytes"),
        (numpy.array([object()]), "dtype must be of plain numbers"),
        (numpy.zeros(3, [("r", "u1")]), "dtype must be of plain numbers"),
        ((b"x", float("nan")), "captured_at of frame 1 must be a finite number"),
        ((b"x", "noon"), "captured_at of frame 1"),
    ],
)
def test_what_is_no_frame_is_named_by_its_number(item, rule):
    source = iter(sources.iterable([b"good", item]))
    next(source)
    with pytest.raises(InvalidError, match="frame 1") as caught:
        next(source)
    assert rule in str(caught.value)


def test_arrays_that_are_not_contiguous_and_of_changing_size_arrive_whole():
    wide = numpy.arange(48, dtype="uint8").reshape(4, 4, 3)
    given = [wide[::2, ::-1], wide.transpose(1, 0, 2), wide[..., 0], wide[0]]
    queue = FrameQueue(8, shape=None, item_bytes_max=64)
    for one in sources.iterable(given):
        assert queue.put(one.pixels, captured_at=one.captured_at)
    for one in given:
        with queue.get(timeout=10) as frame:
            assert numpy.array_equal(frame.array, one)
    queue.close()


def test_one_buffer_that_is_filled_again_and_again_is_copied_when_asked():
    def filling():
        buffer = numpy.zeros(4, "uint8")
        for number in range(3):
            buffer[:] = number
            yield buffer

    kept = [one.pixels for one in sources.iterable(filling(), copy=True)]
    assert [int(one[0]) for one in kept] == [0, 1, 2]
    damaged = [one.pixels for one in sources.iterable(filling())]
    assert [int(one[0]) for one in damaged] == [2, 2, 2]  # what `copy` is for


def test_a_rate_is_held():
    source = sources.iterable(frames(11), fps=100)
    started = source.clock.now()
    stamps = [one.captured_at for one in source]
    assert stamps[-1] - started >= 0.0999


def test_who_is_late_does_not_catch_up_by_a_burst():
    source = sources.iterable(frames(8), fps=20)
    slow = iter(source)
    next(slow)
    source._pace._first_at -= 3.0  # three seconds pass elsewhere
    started = source.clock.now()
    stamps = [next(slow).captured_at for _ in range(5)]
    assert stamps[-1] - started >= 0.1999
    assert source.counts()["slips"] >= 1


@pytest.mark.parametrize("fps", [0, -1, float("inf"), float("nan"), True, "30", 1e9])
def test_a_rate_that_is_none_is_refused(fps):
    with pytest.raises(InvalidError, match="fps must be frames per second"):
        sources.iterable([], fps=fps)


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65, None, 3, "-x"])
def test_a_name_of_a_stream_is_short_and_plain(name):
    with pytest.raises(InvalidError, match="stream must be 1 to 64"):
        sources.iterable([], stream=name)


def test_close_ends_a_source_that_waits_for_its_turn():
    source = sources.iterable(frames(3), fps=0.001)
    got = []
    reader = threading.Thread(target=lambda: got.extend(source))
    reader.start()
    while source.counts()["frames"] < 1:
        assert reader.is_alive()
    source.close()
    source.close()
    reader.join(10)
    assert not reader.is_alive() and len(got) == 1


def test_pressure_is_remembered_for_each_stream():
    source = sources.iterable([])
    source.press(Pressure("a", 3))
    source.press(Pressure("b", 0, retry_after_s=1.0))
    source.press(Pressure("a", 5))
    assert source.pressed("a") == Pressure("a", 5)
    assert source.pressed("c") is None
