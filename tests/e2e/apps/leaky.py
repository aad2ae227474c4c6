"""A model that leaks 5 MB with each job, and is replaced when it holds too much."""

import os
import sys

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()
held: list[bytearray] = []


@app.task(recycle_memory="120MiB")
class Leaks:
    def predict(self, items: list[int]) -> list[int]:
        for number in items:
            note("start", number)
            held.append(bytearray(b"x" * 5_000_000))
            note("end", number)
        return list(items)
