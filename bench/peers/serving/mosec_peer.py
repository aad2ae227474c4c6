"""Mosec: `capacity` is how many requests it holds, running ones too; `batch_wait_ms` how long a batch waits for more."""

import sys

from mosec import Server, Worker
from slept import BATCH, PORT, SETTINGS, predict


class Model(Worker):
    """One process before the device."""

    def forward(self, data):
        return predict(data)


if __name__ == "__main__":
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(PORT), "--log-level", "error"]
    if "capacity" in SETTINGS:
        sys.argv += ["--capacity", str(SETTINGS["capacity"])]
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=BATCH, max_wait_time=SETTINGS.get("batch_wait_ms", 0))
    server.run()
