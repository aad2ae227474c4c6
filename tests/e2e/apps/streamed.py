"""One model before frames, requests and jobs; the pipeline notes what its sink heard, and where it runs."""

import os
import sys
import time
from typing import Any

import numpy

import forebay
import forebay.sources
from forebay.streams.ports import Captured

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()
SHAPE = (48, 64, 3)


@app.task(batch_max=8, replicas=1)
class Detect:
    """The sum of an image, or of a list of numbers, and who computed it."""

    def predict(self, items: list) -> list:
        return [self.of(item) for item in items]

    def of(self, item: Any) -> Any:
        if isinstance(item, dict) and item.get("broken"):
            return forebay.Failed("broken")
        values = item["image"] if isinstance(item, dict) else item
        return {"sum": int(numpy.asarray(values).sum()), "pid": os.getpid()}


@app.task()
def named(item: dict[str, Any]) -> str:
    return item["name"]


class Cameras:
    """Frames of one stream at a steady rate, numbered from the start of the process."""

    live = True
    item_bytes_max = None

    def __init__(self):
        self.closed = False

    def __iter__(self):
        number = 0
        while not self.closed:
            time.sleep(0.02)
            yield Captured(numpy.full(SHAPE, number % 4, "uint8"), "door", time.time())
            number += 1

    def press(self, pressure):
        pass

    def counts(self):
        return {}

    def close(self):
        self.closed = True


def dressed(image):
    return {"image": image, "camera": "door"}


def heard(result):
    note("frame", f"{result.seq}={result.value['sum']}", result.value["pid"])


@app.pipeline()
def door():
    pipeline = forebay.Pipeline(
        forebay.Stage(dressed),
        forebay.Stage("Detect", queue=16, on_full="drop_oldest"),
        deadline="20s",  # the machine may be busy
    )
    return pipeline.start(Cameras(), sinks=[heard])


@app.pipeline(name="plain-json")
def plain():
    texts = ({"broken": number == 1, "image": [number, number]} for number in range(3))
    made = [Captured(b"x", "texts", time.time()) for _ in range(3)]
    pipeline = forebay.Pipeline(
        forebay.Stage(lambda _: next(texts)), forebay.Stage("Detect", name="detect"), deadline="20s"
    )
    return pipeline.start(made, sinks=[lambda result: note("text", f"{result.seq}={result.value['sum']}")])


def told(result):
    """Note a frame that was pushed: its number, the sum of its bytes, and no process."""
    note("pushed", f"{result.seq}={result.value['sum']}", result.value["pid"])


@app.pipeline()
def gate():
    source = forebay.sources.push(port=None, streams=["gate"], item_bytes_max="100KB")
    return forebay.Pipeline(forebay.Stage("Detect", name="detect"), deadline="20s").start(
        source, sinks=[told]
    )


@app.pipeline()
def lost():
    return forebay.Pipeline(forebay.Stage("Nobody")).start([b"x"])
