"""The application of the events bench: yields the time, so often a second, for so long."""

import time
from collections.abc import Iterator

import forebay

app = forebay.App()


@app.task()
def tick(how: dict[str, float]) -> Iterator[float]:
    """Yield the time."""
    ends_at = time.monotonic() + how["seconds"]
    next_at = time.monotonic()
    while next_at < ends_at:
        time.sleep(max(0.0, next_at - time.monotonic()))
        next_at += 1 / how["rate"]
        yield time.time()
