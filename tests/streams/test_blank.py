"""Places that their writer fills: no copy, the same policy, the same accounts."""

import gc
import multiprocessing
import threading

import numpy
import pytest

from forebay.errors import InvalidError, StreamEndedError
from forebay.streams import Accepted, ClosedError, Dropped, FullError
from tests.streams.queues import SHAPE, frame_of, settled, values
from tests.waiting import until


def test_what_is_written_into_a_place_is_what_a_reader_gets(make):
    q = make()
    with q.blank(captured_at=1.0) as place:
        assert place.array.shape == SHAPE
        place.array[...] = 7
        assert q.qsize() == 0  # nobody sees a half-written frame
    assert place.verdict == Accepted(0)
    with q.get(timeout=1) as frame:
        assert (frame.array == 7).all()
        assert (frame.seq, frame.captured_at) == (0, 1.0)
    assert settled(q.counts()) == 0


def test_nothing_is_copied(make):
    q = make()
    with q.blank() as place:
        written = place.array.__array_interface__["data"][0]
        place.array[...] = 1
    with q.get(timeout=1) as frame:
        assert frame.array.__array_interface__["data"][0] == written


def test_places_and_puts_leave_in_the_order_of_their_sending(make):
    q = make()
    place = q.blank()
    q.put(frame_of(1))
    place.array[...] = 2
    assert place.send() == Accepted(1)
    assert values(q, 2) == [1, 2]


def test_an_exception_sends_nothing_and_gives_the_room_back(make):
    q = make(1)
    with pytest.raises(ZeroDivisionError), q.blank() as place:
        place.array[...] = 1 // 0
    assert (place.verdict, bool(place), q.qsize()) == (None, False, 0)
    assert q.put(frame_of(3), timeout=1) == Accepted(0)
    assert values(q, 1) == [3]
    assert q.counts().sent == 1


def test_a_place_that_is_cancelled_or_forgotten_is_room_again(make):
    q = make(1)
    q.blank(timeout=1).cancel()
    place = q.blank(timeout=1)
    del place
    gc.collect()
    with q.blank(timeout=1) as last:
        last.array[...] = 5
    last.cancel()
    assert last.send() == Accepted(0)
    assert values(q, 1) == [5]
    until(lambda: q.slots_free() == q.slots, 10, "every slot is back")


def test_a_place_that_is_not_sent_yet_is_room_that_nobody_has(make):
    q = make(1, policy="drop_newest")
    place = q.blank()
    assert place
    assert q.offer(frame_of(1)) == Dropped("full")
    place.send()
    assert q.counts().dropped == {"full": 1}


def test_where_the_policy_drops_it_there_is_no_place_and_the_verdict_says_why(make):
    q = make(1, policy="drop_newest")
    q.put(frame_of(1))
    with q.blank() as place:
        assert not place
        with pytest.raises(InvalidError, match="dropped: full"):
            _ = place.array
    assert place.verdict == Dropped("full")
    assert values(q, 1) == [1]


def test_under_drop_oldest_the_oldest_makes_the_place(make):
    q = make(2, policy="drop_oldest")
    for number in range(2):
        q.put(frame_of(number))
    with q.blank() as place:
        place.array[...] = 9
    assert place.verdict == Accepted(2, evicted=1)
    assert values(q, 2) == [1, 9]


def test_it_waits_for_room_as_put_does(make):
    q = make(1)
    q.put(frame_of(1))
    with pytest.raises(FullError):
        q.blank(block=False)
    with pytest.raises(FullError):
        q.blank(timeout=0.01)
    got = []
    reader = threading.Thread(target=lambda: got.extend(values(q, 1)))
    reader.start()
    with q.blank(timeout=10) as place:
        place.array[...] = 2
    reader.join(10)
    assert got + values(q, 1) == [1, 2]
    assert q.counts().dropped == {"full": 1, "timeout": 1}


def test_reject_raises_as_put_does(make):
    q = make(1, policy="reject")
    q.put(frame_of(1))
    with pytest.raises(FullError, match="is full"):
        q.blank()


def test_one_that_is_late_already_has_no_place_and_one_that_gets_late_is_not_served(make):
    q = make(ttl="1s")
    assert q.blank(captured_at=1.0).verdict == Dropped("late")
    place = q.blank()
    place._due = 1.0
    place.send()
    assert q.counts().queued == 1
    q.put(frame_of(4))
    assert values(q, 1) == [4]
    assert q.counts().dropped == {"late": 2}


def test_a_queue_of_any_shape_is_told_the_shape(make):
    q = make(shape=None, item_bytes_max=1000)
    with q.blank(shape=(2, 3), dtype="float32") as place:
        place.array[...] = 0.5
    with q.get(timeout=1) as frame:
        assert frame.array.tolist() == [[0.5] * 3] * 2
    with pytest.raises(InvalidError, match="say which"):
        q.blank()
    with pytest.raises(InvalidError, match="larger than item_bytes_max"):
        q.blank(shape=(2000,))
    assert q.counts().dropped == {"invalid": 2}


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ((3,), None, "this queue is for frames of shape"),
        (None, "float64", "this queue is for frames of uint8"),
        ((-1, 6, 3), None, "blank\\(shape="),
        (None, "no kind", "blank\\(shape="),
        ("abc", None, "blank\\(shape="),
    ],
)
def test_a_wrong_form_is_named_and_counted(make, shape, dtype, said):
    q = make()
    with pytest.raises(InvalidError, match=said):
        q.blank(shape=shape, dtype=dtype)
    assert q.counts().dropped == {"invalid": 1}
    assert q.slots_free() == q.slots


def test_after_the_end_and_after_a_close_there_is_no_place(make):
    q = make()
    q.shutdown()
    with pytest.raises(StreamEndedError):
        q.blank()
    q.close()
    with pytest.raises(ClosedError):
        q.blank()


def test_what_is_kept_of_a_sent_place_cannot_be_written_by_its_name(make):
    q = make()
    with q.blank() as place:
        kept = place.array
        kept[...] = 1
    with pytest.raises(ValueError, match="read-only"):
        kept[...] = 2
    assert values(q, 1) == [1]


def _hold_and_die(q, told):
    place = q.blank()
    place.array[...] = 1
    told.send(True)
    told.recv()


def test_who_is_killed_with_a_place_in_hand_gives_it_back(make):
    q = make(1)
    here, there = multiprocessing.Pipe()
    writer = multiprocessing.get_context("fork").Process(target=_hold_and_die, args=(q, there))
    writer.start()
    assert here.recv()
    assert q.slots_free() == q.slots - 1
    writer.kill()
    writer.join(10)
    until(lambda: q.audit() >= 0 and q.slots_free() == q.slots, 10, "the slot is back")
    assert (settled(q.counts()), q.counts().sent) == (0, 0)


def test_a_forked_copy_of_a_place_sends_nothing(make):
    q = make()
    place = q.blank()
    place.array[...] = 3

    def copy(told):
        told.send((place.send(), q.qsize()))

    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=copy, args=(there,))
    child.start()
    assert here.recv() == (None, 0)
    child.join(10)
    assert place.send() == Accepted(0)
    assert values(q, 1) == [3]


def test_a_decoder_that_reads_into_memory_needs_no_buffer_of_its_own(make, tmp_path):
    path = tmp_path / "raw"
    pixels = numpy.arange(numpy.prod(SHAPE), dtype="uint8").reshape(SHAPE)
    path.write_bytes(pixels.tobytes())
    q = make()
    with open(path, "rb", buffering=0) as film, q.blank() as place:
        assert film.readinto(place.array.reshape(-1)) == pixels.nbytes
    with q.get(timeout=1) as frame:
        assert (frame.array == pixels).all()
