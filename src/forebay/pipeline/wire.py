"""Wire: values between a pipeline and the process of a replica: a message through a socket, arrays through
shared memory that its sender owns, so that nothing of a killed process is left in anybody's way."""

import contextlib
import mmap
import os
import socket
from typing import Any, Final, NamedTuple

import msgspec

from forebay.errors import ForebayError, InvalidError
from forebay.streams.asked import check_kind, load_numpy
from forebay.streams.machine import open_place

MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024  # of what is no array
ALIGN_BYTES: Final = 64
_ARRAY: Final = 1
_LENGTH: Final = 4


class Placed(NamedTuple):
    """Where an array is in the sender's memory."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class Packed(NamedTuple):
    """A value as a message holds it: its tree, and the arrays that the tree names by number."""

    tree: bytes
    arrays: list[Any]


class GoneError(ForebayError):
    """The other process has ended."""

    code, status, title = "replica_gone", 503, "Replica gone"


class Wire:
    """One end. Whatever was received is valid until the next message is received."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._numpy = load_numpy()
        self._out: mmap.mmap | None = None
        self._out_fd = -1
        self._in: mmap.mmap | None = None

    def pack(self, value: Any) -> Packed:
        """Return a value of JSON values, bytes and arrays. Raises InvalidError that names what is none."""
        arrays: list[Any] = []
        numpy = self._numpy

        def other(found: Any) -> Any:
            if isinstance(found, numpy.ndarray):
                check_kind(found.dtype)
                arrays.append(found)
                return msgspec.msgpack.Ext(_ARRAY, (len(arrays) - 1).to_bytes(4, "little"))
            if isinstance(found, numpy.generic):
                return found.item()
            raise InvalidError(
                f"between processes go JSON values, bytes and arrays, not {type(found).__name__}"
            )

        try:
            return Packed(msgspec.msgpack.encode(value, enc_hook=other), arrays)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidError(f"between processes go JSON values, bytes and arrays: {error}") from None

    def send(self, head: dict[str, Any], parts: list[Packed]) -> None:
        """Send a message. Raises GoneError, NoMemoryError when there is none for the arrays."""
        placed: list[list[Placed]] = []
        size = 0
        for part in parts:
            row: list[Placed] = []
            for array in part.arrays:
                row.append(Placed(size, array.dtype.str, array.shape))
                size += -(-array.nbytes // ALIGN_BYTES) * ALIGN_BYTES
            placed.append(row)
        fds = [self._grow(size)] if size > (0 if self._out is None else len(self._out)) else []
        for part, row in zip(parts, placed, strict=True):
            for array, place in zip(part.arrays, row, strict=True):
                if array.nbytes:
                    view = self._numpy.ndarray(place.shape, place.dtype, self._out, place.offset)
                    self._numpy.copyto(view, array)
        body = msgspec.msgpack.encode([head, [part.tree for part in parts], placed, len(self._out or b"")])
        if len(body) > MESSAGE_BYTES_MAX:
            raise InvalidError(
                f"a message of {len(body):,} bytes beside arrays; {MESSAGE_BYTES_MAX:,} at most"
            )
        message = len(body).to_bytes(_LENGTH, "little") + body
        try:
            sent = socket.send_fds(self._sock, [message], fds)
            if sent < len(message):
                self._sock.sendall(memoryview(message)[sent:])
        except OSError as error:
            raise GoneError(f"the other process has ended: {error}") from None

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[Any]]:
        """Return the head and the parts of the next message. Raises GoneError, TimeoutError."""
        try:
            self._sock.settimeout(timeout_s)
        except OSError as error:  # closed by another thread
            raise GoneError(f"this end is closed: {error}") from None
        fds: list[int] = []
        head, trees, placed, size = msgspec.msgpack.decode(self._message(fds), type=_MESSAGE)
        for fd in fds:
            self._in = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
            os.close(fd)
        return head, [self._value(tree, row) for tree, row in zip(trees, placed, strict=True)]

    def _message(self, fds_found: list[int]) -> bytes:
        try:
            first, fds, _, _ = socket.recv_fds(self._sock, _LENGTH, 1)
            for fd in fds:
                os.set_inheritable(fd, False)
                fds_found.append(fd)
            length = int.from_bytes(first + self._exactly(_LENGTH - len(first)) if first else b"", "little")
            if not first:
                raise GoneError("the other process has ended")
            return self._exactly(length)
        except TimeoutError:
            raise
        except OSError as error:
            raise GoneError(f"the other process has ended: {error}") from None

    def _exactly(self, length: int) -> bytes:
        found = bytearray(length)
        view, got = memoryview(found), 0
        while got < length:
            count = self._sock.recv_into(view[got:])
            if not count:
                raise GoneError("the other process has ended in the middle of a message")
            got += count
        return bytes(found)

    def _value(self, tree: bytes, row: list[Placed]) -> Any:
        def array(_: int, data: memoryview) -> Any:
            place = row[int.from_bytes(data, "little")]
            kind = self._numpy.dtype(place.dtype)
            if 0 in place.shape:
                return self._numpy.empty(place.shape, kind)
            return self._numpy.ndarray(place.shape, kind, self._in, place.offset)

        return msgspec.msgpack.decode(tree, ext_hook=array)

    def _grow(self, size: int) -> int:
        """Make new memory, for the message to carry its descriptor; what the old one holds is not needed."""
        length = -(-max(size, 2 * len(self._out or b"")) // mmap.PAGESIZE) * mmap.PAGESIZE
        place = open_place(length)
        if self._out_fd >= 0:
            os.close(self._out_fd)
        self._out_fd = place.fd
        self._out = mmap.mmap(place.fd, length, flags=mmap.MAP_SHARED)
        return place.fd

    def close(self) -> None:
        """Close this end, and let go of the memory."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # whoever waits in another thread hears of it
        self._sock.close()
        for memory in (self._out, self._in):
            if memory is not None:
                with contextlib.suppress(BufferError):  # an array of it is still looked at
                    memory.close()
        if self._out_fd >= 0:
            os.close(self._out_fd)
            self._out_fd = -1


_MESSAGE = tuple[dict[str, Any], list[bytes], list[list[Placed]], int]
