"""The model of the flood in cameras.py: it sleeps, and serves five cameras beside whatever else is sent to it."""

import os
import threading
import time
from typing import Any

import numpy

import forebay
from forebay.streams.ports import Captured

app = forebay.App()
SHAPE, CAMERAS, PER_S = (240, 320, 3), 5, 30.0
FIXED_S, EACH_S = 0.020, 0.002


@app.task(batch_max=16, replicas=int(os.environ.get("FLOOD_REPLICAS", "1")))
class Detect:
    """20 ms and 2 ms an item: 307.7 a second in full batches."""

    def predict(self, items: list) -> list:
        time.sleep(FIXED_S + EACH_S * len(items))
        return [1 for _ in items]


class Camera:
    """A live camera at a steady rate."""

    live = True
    item_bytes_max = 240 * 320 * 3

    def __init__(self, number: int) -> None:
        self._number = number
        self._closed = threading.Event()

    def __iter__(self) -> Any:
        due, image = time.time() + self._number / CAMERAS / PER_S, numpy.zeros(SHAPE, "uint8")
        while not self._closed.is_set():
            self._closed.wait(max(0.0, due - time.time()))
            yield Captured(image, f"cam-{self._number}", time.time())
            due += 1.0 / PER_S

    def press(self, pressure: Any) -> None:
        """Go on: what is refused is counted."""

    def counts(self) -> dict[str, int]:
        return {}

    def close(self) -> None:
        self._closed.set()


@app.pipeline()
def cameras() -> Any:
    """Note of each frame when it was captured and how long it took."""
    told = open(os.environ["FLOOD_TOLD"], "a", buffering=1, encoding="ascii")  # noqa: SIM115 - until the end

    def heard(result: Any) -> None:
        told.write(f"{result.captured_at} {result.served_at - result.captured_at}\n")

    stage = forebay.Stage("Detect", queue=64, on_full="drop_oldest", replicas=64)
    return forebay.Pipeline(stage, deadline="300ms").start(
        *(Camera(number) for number in range(CAMERAS)), sinks=[heard]
    )
