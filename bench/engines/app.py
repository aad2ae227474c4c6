"""What the engines' benches serve: 1 KB in, 1 KB out; where the payload says so it takes a while, and is noted."""

import os
import time
from typing import Any

import forebay

app = forebay.App()


@app.task()
def echo(body: dict[str, Any]) -> dict[str, Any]:
    """Return the payload, after `hold_s`; `notes` is the file that outlives whoever writes it."""
    if "notes" in body:
        _note(body, "began")
    time.sleep(body.get("hold_s", 0))
    if "notes" in body:
        _note(body, "ended")
    return body


def _note(body: dict[str, Any], what: str) -> None:
    file = os.open(body["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{what} {body['id']} {time.time():.4f} {os.getpid()}\n".encode())
    os.close(file)
