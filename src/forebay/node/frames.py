"""What travels between a node and its children: length-prefixed msgpack, several items per frame.

A frame is four bytes of length, big endian, then one array whose first element names the message.
Items are known by their tag, a number the node gives out; job ids travel for people and handlers only.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from forebay.core.actions import Outcome
from forebay.core.blobs import BlobTerms
from forebay.core.crons import CronEntry
from forebay.core.task import TaskSpec

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024  # of one message; larger payloads and results go by reference
HEADER: Final = struct.Struct(">I")
# A payload that begins with this, which no JSON text does, is a frame of a stream: msgpack, its arrays in
# memory that its sender shares.
FRAME_MARK: Final = b"\xc1"

# The page a child shares with its node, in words of 8 bytes: the mark, the number of the last run that it has
# taken in, how many results it has sent, and of those that it has not, from KEPT_AT on, how many they are and
# where they end: the upper and the lower half of one word, so that the two are never at odds.
PAGE_BYTES: Final = 64 * 1024
PAGE_MARK, PAGE_ARRIVED, PAGE_SENT, PAGE_KEPT = 0, 1, 2, 3
KEPT_AT: Final = 32
# The mark says what user code runs now. An item that runs alone is its tag + 1.
MARK_NOTHING: Final = 0
MARK_COMPANY: Final = (1 << 64) - 1  # several items together


class FrameError(Exception):
    """The bytes are no frame: too long, or not one of our messages. The connection is worth nothing now."""


class FramePayload(msgspec.Struct, array_like=True, gc=False):
    """A frame on its way to a handler: a tree of JSON values and bytes, with arrays by number. `arrays`: of
    each the offset, dtype and shape in memory that process `pid` holds under descriptor `fd`; `inode` tells
    that memory from another that comes to be there."""

    tree: bytes
    arrays: list[tuple[int, str, list[int]]] = []
    pid: int = 0
    fd: int = 0
    inode: int = 0
    size_b: int = 0


class AppDescription(msgspec.Struct, frozen=True, tag="app"):
    """What an application declares, as a short-lived child read it."""

    app: str  # as it was named: FILE_OR_MODULE[:app]
    tasks: tuple[TaskSpec, ...]
    crons: tuple[CronEntry, ...] = ()
    pipelines: tuple[str, ...] = ()

    def task(self, name: str) -> TaskSpec | None:
        """Return the task with this name."""
        return next((task for task in self.tasks if task.name == name), None)

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the plain functions: one pool serves them all."""
        return tuple(task.name for task in self.tasks if task.kind == "function")


class DescribeFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Why an application cannot be described: one sentence, and the place where there is one."""

    message: str
    where: str = ""  # "invoices.py, line 12"


class RunItem(NamedTuple):
    """One item on its way to a handler."""

    tag: int
    payload: bytes  # JSON text, or a frame
    attempt: int = 1
    job_id: str = ""
    deadline_at: float | None = None
    checkpoint: bytes | None = None  # JSON text that an earlier attempt stored
    tenant: str = ""


# How the handler's call for one item ended. The dispatcher's own record, so nothing is copied.
ItemResult = Outcome


class _Message(msgspec.Struct, array_like=True, gc=False, tag_field="_"):
    """Base of all messages: an array with the tag first."""


# To the child.


class Start(_Message, tag="start"):
    """Import the application and make these tasks ready. No tasks: all plain functions."""

    app: str
    tasks: tuple[str, ...]
    device: str = "cpu"
    slot: int | None = None  # number of the GPU on the machine
    result_bytes_max: int = 256 * 1024
    blobs: BlobTerms | None = None


class Run(_Message, tag="run"):
    """Run these: one batched call, or `singles`: one call each, in order. `level`: by that variant of the
    task, 0 is the task itself."""

    run: int
    task: str
    items: list[RunItem]
    singles: bool = False
    level: int = 0


class Cancel(_Message, tag="cancel"):
    """Somebody wants this item stopped: unstarted it comes back, running its Context says so."""

    tag: int


class GiveBack(_Message, tag="give_back"):
    """Return everything that has not started."""


class Stop(_Message, tag="stop"):
    """Return what has not started, finish what has, end."""


class ToldBreaker(_Message, tag="told_breaker"):
    """A shared breaker stands so in another process: open for `wait_s`, or closed."""

    name: str
    state: str
    wait_s: float
    reason: str


class Ping(_Message, tag="ping"):
    """Answer with the same number."""

    number: int


# To the node.


class Ready(_Message, tag="ready"):
    """Loaded and warm."""

    import_s: float
    load_s: float


class LoadFailed(_Message, tag="load_failed"):
    """The child cannot serve; it ends now."""

    code: str  # "import_failed" or "load_failed"
    message: str
    type: str = ""
    where: str = ""


class Results(_Message, tag="results"):
    """Finished items, grouped. `busy_s` is the time spent on items since the last group, 0 when several
    ran at once."""

    items: list[ItemResult]
    busy_s: float = 0.0


class Pass(_Message, tag="pass"):
    """A further call begins for `size` items of a batch that failed as a whole: its own time counts."""

    run: int
    size: int


class Progress(_Message, tag="progress"):
    """Newest reports: (tag, share, message)."""

    items: list[tuple[int, float, str]]


class Checkpoints(_Message, tag="checkpoints"):
    """Newest checkpoints: (tag, JSON text)."""

    items: list[tuple[int, bytes]]


class Parts(_Message, tag="parts"):
    """Parts of outputs as they come: (tag, number of the part from 0, JSON text). An empty text is a part
    too large to travel alone."""

    items: list[tuple[int, int, bytes]]


class BreakerReport(NamedTuple):
    """Where a named breaker stands since it changed, or since a further task used it."""

    name: str
    state: str
    trips: int  # so far
    wait_s: float  # until it lets a probe through
    reason: str
    tasks: tuple[str, ...] = ()  # whose calls it guarded so far
    shared: bool = False
    told: bool = False  # it stands so because we told


class Breakers(_Message, tag="breakers"):
    """Named breakers that changed."""

    items: list[BreakerReport]


class Returned(_Message, tag="returned"):
    """Never started and never will be: these tags are the node's again."""

    tags: list[int]


class Pong(_Message, tag="pong"):
    """The child's reader is alive."""

    number: int


ToChild = Start | Run | Cancel | GiveBack | Stop | ToldBreaker | Ping
ToNode = Ready | LoadFailed | Results | Pass | Progress | Checkpoints | Parts | Breakers | Returned | Pong

_encoder = msgspec.msgpack.Encoder()
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_to_node = msgspec.msgpack.Decoder(ToNode).decode
encode_result = _encoder.encode
decode_results = msgspec.msgpack.Decoder(list[ItemResult]).decode


def encode_frame(message: ToChild | ToNode) -> bytearray:
    """Return the message with its length in front.

    Raises FrameError when it is longer than FRAME_BYTES_MAX.
    """
    buffer = bytearray(4)
    _encoder.encode_into(message, buffer, 4)
    size = len(buffer) - 4
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"a message of {size:,} bytes is above {FRAME_BYTES_MAX:,} (FRAME_BYTES_MAX)")
    HEADER.pack_into(buffer, 0, size)
    return buffer


class Splitter:
    """Cuts a byte stream into frames. Holds at most one unfinished frame."""

    __slots__ = ("_buffer", "_wanted")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = 4  # bytes needed before anything can be cut

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Return the bodies of the frames that are complete now. Raises FrameError for a wrong length."""
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return iter(())
        return iter(self._cut())

    def _cut(self) -> list[bytes]:
        frames: list[bytes] = []
        buffer, at = self._buffer, 0
        end = len(buffer)
        while True:
            self._wanted = 4
            if end - at < 4:
                break
            (size,) = HEADER.unpack_from(buffer, at)
            if size > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {size:,} bytes is above {FRAME_BYTES_MAX:,} (FRAME_BYTES_MAX)")
            if end - at < 4 + size:
                self._wanted = 4 + size
                break
            frames.append(bytes(memoryview(buffer)[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            del buffer[:at]
        return frames
