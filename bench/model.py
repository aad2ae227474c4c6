"""The models of serving.py: they sleep. `BENCH_FACTOR` names a file that says how many times as long."""

import os
import time

import forebay

app = forebay.App()
FACTOR = os.environ.get("BENCH_FACTOR", "")


def factor():
    try:
        with open(FACTOR) as file:
            return float(file.read() or 1)
    except (OSError, ValueError):
        return 1.0


@app.task(batch_max=16, deadline="200ms", replicas=1)
class Model:
    """20 ms and 2 ms an item: 307.7 a second in full batches."""

    def predict(self, items: list[dict]) -> list[dict]:
        time.sleep((0.020 + 0.002 * sum(item.get("cost", 1) for item in items)) * factor())
        return [{"id": item["id"], "y": 2 * item["id"] + 1} for item in items]


@app.task(batch_max=16, replicas=1)
class Echo:
    """Nothing but the way there and back."""

    def predict(self, items: list[dict]) -> list[dict]:
        return items


@app.task(deadline="200ms")
def quick(item: dict) -> int:
    time.sleep(0.002)
    return 2 * item["id"] + 1


@app.task(deadline="200ms")
def middling(item: dict) -> int:
    time.sleep(0.010)
    return 2 * item["id"] + 1


@app.task(deadline="200ms")
def slow(item: dict) -> int:
    time.sleep(0.020)
    return 2 * item["id"] + 1
