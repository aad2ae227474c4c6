"""The mixed load of the kill campaign: a batched class, functions, and handlers that fail at first."""

import os
import sys
import time

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()
# Killed children say nothing of the jobs in them here, so no number of deaths makes a dead letter.
PATIENT = {"attempts_max": 500, "deaths_max": 500, "backoff": "50ms"}


@app.task(batch_max=8, batch_wait="5ms", **PATIENT)
class Batched:
    def predict(self, items: list[dict], contexts: list[forebay.Context]) -> list:
        for item, context in zip(items, contexts, strict=True):
            note("start", item["name"], context.attempt)
        time.sleep(max(item["sleep_s"] for item in items))
        bad = [i for i, c in zip(items, contexts, strict=True) if i["fails"] >= c.attempt]
        if bad:
            for item, context in zip(items, contexts, strict=True):
                note("fail", item["name"], context.attempt)
            raise ValueError(f"bad: {bad[0]['name']}")
        for item, context in zip(items, contexts, strict=True):
            note("end", item["name"], context.attempt)
        return [{"name": item["name"], "pad": item["pad"]} for item in items]


@app.task(**PATIENT)
def single(item: dict, context: forebay.Context) -> dict:
    note("start", item["name"], context.attempt)
    time.sleep(item["sleep_s"])
    if item["fails"] >= context.attempt:
        note("fail", item["name"], context.attempt)
        raise RuntimeError("not yet")
    note("end", item["name"], context.attempt)
    return {"name": item["name"], "pad": item["pad"]}
