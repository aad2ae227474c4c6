"""What stands in messages: bodies as text that SQS takes, and groups of entries within its limits."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from forebay.ports.transport import BODY_MAX

ENTRIES_MAX: Final = 10  # of one call
BATCH_B_MAX: Final = (
    256 * 1024
)  # of the bodies of one call; the service takes 1 MiB since 2025, older ones this
MARK: Final = "b64:"  # before bodies that are no plain text
MESSAGE_B_MAX: Final = 4 * 1024  # what our queues take: no room for what is not a hint
_PLAIN: Final = frozenset(range(0x20, 0x7F))  # the service takes what XML may hold; people read these


def text_of(body: bytes) -> str:
    """Return a body as text: as it is when that is plain, else by base64. No two bodies share a text."""
    if _PLAIN.issuperset(body) and body and not body.startswith(MARK.encode()):
        return body.decode("ascii")
    return MARK + base64.b64encode(body).decode("ascii")


def body_of(text: str) -> bytes:
    """Return the body that a text stands for. What nobody of us wrote is returned as it is, cut behind
    BODY_MAX: the reader of hints refuses it."""
    if text.startswith(MARK):
        try:
            return base64.b64decode(text[len(MARK) :], validate=True)[: BODY_MAX + 1]
        except (binascii.Error, ValueError):
            pass
    return text[: BODY_MAX + 1].encode("utf-8", "replace")[: BODY_MAX + 1]


def groups(texts: Iterable[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the entries of calls that send these texts."""
    entries: list[dict[str, Any]] = []
    size = 0
    for text in texts:
        b = len(text.encode())
        if entries and (len(entries) == ENTRIES_MAX or size + b > BATCH_B_MAX):
            yield entries
            entries, size = [], 0
        entries.append({"Id": str(len(entries)), "MessageBody": text})
        size += b
    if entries:
        yield entries


def tens(items: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the entries of calls about messages that are held."""
    for start in range(0, len(items), ENTRIES_MAX):
        part = items[start : start + ENTRIES_MAX]
        yield [{"Id": str(number), **item} for number, item in enumerate(part)]
