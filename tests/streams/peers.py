"""What other processes do with a queue in the tests; imported by spawned ones."""

import os
import signal
import time

from tests.streams.queues import SHAPE, frame_of  # noqa: F401 - a script takes SHAPE from here


def write(queue, count):
    for n in range(count):
        queue.put(frame_of(n % 250))


def write_every(queue, count, pause_s):
    for _ in range(count):
        queue.put(frame_of())
        time.sleep(pause_s)


def copy(source, target, count):
    """Read from one queue and write into another."""
    for _ in range(count):
        with source.get(timeout=30) as frame:
            target.put(frame.array, captured_at=frame.captured_at)


def hold_and_die(queue, count, told):
    """Take frames, say so, and be killed with them in hand."""
    held = [queue.get(timeout=30) for _ in range(count)]
    told.send(len(held))
    os.kill(os.getpid(), signal.SIGKILL)


def hold(queue, told):
    """Take a frame and keep it until told."""
    with queue.get(timeout=30) as frame:
        told.send(int(frame.array.flat[0]))
        told.recv()
        told.send(int(frame.array.flat[0]))
