"""Answers of an upstream as they come: JSON whole, or events and lines one by one, within a bound."""

import json
from typing import Final, cast

import msgspec

PART_BYTES_MAX: Final = 64 * 1024  # a larger part is in the result alone, and does not travel before it
PARTS_MAX: Final = 100_000

_check = msgspec.json.Decoder(msgspec.Raw).decode


class UnreadableError(Exception):
    """What came cannot be a result."""


class TooLongError(Exception):
    """More came than may be kept."""


class Whole:
    """An answer in one piece: JSON as it is, any text as a JSON string."""

    def __init__(self, media_type: str, bytes_max: int) -> None:
        self._as_text = media_type.startswith("text/")
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; there are no parts. Raises TooLongError."""
        self._size += len(data)
        if self._size > self._bytes_max:
            raise TooLongError
        self._pieces.append(data)
        return []

    def end(self) -> tuple[list[bytes], bytes]:
        """Return no parts and the result as JSON text. Raises UnreadableError."""
        text = b"".join(self._pieces)
        if self._as_text:
            return [], as_json(text)
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableError(f"it is not JSON: {error}") from None
        return [], text


class Stream:
    """An answer in parts: server-sent events, or JSON lines. The result is the list of them."""

    def __init__(self, *, events: bool, bytes_max: int) -> None:
        self._events = events
        self._bytes_max = bytes_max
        self._size = 0
        self._line = bytearray()
        self._data: list[bytes] = []  # of the event that is being read
        self._parts: list[bytes] = []
        self._kept = 2  # bytes of the result
        self._skip_newline = False
        self.ended = False  # by a word of its own, before the connection is
        self.problem = ""  # what an event said went wrong, in an answer that began well

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the parts that are complete, as JSON texts. Raises TooLongError."""
        self._size += len(data)
        if self._size > 4 * self._bytes_max:  # comments and names of events too
            raise TooLongError
        found: list[bytes] = []
        for line in self._lines(data):
            self._take(line, found)
        return found

    def end(self) -> tuple[list[bytes], bytes]:
        """Return the parts that the end completes and the result. An event that was cut off is left out, as
        the rules of event streams have it; a last line needs no line break."""
        found: list[bytes] = []
        if not self._events and self._line:
            self._take(bytes(self._line), found)
        return found, b"[" + b",".join(self._parts) + b"]"

    def _lines(self, data: bytes) -> list[bytes]:
        if self._skip_newline and data[:1] == b"\n":
            data = data[1:]
        self._skip_newline = data[-1:] == b"\r"
        self._line += data
        if b"\n" not in data and b"\r" not in data:
            if len(self._line) > self._bytes_max:
                raise TooLongError
            return []
        *lines, rest = bytes(self._line).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest)
        return lines

    def _take(self, line: bytes, found: list[bytes]) -> None:
        if self.ended:
            return
        if not self._events:
            if line.strip():
                self._add(line.strip(), found)
        elif not line:
            if self._data:
                self._add(b"\n".join(self._data), found)
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])

    def _add(self, text: bytes, found: list[bytes]) -> None:
        if self._events and text.strip() == b"[DONE]":
            self.ended = True
            return
        part = as_json(text)
        if part.startswith(b'{"error"'):
            self.problem = words_of(part)
        self._kept += len(part) + bool(self._parts)
        if self._kept > self._bytes_max or len(self._parts) >= PARTS_MAX:
            raise TooLongError
        self._parts.append(part)
        found.append(part)


def reader_for(media_type: str, bytes_max: int) -> Whole | Stream:
    """Return what reads an answer of this media type."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return Stream(events=True, bytes_max=bytes_max)
    if kind in {"application/x-ndjson", "application/jsonl", "application/json-lines", "application/ndjson"}:
        return Stream(events=False, bytes_max=bytes_max)
    return Whole(kind, bytes_max)


def as_json(text: bytes) -> bytes:
    """Return JSON text: what it is already, else a string of it."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False).encode()
    return bytes(text)


def words_of(body: bytes) -> str:
    """Return what an error's body says: the message where it is JSON of a known shape, else its text."""
    text = body.decode("utf-8", "replace")
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for _ in range(3):  # {"error": {"message": "..."}}, {"detail": "..."}, {"error": "..."}
        if not isinstance(found, dict):
            break
        members = cast("dict[str, object]", found)
        found = next((members[key] for key in ("error", "message", "detail") if members.get(key)), text)
    return found if isinstance(found, str) else text
