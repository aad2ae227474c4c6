"""The work that every peer does: nothing, with 1 KB of JSON in and 1 KB out; or a while, noted as it begins and ends."""

import os
import time

TEXT = "x" * 980


def asked(number):
    """Return the input of one job; with `hold_s` it takes so long."""
    return {"id": number, "text": TEXT}


def answered(body):
    """Return the output of one job; `started` is when its function was called."""
    started = time.time()
    if "hold_s" in body:
        note("began", body["id"])
        time.sleep(body["hold_s"])
        note("ended", body["id"])
    return {"id": body["id"], "text": body["text"], "started": started}


def note(what, number):
    """Add a line to the file that outlives whoever writes it: what, job, when, by whom."""
    file = os.open(os.environ["PEER_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{what} {number} {time.time():.4f} {os.getpid()}\n".encode())
    os.close(file)
