"""The model that every server of serving_peers.py serves, and how a server is told its settings.

20 ms and 2 ms an item, sixteen items a call at most, one device: it sleeps, so it takes no processor.
"""

import json
import os
import threading
import time

BATCH = 16
PORT = int(os.environ.get("PEER_PORT", "8000"))
SETTINGS = json.loads(os.environ.get("PEER_SETTINGS", "{}"))
_FACTOR = os.environ.get("BENCH_FACTOR", "")  # a file that says how many times as long it takes
_device = threading.Lock()


def _factor():
    try:
        with open(_FACTOR) as file:
            return float(file.read() or 1)
    except (OSError, ValueError):
        return 1.0


def predict(items):
    """Return the outputs, in order."""
    if not 1 <= len(items) <= BATCH:
        raise ValueError(f"a call has 1 to {BATCH} items, not {len(items)}")
    with _device:
        time.sleep((0.020 + 0.002 * len(items)) * _factor())
    return [{"id": item["id"], "y": 2 * item["id"] + 1} for item in items]
