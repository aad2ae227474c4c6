"""Kill a process at every line of a move in turn, and print what is wrong with the accounts after each, as JSON.

Run by the tests in a process of its own: `deaths.py MOVE`, MOVE being put, blank, warm, rest, evict, get, late, release or audit.
"""

import contextlib
import json
import os
import signal
import sys

import numpy

from forebay.core.buffer import Reason
from forebay.core.slots import INNER_AT
from forebay.streams import EmptyError, FrameQueue
from forebay.streams.audit import audit
from forebay.streams.channel import ENTRY_BYTES
from forebay.streams.slab import ACCEPTED, COUNTS, DEADLINE, ORDINAL
from forebay.streams.spares import WINDOW

FRAME = numpy.ones((8, 8), "uint8")
LINES_MAX = 2000


class Killer:
    """Kills this process at the nth line of our own code."""

    def __init__(self, lines):
        self.left = lines

    def __call__(self, frame, event, argument):
        if "/forebay/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def put(queue):
    return lambda: queue.put(FRAME)


def blank(queue):
    """A place that is filled where it lies, one that is given back, and one that nobody sends."""

    def act():
        with queue.blank() as place:
            place.array[...] = 1
        queue.blank().cancel()
        queue.blank()

    return act


def with_freed(queue, laid_to_rest):
    """A put where three slots were freed, which lays so many of them to rest."""
    for _ in range(3):
        queue.put(FRAME)
    for frame in [queue.get() for _ in range(3)]:
        frame.release()
    cold = queue._ring.pipes.cold
    at_rest = cold.depth()

    def act():
        queue.put(FRAME)
        assert cold.depth() == at_rest + laid_to_rest

    return act


def warm(queue):
    """A put that takes the slot that was freed last."""
    return with_freed(queue, 2)


def rest(queue):
    """A put that takes the one that was freed first, and lays to rest what nobody needed for some time."""
    act, spares = with_freed(queue, 1), queue._ring._spares
    spares._batch_b, spares._again_in, spares._takes, spares._spare = ENTRY_BYTES, 2, WINDOW - 1, 3
    return act


def get(queue):
    queue.put(FRAME)
    return queue.get


def release(queue):
    queue.put(FRAME)
    frame = queue.get()
    return frame.release


def late(queue):
    queue.put(FRAME)
    slab = queue._ring.slab
    for row in slab.rows:
        slab.times[row + DEADLINE] = 1.0
    return lambda: queue.get(block=False)


def accept(ring):
    """What `commit` does first: the frame counts as accepted, and is not in a pipe yet."""
    words, row, base = ring.slab.words, ring.slab.row(ring.take_free()), ring.slab.seat(ring.seat)
    words[row + ORDINAL] = words[base + ACCEPTED]
    words[base + ACCEPTED] += 1


def bury(queue):
    """An audit that is killed in its turn, over what another death left."""
    for _ in range(2):
        queue.put(FRAME)
    pid = os.fork()
    if pid == 0:
        queue.get()
        queue.put(FRAME)
        held = [queue.get(), queue.get()]
        accept(queue._ring)
        os.kill(os.getpid(), signal.SIGKILL)
        del held
    os.waitpid(pid, 0)
    ring = queue._ring
    base = ring.slab.seat(ring.seat)
    for counter in (ACCEPTED, COUNTS + INNER_AT[Reason.LOST]):  # it has lost more than the other took in
        ring.slab.words[base + counter] += 1_000
    return lambda: audit(ring)


MOVES = {
    "put": put,
    "blank": blank,
    "warm": warm,
    "rest": rest,
    "evict": put,
    "get": get,
    "late": late,
    "release": release,
    "audit": bury,
}


def die_at(queue, move, lines):
    """Return whether the child lived through the move, killed at so many lines otherwise."""
    pid = os.fork()
    if pid == 0:
        try:
            act = MOVES[move](queue)
            sys.settrace(Killer(lines))
            with contextlib.suppress(EmptyError):
                act()
            sys.settrace(None)
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, f"{move} failed at {lines}"
    return os.WIFEXITED(status)


def drain(queue):
    with contextlib.suppress(EmptyError):
        while True:
            queue.get_nowait().release()


def main(move):
    queue = FrameQueue(3, shape=FRAME.shape, policy="drop_oldest" if move == "evict" else "block", held_max=4)
    queue.audit()
    queue._watch.stop()  # else it audits now and then, and the audit under test finds nothing to do
    found, deaths = [], 0
    for lines in range(LINES_MAX):
        if move == "evict":
            while queue.qsize() < 3:
                queue.put(FRAME)
        lived = die_at(queue, move, lines)
        deaths += not lived
        freed = queue.audit()
        counts = queue.counts()
        wrong = counts.sent - counts.served - sum(counts.dropped.values()) - counts.queued - counts.held
        if wrong or counts.held or counts.queued != queue.qsize():
            found.append(f"line {lines}, {freed} freed: {wrong} unaccounted, {counts}")
        drain(queue)
        missing = queue.slots - queue.slots_free()
        if missing or found:
            found.append(f"line {lines}: {missing} slots missing")
            break
        if lived:
            break
    print(json.dumps({"deaths": deaths, "found": found}))


if __name__ == "__main__":
    main(sys.argv[1])
