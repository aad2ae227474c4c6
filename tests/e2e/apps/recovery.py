"""Handlers with trivial loads, for measuring how soon they run again."""

import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()


@app.task(batch_max=2, batch_wait="20ms")
class Pair:
    def predict(self, items: list, contexts: list[forebay.Context]) -> list:
        for item, context in zip(items, contexts, strict=True):
            note("start", item[0], context.attempt)
        time.sleep(items[0][1])
        return [item[0] for item in items]


@app.task(backoff="100ms", attempts_max=10, deaths_max=10)
def single(x, ctx: forebay.Context):
    note("start", x[0], ctx.attempt)
    time.sleep(x[1])
    return x[0]
