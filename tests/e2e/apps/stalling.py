"""A model that can be made slow: while the file beside the ledger exists it takes `SLOW` times as long."""

import os
import time

import forebay

app = forebay.App()
EACH_S, SLOW = 0.025, 20
trigger = os.environ["TRIGGER"]


@app.task(deadline="2s")
def work(x):
    """Sleep."""
    time.sleep(EACH_S * (SLOW if os.path.exists(trigger) else 1))
    return x
