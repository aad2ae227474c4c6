"""What makes frames fast: few slots go round, a forked process has its memory mapped, and a reader looks for a
moment before it sleeps. None of it changes what is given to whom."""

import os
import resource
import threading

import pytest

from forebay.streams import queue as queue_module
from forebay.streams.eager import LOOKS_MAX, MISSES_MAX, Eager
from forebay.streams.slab import BELL
from forebay.streams.spares import KEEP, WARM_MAX_B, WINDOW, WINDOWS_MAX
from tests.streams.queues import SHAPE, frame_of

ROUNDS = 2 * WINDOW
LARGE = (WARM_MAX_B + 1,)


def slots_of_a_flow(q, rounds, in_flight, shape=SHAPE):
    """Put so many frames and take them, again and again; return which slots were used."""
    used, frame = set(), frame_of(shape=shape)
    for _ in range(rounds):
        for _ in range(in_flight):
            q.put(frame)
        for taken in [q.get(timeout=10) for _ in range(in_flight)]:
            used.add(taken._slot)
            taken.release()
    return used


def burst(q, count, shape=SHAPE):
    for _ in range(count):
        q.put(frame_of(shape=shape))
    for _ in range(count):
        q.get(timeout=10).release()


def test_a_reader_that_keeps_up_makes_one_slot_go_round(make):
    q = make(64)
    burst(q, 64)
    slots_of_a_flow(q, ROUNDS, 1)
    assert len(slots_of_a_flow(q, ROUNDS, 1)) == 1
    assert q.slots_free() == q.slots


def test_readers_that_do_not_keep_up_make_few_slots_go_round(make):
    q = make(64)
    slots_of_a_flow(
        q, 80 * WINDOW // 3, 3
    )  # in which it was tried again ever more rarely whether they keep up
    # At each look one may be laid to rest that is missed soon after.
    assert len(slots_of_a_flow(q, ROUNDS // 3, 3)) <= 3 + 2 + ROUNDS // WINDOW
    assert q.slots_free() == q.slots


def test_readers_that_keep_up_again_make_one_slot_go_round_again(make):
    q = make(64)
    slots_of_a_flow(q, ROUNDS, 3)
    slots_of_a_flow(q, WINDOWS_MAX * WINDOW, 1)
    assert len(slots_of_a_flow(q, ROUNDS, 1)) == 1


def test_large_frames_take_turns_and_what_only_a_burst_needed_is_laid_to_rest(make):
    q = make(16, shape=LARGE)
    burst(q, 16, LARGE)
    slots_of_a_flow(q, ROUNDS, 1, LARGE)
    assert 1 < len(slots_of_a_flow(q, ROUNDS, 1, LARGE)) <= 1 + KEEP + ROUNDS // WINDOW
    assert q.slots_free() == q.slots


def test_slots_at_rest_are_taken_when_they_are_needed(make):
    q = make(64, held_max=2)
    slots_of_a_flow(q, ROUNDS, 3)
    for n in range(64):
        q.put(frame_of(n))
    assert [q.get(timeout=10).array.flat[0] for _ in range(64)] == list(range(64))


def faults_of_a_forked_writer(q, frame, count):
    """Return how often a forked process had to have a page mapped while it put its first frames."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            q._open()  # what its first move does
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(count):
                q.put(frame)
            os.write(writer, b"%d" % (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        said = told.read()
    os.waitpid(pid, 0)
    return int(said)


def test_a_forked_writer_has_its_memory_mapped_before_the_first_copy(make):
    shape = (1 << 20,)
    q = make(16, shape=shape)
    pages = 16 * shape[0] // os.sysconf("SC_PAGE_SIZE")
    assert faults_of_a_forked_writer(q, frame_of(shape=shape), 16) < pages / 4


class Counted:
    """Words that count how often the bell is looked at, and let it ring at a look."""

    def __init__(self, rings_at=None):
        self.looks = 0
        self.rings_at = rings_at

    def __getitem__(self, at):
        assert at == BELL
        self.looks += 1
        return self.looks == self.rings_at


def eager(words):
    made = Eager.__new__(Eager)
    made._words, made._misses, made._skip, made._alone = words, 0, 0, False
    return made


def test_a_bell_that_rings_during_the_look_is_heard_at_once():
    words = Counted(rings_at=5)
    assert eager(words).hears(False)
    assert words.looks == 5


def test_a_look_has_an_end():
    words = Counted()
    assert not eager(words).hears(False)
    assert words.looks == LOOKS_MAX


def test_looks_in_vain_become_rare_and_one_that_pays_off_makes_them_usual_again():
    words = Counted()
    one = eager(words)
    for _ in range(2**MISSES_MAX):
        one.hears(False)
    words.looks = 0
    for _ in range(10 * 2**MISSES_MAX):
        one.hears(False)
    assert words.looks == 10 * LOOKS_MAX
    one.paid()
    words.looks = 0
    one.hears(False)
    assert words.looks == LOOKS_MAX


def test_who_has_one_core_alone_does_not_look(make, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    one = Eager(make()._ring.slab)
    one._words = words = Counted(rings_at=1)
    assert not one.hears(False)
    assert not words.looks


class Arrives:
    """Looks in the place of Eager: a frame comes during the look, or goes to another reader at once."""

    def __init__(self, q, *, lost):
        self.q = q
        self.lost = lost
        self.looks = self.paid_off = 0

    def hears(self, seen):
        self.looks += 1
        self.q.put(frame_of(7))
        assert self.q._words[BELL] != seen
        if self.lost:
            self.q.get_nowait().release()
        return True

    def paid(self):
        self.paid_off += 1


def test_a_frame_that_comes_during_the_look_is_had_without_sleeping(make, monkeypatch):
    q = make()
    q._eager = looking = Arrives(q, lost=False)
    monkeypatch.setattr(queue_module, "wait_any", lambda *_: pytest.fail("it slept"))
    with q.get(timeout=10) as frame:
        assert frame.array.flat[0] == 7
    assert (looking.looks, looking.paid_off) == (1, 1)


def test_a_reader_whose_frame_another_took_sleeps_and_its_look_did_not_pay(make, monkeypatch):
    q = make()
    q._eager = looking = Arrives(q, lost=True)

    def wait(*_):
        looking.lost = False
        q.put(frame_of(8))
        return True

    monkeypatch.setattr(queue_module, "wait_any", wait)
    with q.get(timeout=10) as frame:
        assert frame.array.flat[0] == 8
    assert (looking.looks, looking.paid_off) == (1, 0)


def test_a_reader_that_looks_in_vain_is_woken_all_the_same(make):
    q = make()
    got = []
    reader = threading.Thread(target=lambda: got.append(q.get(timeout=60).array.flat[0]))
    reader.start()
    q.put(frame_of(9))
    reader.join(60)
    assert got == [9]
