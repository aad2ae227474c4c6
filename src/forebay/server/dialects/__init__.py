"""Dialects: other servers' addresses and shapes, each answered by way of our own routes; `desk` has them.

What speaks them is loaded by the first who asks in one: a server that nobody asks so is smaller.
"""

from typing import Final

_ROOTS: Final = ("/openai", "/replicate", "/v2")
_BELOW: Final = tuple(f"{one}/" for one in _ROOTS)


def is_dialect(path: str) -> bool:
    """Say whether an address belongs to a dialect."""
    return path.startswith(_BELOW) or path in _ROOTS
