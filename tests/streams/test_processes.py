"""FrameQueue between real processes: by every way to start one, and through the death of any."""

import multiprocessing
import os
import pickle
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.streams import FrameQueue
from forebay.streams.audit import _quiet as quiet
from forebay.streams.machine import started_at
from forebay.streams.seats import living
from forebay.streams.slab import OPS
from tests.streams import peers
from tests.streams.queues import SHAPE, frame_of, settled, unwatched, values
from tests.waiting import until

ROOT = Path(__file__).parents[2]
WAYS = ["fork", "spawn"]  # a fork server would outlive the test: forkserver.py has one
WAIT_MAX_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def started(way, work, *arguments):
    process = multiprocessing.get_context(way).Process(target=work, args=arguments)
    process.start()
    return process


@pytest.mark.parametrize("way", WAYS)
def test_frames_pass_from_process_to_process(make, way):
    source, target = make(8), make(8)
    writer = started(way, peers.write, source, 40)
    middle = started(way, peers.copy, source, target, 40)
    assert values(target, 40) == list(range(40))
    for process in (writer, middle):
        process.join(WAIT_MAX_S)
        assert process.exitcode == 0
    assert (source.counts().served, target.counts().accepted) == (40, 40)


def test_a_queue_passes_through_a_fork_server():
    assert printed_by("forkserver.py") == "40 40\n"


def test_the_creator_of_a_queue_may_be_killed():
    assert printed_by("orphan.py") == "lost 2, served 3, unaccounted 0, slots missing 0\n"


def printed_by(script):
    """Return what a script beside this file prints, with all processes that it starts."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, str(ROOT / "tests/streams" / script)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=120, env=env, check=False
    ).stdout


@pytest.mark.parametrize("way", WAYS)
def test_what_a_killed_reader_held_comes_back_by_itself(make, way):
    q = make(4, held_max=2)
    for n in range(3):
        q.put(frame_of(n))
    told, tell = multiprocessing.get_context(way).Pipe(duplex=False)
    reader = started(way, peers.hold_and_die, q, 2, tell)
    assert told.recv() == 2
    reader.join(WAIT_MAX_S)
    assert reader.exitcode == -signal.SIGKILL
    until(lambda: q.slots_free() == q.slots - 1, WAIT_MAX_S, "the creator's watch gives them back")
    assert q.dropped == {"lost": 2}
    assert values(q, 1) == [2]
    assert (settled(q.counts()), q.slots_free()) == (0, q.slots)


def test_a_writer_that_finds_no_slot_gets_back_what_the_dead_had(make):
    q = unwatched(make(2, held_max=1, policy="drop_newest"))
    told, tell = multiprocessing.get_context("fork").Pipe(duplex=False)
    while q.slots_free():
        q.put(frame_of())
        reader = started("fork", peers.hold_and_die, q, 1, tell)
        assert told.recv() == 1
        reader.join(WAIT_MAX_S)
    until(lambda: q.offer(frame_of(9)), WAIT_MAX_S, "there is room again")
    assert values(q, 1) == [9]


def test_a_dead_reader_that_nobody_has_reaped_holds_nothing(make):
    q = unwatched(make(4, held_max=2))
    q.put(frame_of())
    pid = os.fork()
    if pid == 0:
        held = q.get(timeout=30)
        os.kill(os.getpid(), signal.SIGKILL)
        del held
    try:
        until(lambda: q.audit() == 1, WAIT_MAX_S, "its slot comes back while it is a zombie")
        assert q.dropped == {"lost": 1}
    finally:
        os.waitpid(pid, 0)


def test_an_audit_waits_for_who_is_inside_a_move_until_it_dies(make):
    q = unwatched(make(4))
    inside, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        q.put(frame_of())
        q._ring.slab.words[q._ring._base + OPS] += 1
        os.write(tell, b".")
        signal.pause()
    try:
        os.read(inside, 1)
        alive, dead = living(q._ring.slab)
        assert (len(alive), dead) == (2, [])
        assert not quiet(q._ring, alive)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(inside)
        os.close(tell)
    assert quiet(q._ring, alive)


ONE_THREAD_ENDS = {
    "x86_64": 60,
    "aarch64": 93,
}  # the system call exit: of one thread, where exit_group is of all
FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({call})
"""


def test_a_process_whose_first_thread_has_ended_is_not_dead():
    code = FIRST_THREAD_ENDS.format(call=ONE_THREAD_ENDS[platform.machine()])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            of_stat = Path(f"/proc/{process.pid}/stat")
            until(lambda: ") Z " in of_stat.read_text(), WAIT_MAX_S, "it looks like a dead one")
            assert started_at(process.pid) is not None
            process.kill()  # and now its other thread ends too
            until(lambda: started_at(process.pid) is None, WAIT_MAX_S, "it is dead")
        finally:
            process.kill()


def test_a_frame_in_another_process_is_not_written_over(make):
    q = make(1, held_max=1, policy="drop_oldest")
    q.put(frame_of(7))
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    reader = started("fork", peers.hold, q, theirs)
    assert ours.recv() == 7
    for n in range(20):
        q.put(frame_of(100 + n))
    ours.send("look again")
    assert ours.recv() == 7
    reader.join(WAIT_MAX_S)
    assert values(q, 1) == [119]


def test_a_forked_copy_of_a_frame_gives_nothing_back(make):
    q = make(2)
    q.put(frame_of(1))
    with q.get() as frame:
        copy = started("fork", frame.release)
        copy.join(WAIT_MAX_S)
        assert copy.exitcode == 0
        assert (q.counts().held, frame.array.flat[0]) == (1, 1)
    assert q.counts().served == 1


def test_frames_of_a_process_that_has_ended_are_served(make):
    q = make(4)
    first = started("fork", peers.write, q, 2)
    first.join(WAIT_MAX_S)
    assert values(q, 2) == [0, 1]
    assert (settled(q.counts()), q.slots_free()) == (0, q.slots)


def test_a_queue_is_only_pickled_for_a_process_that_is_started(make):
    with pytest.raises(RuntimeError, match="should only be shared between processes through inheritance"):
        pickle.dumps(make())


def test_seats_of_processes_that_ended_are_used_again(make):
    q = make(4)
    for _ in range(140):  # more than there are seats
        writer = started("fork", peers.write, q, 1)
        assert values(q, 1) == [0]
        writer.join(WAIT_MAX_S)
        assert writer.exitcode == 0
    assert q.counts().served == 140


def test_nothing_is_left_in_shared_memory_or_in_the_table_of_names(make):
    before = sorted(os.listdir("/dev/shm"))
    q = FrameQueue(2, shape=SHAPE)
    q.put(frame_of())
    assert sorted(os.listdir("/dev/shm")) == before
    q.close()
