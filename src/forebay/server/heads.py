"""Heads of requests as they came, and the head of the answer to one that cannot be read."""

import re
from collections.abc import Sequence

from forebay.errors import ForebayError
from forebay.server.limits import HEADERS_BYTES_MAX
from forebay.server.problems import HeadersTooLargeError, problem_body, problem_headers

_AUTHORITY = re.compile(rb"(?i)https?://([^/?#]*)")
_UPGRADE = re.compile(rb"(?i)(?<=\r\nu)p(?=grade[ \t]*:)")


def without_upgrade(data: bytes) -> bytes:
    """Return the bytes with the Upgrade header of the head made another: no protocol is changed here, and
    a request that offers to may be answered as any other. The parser would leave its body unread."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"x", head) + end + rest


def too_large() -> HeadersTooLargeError:
    """Return the refusal of a head, or of trailers, above the limit."""
    return HeadersTooLargeError(f"more than {HEADERS_BYTES_MAX} bytes of headers", limit=HEADERS_BYTES_MAX)


def names_its_host(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Say whether the Host header names the host that the address does, if any: the address would win."""
    found = _AUTHORITY.match(url)
    if found is None:
        return True
    return (b"host", found[1].lower()) in ((name, value.lower()) for name, value in headers)


def last_words(error: ForebayError) -> bytes:
    """Return the whole answer to what is no proper request, which ends its connection."""
    body = problem_body(error)
    lines = [b"HTTP/1.1 %d %s" % (error.status, error.title.encode())]
    lines += [name + b": " + value for name, value in problem_headers(error, body)]
    return b"\r\n".join((*lines, b"connection: close", b"", body))
