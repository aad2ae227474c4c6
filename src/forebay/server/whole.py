"""Shortcuts through uvicorn for a request that is here in full and an answer that leaves in one piece.

ASGI takes two messages for the shortest answer, and a coroutine for each of its layers. Nothing else is
different: what goes over the wire, and what is checked of it, is the same.
"""

from collections.abc import Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

CLOSE: Final = (b"connection", b"close")


def cycle_of(verb: Any) -> RequestResponseCycle | None:
    """Return what `receive` or `send` of an application belongs to; None under another server."""
    owner = getattr(verb, "__self__", None)
    return owner if isinstance(owner, RequestResponseCycle) else None


def is_here(receive: Any) -> bool:
    """Say whether the rest of the body can be received without waiting for anything."""
    cycle = cycle_of(receive)
    return cycle is not None and not cycle.more_body and cycle.message_event.is_set()


def write_answer(
    cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Write a whole answer; False, and nothing is written, where the long way must be taken.

    `headers` are in lower case, tell the length of the body, and end the connection or say nothing of it.
    Raises RuntimeError for a header that would break the answer apart.
    """
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    if cycle.scope["method"] == "HEAD":
        return False
    names, values = zip(*headers, strict=True)
    if HEADER_RE.search(b"".join(names)) or HEADER_VALUE_RE.search(b"".join(values)):
        raise RuntimeError("a header has a name or a value that cannot be")
    fields = [*cycle.default_headers, *headers]
    if CLOSE in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        fields.append(CLOSE)
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    head = b"\r\n".join(map(b": ".join, fields))
    cycle.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], head, body))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True
