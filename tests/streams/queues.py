"""Queues of small frames for tests, closed at their end; and the accounts every test may ask for."""

import numpy

from forebay.streams import FrameQueue

SHAPE = (4, 6, 3)


def frame_of(value=1, shape=SHAPE, dtype="uint8"):
    return numpy.full(shape, value, dtype)


def settled(counts):
    """What the accounts say of frames that nobody can explain; 0 when nothing moves."""
    return counts.sent - counts.served - sum(counts.dropped.values()) - counts.queued - counts.held


def values(queue, count):
    """Take so many frames and return the first byte of each."""
    found = []
    for _ in range(count):
        with queue.get(timeout=10) as frame:
            found.append(int(frame.array.flat[0]))
    return found


def unwatched(queue):
    """Return the queue with nobody who looks for the dead on a timer, for tests of the others who do."""
    queue.audit()  # the first use begins the watch
    queue._watch.stop()
    return queue


class Queues:
    """Makes queues and closes them."""

    def __init__(self):
        self.made = []

    def __call__(self, maxsize=4, **settings):
        queue = FrameQueue(maxsize, **({"shape": SHAPE} | settings))
        self.made.append(queue)
        return queue

    def close(self):
        for queue in self.made:
            queue.close()
