"""A model that does 150 a second in each replica, whatever the processor: it waits and computes nothing.

BURST_PER_S in the environment: another number.
"""

import os
import time

import forebay

app = forebay.App()


@app.task(batch_max=1)
class Infer:
    def load(self, device):
        self.each_s = 1 / float(os.environ.get("BURST_PER_S", "150"))

    def predict(self, items: list):
        time.sleep(self.each_s * len(items))
        return items
