"""The work that every peer does: nothing, with 1 KB of JSON in and 1 KB out."""

import time

TEXT = "x" * 980


def asked(number):
    """Return the input of one job."""
    return {"id": number, "text": TEXT}


def answered(body):
    """Return the output of one job; `started` is when its function was called."""
    return {"id": body["id"], "text": body["text"], "started": time.time()}
