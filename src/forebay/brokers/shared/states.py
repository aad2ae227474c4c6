"""States by number, ids, and keys as bytes: what a row of a shared store is made of."""

import re
from typing import Final

from forebay.core.lifecycle import FINAL, State

STATES: Final = (
    State.SCHEDULED,
    State.QUEUED,
    State.RUNNING,
    State.RETRYING,
    State.SUCCEEDED,
    State.DEAD,
    State.CANCELLED,
    State.EXPIRED,
)  # by their numbers, which are in stores
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}
FINAL_NUMBERS: Final = frozenset(NUMBERS[state] for state in FINAL)
UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def key_bytes(key: str | None) -> bytes | None:
    """Return a key of a caller's as it is stored: any text, with zero characters and lone surrogates."""
    return None if key is None else key.encode("utf-8", "surrogatepass")


def key_of(column: bytes | None) -> str | None:
    """Return the key of a column."""
    return None if column is None else column.decode("utf-8", "surrogatepass")
