"""OneWrite: a transport that sends the head of an answer together with what follows it.

uvicorn writes head and body apart, and each write is a system call that wakes the client: a fifth of what
a short answer costs.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "
_CONTINUE = b"HTTP/1.1 100"


class OneWrite:
    """Stands in front of one transport. A head that nothing follows leaves at the end of the loop's turn."""

    __slots__ = ("_held", "_inner", "_loop")

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write, or hold back a head for what follows."""
        held = self._held
        if held is not None:
            self._held = None
            self._inner.write(held + data)
        elif data.startswith(_HEAD) and data.endswith(b"\r\n\r\n") and not data.startswith(_CONTINUE):
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._inner.write(data)

    def close(self) -> None:
        """Write what is held and close."""
        self._flush()
        self._inner.close()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._inner.is_closing()

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._inner.is_closing():
            self._inner.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Counted:
    """A transport that counts what is written to it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.writes = 0

    def write(self, data: bytes) -> None:
        """Write, and count."""
        self.writes += 1
        self._inner.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
