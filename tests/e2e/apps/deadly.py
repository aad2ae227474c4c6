"""Handlers that print and then die or fail."""

import ctypes
import time

import forebay

app = forebay.App()


@app.task(batch_max=4, batch_wait="2s", attempts_max=3, backoff="50ms", deaths_max=1)
class Brittle:
    """A batch that prints a line for each item and dies when it holds a deadly one. Items: [name, deadly]."""

    def predict(self, items: list) -> list:
        for item in items:
            print(f"working on {item[0]}")
        time.sleep(0.01)
        if any(item[1] for item in items):
            ctypes.string_at(0)
        return [item[0] for item in items]


@app.task(attempts_max=1)
def talk(x):
    print(f"thinking about {x}")
    if x == "bad":
        raise ValueError("no good")
    return x
