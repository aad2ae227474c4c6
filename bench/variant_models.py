"""The models of variants.py: they sleep, and are right as often as their names promise."""

import time
import zlib

import forebay

app = forebay.App()
FIXED_S, EACH_S = 0.020, 0.002  # of the large model; the others take a share of that


def run(items, speed, right_of_1000):
    """Take the time of a model so many times as fast, and answer right so often; which items is by chance."""
    time.sleep((FIXED_S + EACH_S * len(items)) / speed)
    return [one["id"] * 2 + (zlib.crc32(b"%d" % one["id"]) % 1000 < right_of_1000) for one in items]


class Medium:
    """2.5 times as fast."""

    def predict(self, items: list[dict]) -> list[int]:
        return run(items, 2.5, 930)


class Small:
    """8 times as fast."""

    def predict(self, items: list[dict]) -> list[int]:
        return run(items, 8.0, 850)


@app.task(
    batch_max=16,
    deadline="200ms",
    replicas=1,
    variants=[forebay.Variant(Medium, quality=0.96), forebay.Variant(Small, quality=0.88)],
)
class Large:
    """20 ms and 2 ms an item: 307.7 a second in full batches."""

    def predict(self, items: list[dict]) -> list[int]:
        return run(items, 1.0, 970)


@app.task(batch_max=16, deadline="200ms", replicas=1)
class Alone:
    """The same without variants."""

    def predict(self, items: list[dict]) -> list[int]:
        return run(items, 1.0, 970)
