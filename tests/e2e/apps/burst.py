"""A model that does 150 a second in each replica, whatever the processor: it waits and computes nothing."""

import time

import forebay

app = forebay.App()


@app.task(batch_max=1)
class Infer:
    def load(self, device):
        self.each_s = 1 / 150

    def predict(self, items: list):
        time.sleep(self.each_s * len(items))
        return items
