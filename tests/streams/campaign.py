"""Kill writers and readers of one FrameQueue at random, and print what is left of the accounts, as JSON.

Run by the tests in a process of its own: `campaign.py SEED KILLS POLICY WAIT_MAX_S`. What the children raised is
printed with the rest, and when the accounts are wrong or nothing moves, what everything looked like.
"""

import ctypes
import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback

import numpy

from forebay.core.slots import SlotState, seat_of, state_of
from forebay.streams import EmptyError, FrameQueue, FullError
from forebay.streams.machine import started_at
from forebay.streams.slab import ACCEPTED, COUNTER, GENERATION, OPS, ORDINAL, PID, SEATS_MAX, STARTED, STATE

SHAPE = (96, 128, 3)
PROGRESS_WAIT_MAX_S = 60.0
RAISED_CHARACTERS_MAX = 1_500  # of one child
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
READERS = WRITERS = 2


def write(queue):
    frame = numpy.zeros(SHAPE, "uint8")
    number = 0
    while True:
        number += 1
        frame[:] = number % 251
        try:
            queue.put(frame, timeout=0.05, priority=number % 2)
        except FullError:
            pass


def read(queue, torn_fd):
    chance = random.Random(os.getpid())
    while True:
        try:
            frame = queue.get(timeout=0.05)
        except EmptyError:
            continue
        with frame:
            if chance.random() < 0.1:
                time.sleep(0.001)
            if frame.array.min() != frame.array.max():
                os.write(torn_fd, b"torn\n")


def start(raised_fd, work, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            work(*arguments)
        except BaseException:
            said = f"{work.__name__} {os.getpid()}: {traceback.format_exc()[-RAISED_CHARACTERS_MAX:]}"
            os.write(raised_fd, said.encode())
        finally:
            os._exit(1)
    return pid


def written(fd):
    """Return what the children wrote into a pipe."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    except BlockingIOError:
        return ""


def scene(queue):
    """Return what everything looks like: taken seats, slots that are not free, entries in the pipes."""
    ring, words = queue._ring, queue._ring.slab.words
    seats = [(number, ring.slab.seat(number)) for number in range(SEATS_MAX)]
    rows = [(slot, ring.slab.row(slot)) for slot in range(queue.slots)]
    return {
        "seats": [
            {"seat": number, "pid": words[at + PID], "ops": words[at + OPS], "accepted": words[at + ACCEPTED]}
            | {"lives": started_at(words[at + PID]) == words[at + STARTED]}
            for number, at in seats
            if words[at + PID]
        ],
        "slots": [
            {
                "slot": slot,
                "state": SlotState(state_of(words[at + STATE])).name,
                "ordinal": words[at + ORDINAL],
            }
            | {"seat": seat_of(words[at + STATE]), "generation": words[at + GENERATION]}
            | {"counter": words[at + COUNTER]}
            for slot, at in rows
        ],
        "pipes": {"work": [pipe.depth() for pipe in ring.pipes.work]}
        | {name: getattr(ring.pipes, name).depth() for name in ("hot", "cold", "room", "end", "scratch")},
        "counts": str(queue.counts()),
    }


def wait_for(condition):
    ends_at = time.monotonic() + PROGRESS_WAIT_MAX_S
    while not condition():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.001)
    return True


def moved(queue, before):
    now = queue.counts()
    return now.served > before.served and now.accepted > before.accepted


def main(seed, kills, policy, wait_max_s):
    faulthandler.dump_traceback_later(
        wait_max_s, exit=True
    )  # says where it stands, and its children go with it
    chance = random.Random(seed)
    queue = FrameQueue(16, shape=SHAPE, policy=policy, priorities=2, held_max=4)
    torn_read, torn_write = os.pipe()
    raised_read, raised_write = os.pipe()
    roles = [(write, (queue,))] * WRITERS + [(read, (queue, torn_write))] * READERS
    pids = [start(raised_write, work, *arguments) for work, arguments in roles]
    said = {"stuck": 0, "worst_audit_s": 0.0}
    for kill in range(kills):
        before = queue.counts()
        time.sleep(chance.random() * 0.004)
        victim = chance.randrange(len(pids))
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        work, arguments = roles[victim]
        pids[victim] = start(raised_write, work, *arguments)
        if not wait_for(lambda before=before: moved(queue, before)):
            said["stuck"] += 1
            said |= {"stuck_at": kill, "before": str(before), "scene_stuck": scene(queue)}
            said["live"] = [started_at(pid) is not None for pid in pids]
            break
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    began = time.monotonic()
    scenes = [scene(queue)]
    said["freed"] = queue.audit()
    said["worst_audit_s"] = time.monotonic() - began
    scenes.append(scene(queue))
    counts = queue.counts()
    dropped = sum(counts.dropped.values())
    said |= {"sent": counts.sent, "served": counts.served, "dropped": dict(counts.dropped)}
    said |= {"queued": counts.queued, "depth": queue.qsize(), "held": counts.held}
    said["unaccounted"] = counts.sent - counts.served - dropped - counts.queued - counts.held
    while not queue.empty():
        queue.get(timeout=PROGRESS_WAIT_MAX_S).release()
    said["slots_missing"] = queue.slots - queue.slots_free()
    said["torn"] = len(written(torn_read).splitlines())
    said["raised"] = written(raised_read)
    if said["unaccounted"] or said["held"] or said["slots_missing"] or said["queued"] != said["depth"]:
        said["scenes"] = [*scenes, scene(queue)]
    print(json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
