"""Send frames through a queue that passed through a fork server, and print how many came and were served."""

import multiprocessing

from forebay.streams import FrameQueue
from tests.streams import peers
from tests.streams.queues import SHAPE, values

if __name__ == "__main__":
    queue = FrameQueue(8, shape=SHAPE)
    writer = multiprocessing.get_context("forkserver").Process(target=peers.write, args=(queue, 40))
    writer.start()
    seen = values(queue, 40)
    writer.join()
    print(len(seen), queue.counts().served)
