"""A handler that is under way until a file is there: what happens meanwhile needs no luck with time."""

import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()
HELD_MAX_S = 180.0


@app.task(attempts_max=5)
def hold(x, ctx: forebay.Context):
    """x: [name, path]."""
    name, path = x
    note("start", name, ctx.attempt)
    ends_at = time.monotonic() + HELD_MAX_S
    while not os.path.exists(path) and time.monotonic() < ends_at:
        time.sleep(0.02)
    note("end", name, ctx.attempt)
    return [name, os.getpid()]


@app.task()
def echo(x):
    return x
