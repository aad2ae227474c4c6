"""A model that takes its time, and dies of what is negative."""

import os
import time

import forebay

app = forebay.App()


@app.task(batch_max=4)
class Nap:
    def predict(self, items: list[float]) -> list[str]:
        if min(items) < 0:
            os._exit(9)
        time.sleep(max(items))
        return ["ok" for _ in items]


@app.task(attempts_max=1)
def fail(seconds: float) -> str:
    time.sleep(seconds)
    raise forebay.Permanent("never")
