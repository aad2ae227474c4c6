"""Kill writers and readers of one FrameQueue at random, and print what is left of the accounts, as JSON.

Run by the tests in a process of its own: `campaign.py SEED KILLS POLICY`.
"""

import json
import os
import random
import signal
import sys
import time

import numpy

from forebay.streams import EmptyError, FrameQueue, FullError

SHAPE = (96, 128, 3)
PROGRESS_WAIT_MAX_S = 30.0
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


def start(work, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
        finally:
            os._exit(1)
    return pid


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


def main(seed, kills, policy):
    chance = random.Random(seed)
    queue = FrameQueue(16, shape=SHAPE, policy=policy, priorities=2, held_max=4)
    torn_read, torn_write = os.pipe()
    roles = [(write, (queue,))] * WRITERS + [(read, (queue, torn_write))] * READERS
    pids = [start(work, *arguments) for work, arguments in roles]
    said = {"stuck": 0, "worst_audit_s": 0.0}
    for _ in range(kills):
        before = queue.counts()
        time.sleep(chance.random() * 0.004)
        victim = chance.randrange(len(pids))
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        work, arguments = roles[victim]
        pids[victim] = start(work, *arguments)
        if not wait_for(lambda before=before: moved(queue, before)):
            said["stuck"] += 1
            break
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    began = time.monotonic()
    queue.audit()
    said["worst_audit_s"] = time.monotonic() - began
    counts = queue.counts()
    dropped = sum(counts.dropped.values())
    said |= {"sent": counts.sent, "served": counts.served, "dropped": dict(counts.dropped)}
    said |= {"queued": counts.queued, "depth": queue.qsize(), "held": counts.held}
    said["unaccounted"] = counts.sent - counts.served - dropped - counts.queued - counts.held
    while not queue.empty():
        queue.get().release()
    said["slots_missing"] = queue.slots - queue.slots_free()
    os.set_blocking(torn_read, False)
    try:
        said["torn"] = len(os.read(torn_read, 65536).splitlines())
    except BlockingIOError:
        said["torn"] = 0
    print(json.dumps(said))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
