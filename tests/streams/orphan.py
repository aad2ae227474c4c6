"""The creator of a queue is killed with two frames in hand; its child goes on, and prints the accounts."""

import os
import signal

from forebay.streams import EmptyError, FrameQueue
from tests.streams.queues import SHAPE, frame_of, settled, values

TRIES = 100


def inherit(queue):
    for _ in range(TRIES):  # a reader that waits looks for the dead
        try:
            queue.get(timeout=0.6).release()
        except EmptyError:
            if queue.counts().dropped["lost"] == 2:
                break
    for number in range(3):
        queue.put(frame_of(number))
    values(queue, 3)
    counts = queue.counts()
    missing = queue.slots - queue.slots_free()
    lost, served = counts.dropped["lost"], counts.served
    print(f"lost {lost}, served {served}, unaccounted {settled(counts)}, slots missing {missing}", flush=True)


if __name__ == "__main__":
    made = FrameQueue(4, shape=SHAPE, held_max=2)
    alive_read, alive_write = os.pipe()
    if os.fork() == 0:
        os.close(alive_write)
        os.read(alive_read, 1)  # the end of the file is the end of the creator
        inherit(made)
        os._exit(0)
    for n in range(2):
        made.put(frame_of(n))
    held = [made.get(), made.get()]
    os.kill(os.getpid(), signal.SIGKILL)
