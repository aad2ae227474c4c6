"""What is promised within a time, with nothing beside it: the hand-off, and the return of what the dead had."""

import multiprocessing
import time

import pytest

from forebay.streams import EmptyError
from tests.streams import peers
from tests.streams.queues import SHAPE, frame_of
from tests.waiting import until

pytestmark = [pytest.mark.timed, pytest.mark.timeout(120)]

FORK = multiprocessing.get_context("fork")
HAND_OFF_P50_MAX_S = 0.002
WATCH_MAX_S = 1.0  # a look every 250 ms, and a loaded machine
PUT_MAX_S = 0.1


def test_a_waiting_reader_has_a_frame_within_two_milliseconds(make):
    q = make(8, policy="drop_oldest")
    writer = FORK.Process(target=peers.write_every, args=(q, 300, 0.002))
    writer.start()
    ages = []
    while len(ages) < 300:
        try:
            with q.get(timeout=5.0) as frame:
                ages.append(frame.age_s)
        except EmptyError:
            break
    writer.join()
    assert sorted(ages)[len(ages) // 2] < HAND_OFF_P50_MAX_S


def test_what_a_killed_reader_had_is_back_within_a_second(make):
    q = make(4, held_max=2)
    q.put(frame_of())
    told, tell = FORK.Pipe(duplex=False)
    reader = FORK.Process(target=peers.hold_and_die, args=(q, 1, tell))
    reader.start()
    told.recv()
    reader.join()
    died_at = time.monotonic()
    until(lambda: q.slots_free() == q.slots, 30, "the watch gives it back")
    assert time.monotonic() - died_at < WATCH_MAX_S


def test_a_put_that_finds_only_slots_of_the_dead_is_not_held_up(make):
    q = make(1, held_max=1, policy="drop_newest", shape=SHAPE)
    told, tell = FORK.Pipe(duplex=False)
    worst_s = 0.0
    for _ in range(20):
        began = time.monotonic()
        q.put(frame_of())
        worst_s = max(worst_s, time.monotonic() - began)
        reader = FORK.Process(target=peers.hold_and_die, args=(q, 1, tell))
        reader.start()
        told.recv()
        reader.join()
    assert worst_s < PUT_MAX_S
    assert not q.dropped["no_slot"]
