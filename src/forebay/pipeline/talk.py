"""What travels between a pipeline's process and the server that started it: length-prefixed msgpack."""

from typing import Final

import msgspec

from forebay.node.frames import HEADER

ASKS_MAX: Final = 4_096  # frames of one pipeline that are with tasks at a time
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024  # of one frame, beside its arrays


class _Message(msgspec.Struct, array_like=True, gc=False, tag_field="_"):
    """Base of all messages: an array with the tag first."""


class Ask(_Message, tag="ask"):
    """Have a task serve this frame by `deadline_at`."""

    number: int
    task: str
    payload: bytes
    captured_at: float
    deadline_at: float


class Told(_Message, tag="told"):
    """What became of a frame: `output` is JSON text; without one `reason` is why (core.buffer.Reason), and
    `kind` and `text` are of the error, where there was one."""

    number: int
    output: bytes | None = None
    reason: str = ""
    kind: str = ""
    text: str = ""


class Takes(_Message, tag="takes"):
    """This pipeline takes frames that others send to the server: of these streams, or of any."""

    bytes_max: int
    streams: list[str] | None = None


class Push(_Message, tag="push"):
    """A frame that somebody sent to the server: `header` is JSON, `kind` its media type."""

    number: int
    stream: str
    header: bytes
    pixels: bytes
    kind: str | None = None


class Taken(_Message, tag="taken"):
    """What became of it: `verdict` is JSON, or `code` names the error."""

    number: int
    verdict: bytes = b""
    code: str = ""
    text: str = ""
    retry_after_s: float | None = None


class End(_Message, tag="end"):
    """Close the sources, serve what waits for so long, and end."""

    grace_s: float


Message = Ask | Told | Takes | Push | Taken | End
decode = msgspec.msgpack.Decoder(Message).decode
_encode = msgspec.msgpack.Encoder()


def encoded(message: Message) -> bytearray:
    """Return the message with its length in front."""
    buffer = bytearray(HEADER.size)
    _encode.encode_into(message, buffer, HEADER.size)
    HEADER.pack_into(buffer, 0, len(buffer) - HEADER.size)
    return buffer
