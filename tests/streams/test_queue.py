"""FrameQueue in one process: the verbs, the policies and the accounts."""

import gc
import math
import queue
import sys
import threading

import numpy
import pytest

import forebay
from forebay.errors import InvalidError, StreamEndedError
from forebay.streams import Accepted, Backoff, ClosedError, Dropped, FrameQueue
from tests.streams.queues import SHAPE, frame_of, settled, values
from tests.waiting import until


def test_a_frame_comes_out_as_it_went_in(make):
    q = make()
    there = numpy.arange(math.prod(SHAPE), dtype="uint8").reshape(SHAPE)
    assert q.put(there, captured_at=1.0) == Accepted(0)
    there[:] = 0  # the buffer is used again at once
    with q.get(timeout=1) as frame:
        assert (frame.array.ravel() == numpy.arange(math.prod(SHAPE))).all()
        assert (frame.seq, frame.captured_at, frame.deadline, frame.degraded) == (0, 1.0, None, False)
        assert frame.age_s > 1e9


def test_frames_come_in_order_and_numbers_have_gaps_where_frames_were_refused(make):
    q = make(2, policy="drop_newest")
    verdicts = [q.offer(frame_of(n)) for n in range(3)]
    assert verdicts == [Accepted(0), Accepted(1), Dropped("full")]
    assert values(q, 1) == [0]
    assert q.offer(frame_of(3)) == Accepted(3)
    assert values(q, 2) == [1, 3]


def test_depth_is_exact(make):
    q = make(3)
    assert q.empty()
    for depth in (1, 2, 3):
        q.put(frame_of())
        assert q.qsize() == depth
    assert q.full()
    q.get().release()
    assert (q.qsize(), q.full(), q.empty()) == (2, False, False)


def test_drop_oldest_keeps_the_newest(make):
    q = make(3, policy="drop_oldest")
    verdicts = [q.put(frame_of(n)) for n in range(5)]
    assert [one.evicted for one in verdicts] == [0, 0, 0, 1, 1]
    assert values(q, 3) == [2, 3, 4]
    assert q.dropped == {"oldest": 2}


def test_latest_only_keeps_one(make):
    q = make(3, policy="latest_only")
    for n in range(4):
        q.put(frame_of(n))
    assert values(q, 1) == [3]
    assert (q.dropped, q.empty()) == ({"replaced": 3}, True)


def test_reject_tells_the_caller_by_an_error(make):
    q = make(1, policy="reject")
    q.put(frame_of())
    with pytest.raises(queue.Full) as told:
        q.put(frame_of())
    assert told.value.code == "queue_full"
    assert q.offer(frame_of()) == Dropped("rejected")
    assert q.dropped == {"rejected": 2}


def test_block_waits_for_room(make):
    q = make(1)
    q.put(frame_of(1))
    done = []
    writer = threading.Thread(target=lambda: done.append(q.put(frame_of(2), timeout=30)))
    writer.start()
    assert values(q, 2) == [1, 2]
    writer.join(timeout=30)
    assert done == [Accepted(1)]


def test_block_ends_its_wait_and_says_who_holds_frames(make):
    q = make(1, held_max=1)
    q.put(frame_of())
    held = q.get()
    q.put(frame_of())
    with pytest.raises(queue.Full, match="1 of 1 frames wait; readers hold 1"):
        q.put(frame_of(), timeout=0.01)
    with pytest.raises(queue.Full):
        q.put_nowait(frame_of())
    assert q.offer(frame_of()) == Dropped("full")
    held.release()
    assert q.dropped == {"timeout": 1, "full": 2}


def test_backoff_says_when_to_offer_the_newest_frame(make):
    q = make(1, policy=Backoff("50ms", cap="150ms"))
    q.put(frame_of())
    waits = [q.offer(frame_of()).retry_after_s for _ in range(4)]
    assert waits == [0.05, 0.1, 0.15, 0.15]
    q.get().release()
    assert q.offer(frame_of())
    assert q.offer(frame_of()).retry_after_s == 0.05


def test_after_a_backoff_the_newest_frame_goes_in(make):
    q = make(1, policy=Backoff("1ms"))
    q.put(frame_of(1))

    def newest():
        if not q.empty():
            q.get().release()
        return frame_of(9)

    assert q.put(frame_of(2), timeout=30, newest=newest)
    assert values(q, 1) == [9]
    assert settled(q.counts()) == 0


def test_a_late_frame_is_dropped_before_it_is_copied_and_before_it_is_served(make):
    q = make(ttl="10s")
    assert q.put(frame_of(), captured_at=0.0) == Dropped("late")
    q.put(frame_of(1))
    with q.get() as frame:
        assert frame.deadline == pytest.approx(frame.captured_at + 10.0)
    assert q.dropped == {"late": 1}


def test_a_deadline_that_passes_in_the_queue_drops_the_frame(make):
    q = make(policy="drop_oldest")
    q.put(frame_of(1))
    with q.get() as first:
        deadline = first.captured_at + 0.2
    q.put(frame_of(2), deadline=deadline)
    until(lambda: q.offer(frame_of(3), deadline=deadline) == Dropped("late"), 10, "the deadline passes")
    q.put(frame_of(4))
    assert values(q, 1) == [4]
    assert q.dropped["late"] >= 2
    assert settled(q.counts()) == 0


def test_a_time_stamp_of_the_future_is_taken_as_now(make):
    q = make(ttl="10s")
    q.put(frame_of(), captured_at=1e15)
    with q.get() as frame:
        assert 0 <= frame.age_s < 10
        assert frame.deadline < 1e14


def test_the_most_urgent_goes_first_and_the_least_urgent_is_dropped_first(make):
    q = make(3, policy="drop_oldest", priorities=3)
    for n, priority in enumerate((2, 1, 2, 0)):
        q.put(frame_of(n), priority=priority)
    with q.get() as frame:
        assert (frame.priority, frame.array.flat[0]) == (0, 3)
    assert values(q, 2) == [1, 2]


def test_a_frame_never_makes_room_for_a_less_urgent_one(make):
    q = make(1, policy="drop_oldest", priorities=2)
    q.put(frame_of(1), priority=0)
    assert q.put(frame_of(2), priority=1) == Dropped("full")
    assert values(q, 1) == [1]


def test_frames_are_flagged_from_degrade_at_on(make):
    q = make(4, policy="drop_newest", degrade_at=0.5)
    assert [q.put(frame_of()).degraded for _ in range(4)] == [False, False, True, True]
    flags = []
    while not q.empty():
        with q.get() as frame:
            flags.append(frame.degraded)
    assert flags == [False, False, True, True]
    assert q.counts().degraded == 2


def test_from_drop_at_on_a_frame_costs_a_frame(make):
    q = make(4, policy="drop_newest", drop_at=0.75)
    assert [bool(q.put(frame_of())) for _ in range(5)] == [True, True, True, False, False]
    assert q.dropped == {"watermark": 2}


def test_frames_of_any_shape_and_kind_go_through_a_queue_without_a_shape(make):
    q = make(shape=None, item_bytes_max=4096)
    sent = [frame_of(7), numpy.arange(12, dtype=">f4").reshape(2, 6), numpy.zeros((1, 2, 3, 4), "c16")]
    sent.append(numpy.frombuffer(b"\xff\xd8 jpeg", "uint8"))
    for one in [*sent[:3], b"\xff\xd8 jpeg"]:
        q.put(one)
    for one in sent:
        with q.get() as frame:
            assert (frame.array.dtype, frame.array.shape) == (one.dtype, one.shape)
            assert (frame.array == one).all()


def test_an_array_of_any_layout_goes_in(make):
    q = make()
    wide = numpy.arange(8 * 12 * 3, dtype="uint8").reshape(8, 12, 3)
    for one in (wide[::2, ::2], numpy.asfortranarray(frame_of(3)), wide[::-2, ::-2]):
        q.put(one)
        with q.get() as frame:
            assert (frame.array == one).all()


BAD_FRAMES = [
    ({}, frame_of(shape=(4, 6)), r"frames of shape \(4, 6, 3\), not \(4, 6\) \(shape=None"),
    ({}, frame_of(dtype="float32"), "frames of uint8, not float32"),
    ({}, None, r"not NoneType \(to end a stream: shutdown\(\)\)"),
    ({}, [[1, 2], [3, 4]], "a numpy array or bytes, not list"),
    ({}, b"", "of shape"),
    ({"shape": None, "item_bytes_max": 10}, numpy.zeros(0, "uint8"), "has no bytes"),
    ({"shape": None, "item_bytes_max": 10}, b"", "has no bytes"),
    (
        {"shape": None, "item_bytes_max": 10},
        numpy.zeros(11, "uint8"),
        r"11 bytes is larger than item_bytes_max \(10\)",
    ),
    ({"shape": None, "item_bytes_max": 64}, numpy.array([object()]), "plain numbers"),
    ({"shape": None, "item_bytes_max": 64}, numpy.zeros((1,) * 7, "uint8"), "1 to 6 dimensions, not 7"),
    ({"shape": None, "item_bytes_max": 64}, numpy.float32(1.0), "1 to 6 dimensions, not 0"),
    ({"shape": None, "dtype": "uint8", "item_bytes_max": 64}, numpy.zeros(2, "f4"), "frames of uint8"),
]


@pytest.mark.parametrize(("settings", "frame", "says"), BAD_FRAMES)
def test_what_is_no_frame_of_the_queue_is_refused_in_one_line_and_counted(make, settings, frame, says):
    q = make(**settings)
    with pytest.raises(InvalidError, match=says) as told:
        q.put(frame)
    assert "\n" not in str(told.value)
    assert q.dropped == {"invalid": 1}
    assert (settled(q.counts()), q.slots_free()) == (0, q.slots)


@pytest.mark.parametrize(
    "arguments",
    [{"priority": 1}, {"priority": True}, {"captured_at": math.nan}, {"deadline": "soon"}],
    ids=str,
)
def test_a_wrong_argument_of_a_put_is_refused_and_counted(make, arguments):
    q = make()
    with pytest.raises(InvalidError, match=next(iter(arguments))):
        q.offer(frame_of(), **arguments)
    assert q.dropped == {"invalid": 1}


def test_an_empty_queue_says_so_as_the_standard_one(make):
    q = make()
    for get in (q.get_nowait, lambda: q.get(timeout=0.01), lambda: q.get(False)):
        with pytest.raises(queue.Empty) as told:
            get()
        assert told.value.code == "no_frame"


def test_after_the_end_nothing_goes_in_and_what_waits_comes_out(make):
    q = make()
    q.put(frame_of(1))
    q.shutdown()
    q.shutdown()
    with pytest.raises(StreamEndedError):
        q.put(frame_of(2))
    assert values(q, 1) == [1]
    with pytest.raises(StreamEndedError):
        q.get()
    assert q.dropped == {"ended": 1}


def test_the_end_wakes_a_reader(make):
    q = make()
    told = []

    def read():
        try:
            q.get(timeout=30)
        except StreamEndedError as error:
            told.append(error.code)

    reader = threading.Thread(target=read)
    reader.start()
    q.shutdown()
    reader.join(timeout=20)
    assert told == ["stream_ended"]


def test_a_closed_queue_refuses_as_the_standard_one(make):
    q = make()
    q.put(frame_of())
    q.close()
    q.close()
    for use in (lambda: q.put(frame_of()), q.get, lambda: q.offer(frame_of()), q.audit):
        with pytest.raises(ValueError, match="is closed in this process"):
            use()
    with pytest.raises(ClosedError):
        q.shutdown()
    assert (q.qsize(), q.counts().queued) == (1, 1)
    q.join_thread()
    q.cancel_join_thread()


def test_a_frame_in_hand_outlives_the_close_and_is_counted(make):
    q = make()
    q.put(frame_of(7))
    frame = q.get()
    q.close()
    assert (frame.array == 7).all()
    frame.release()
    counts = q.counts()
    assert (counts.served, counts.held, settled(counts), q.slots_free()) == (1, 0, 0, q.slots)


def test_a_released_frame_cannot_be_read(make):
    q = make()
    q.put(frame_of())
    with q.get() as frame:
        pass
    frame.release()
    with pytest.raises(InvalidError, match="was released"):
        frame.array  # noqa: B018
    assert q.counts().served == 1


def test_a_view_that_outlives_its_frame_is_never_written_over(make):
    q = make(2, held_max=1, policy="drop_oldest")
    q.put(frame_of(7))
    with q.get() as frame:
        kept = frame.array[1:3, ::2]
    assert q.counts().lingering == 1
    for n in range(30):
        q.put(frame_of(n))
        values(q, 1)
    assert (kept == 7).all()
    assert q.counts().served == 31
    del kept, frame
    gc.collect()
    assert (q.counts().lingering, q.slots_free()) == (0, q.slots)


def test_a_frame_that_is_never_released_is_given_back_when_it_is_gone(make):
    q = make(2, held_max=1)
    for n in range(20):
        q.put(frame_of(n))
        assert q.get().array.flat[0] == n
    gc.collect()
    assert (q.counts().served, q.slots_free()) == (20, q.slots)


@pytest.mark.parametrize(
    ("policy", "last"),
    [
        ("drop_newest", Dropped("no_slot")),
        ("drop_oldest", Dropped("no_slot")),
        ("reject", Dropped("rejected")),
    ],
)
def test_readers_that_keep_all_memory_leave_no_room_and_this_is_said(make, policy, last):
    q = make(2, held_max=1, policy=policy)
    held = []
    while verdict := q.offer(frame_of()):
        held.append(q.get())
    assert (verdict, len(held), q.counts().held) == (last, q.slots, q.slots)
    for frame in held:
        frame.release()
    assert q.offer(frame_of())
    assert settled(q.counts()) == 0


def test_frames_of_many_threads_are_all_accounted_for(make):
    q = make(8, policy="drop_oldest")
    served = []

    def write():
        for n in range(300):
            q.put(frame_of(n % 250))

    def read():
        while True:
            try:
                with q.get(timeout=30):
                    served.append(1)
            except StreamEndedError:
                return

    writers = [threading.Thread(target=write) for _ in range(3)]
    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join(timeout=50)
    q.shutdown()
    for thread in readers:
        thread.join(timeout=50)
    counts = q.counts()
    assert (counts.sent, counts.served, settled(counts)) == (900, len(served), 0)
    assert q.slots_free() == q.slots


def test_threads_together_keep_the_bound(make):
    q = make(3, shape=(300, 300), policy="drop_newest", held_max=8)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    deepest = []

    def write(start):
        for _ in range(40):
            start.wait(timeout=30)
            q.put(frame_of(1, (300, 300)))
            start.wait(timeout=30)

    try:
        start = threading.Barrier(7)
        writers = [threading.Thread(target=write, args=(start,)) for _ in range(6)]
        for thread in writers:
            thread.start()
        for _ in range(40):
            start.wait(timeout=30)
            start.wait(timeout=30)
            deepest.append(q.qsize())
            while not q.empty():
                q.get().release()
        for thread in writers:
            thread.join(timeout=30)
    finally:
        sys.setswitchinterval(before)
    assert set(deepest) == {3}


def test_the_package_gives_its_names_and_no_others():
    assert forebay.streams.FrameQueue is FrameQueue
    for name in forebay.streams.__all__:
        assert getattr(forebay.streams, name).__doc__
    with pytest.raises(AttributeError, match="no_such_name"):
        forebay.streams.no_such_name  # noqa: B018
