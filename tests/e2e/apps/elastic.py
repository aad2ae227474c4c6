"""A class with a range of replicas, whose jobs are under way until a file is there."""

import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()
HELD_MAX_S = 180.0


@app.task(replicas="1..3", attempts_max=5)
class Hold:
    def load(self, device: forebay.Device) -> None:
        note("load", "replica")

    def predict(self, items):
        """Each item: [name, path]."""
        (item,) = items
        name, path = item
        note("start", name)
        ends_at = time.monotonic() + HELD_MAX_S
        while not os.path.exists(path) and time.monotonic() < ends_at:
            time.sleep(0.02)
        note("end", name)
        return [[name, os.getpid()]]
