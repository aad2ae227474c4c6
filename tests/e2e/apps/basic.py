"""What the tests of graceful life run: quick, slow, stubborn and failing handlers."""

import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()


@app.task()
def echo(x):
    return x


@app.task(attempts_max=1)
def nap(x, ctx: forebay.Context):
    """Sleep in one piece, deaf to a cancel. x: [name, seconds]."""
    name, seconds = x
    note("start", name, ctx.attempt)
    time.sleep(seconds)
    note("end", name, ctx.attempt)
    return [name, ctx.attempt, os.getpid()]


@app.task(attempts_max=1)
def tick(x, ctx: forebay.Context):
    """Write a line every 50 ms. x: [name, seconds]."""
    name, seconds = x
    note("start", name, ctx.attempt)
    for _ in range(int(seconds / 0.05)):
        note("tick", name, ctx.attempt)
        time.sleep(0.05)
    return name


@app.task(attempts_max=50, backoff="100ms")
def flaky(x, ctx: forebay.Context):
    """Raise in about one run of ten. x: name."""
    note("start", x, ctx.attempt)
    time.sleep(0.003)
    if hash((x, ctx.attempt)) % 10 == 0:
        raise RuntimeError("one in ten")
    return x


@app.task(batch_max=8, batch_wait="10ms", attempts_max=1)
class Batch:
    def load(self, device):
        self.loaded = True

    def predict(self, items: list):
        for name, _ in items:
            note("start", name)
        time.sleep(max(seconds for _, seconds in items))
        for name, _ in items:
            note("end", name)
        return [name for name, _ in items]
