"""Pixels: frames of streams as their sender shares them: arrays in its memory, mapped here, not copied."""

# Values of user code have no types here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import mmap
import os
from typing import Any, Final

import msgspec

from forebay.node.frames import FRAME_MARK, FramePayload

MAPPED_MAX: Final = 64  # memories of senders at a time; those used longest ago are let go
_decode = msgspec.msgpack.Decoder(FramePayload).decode


class FrameReader:
    """Opens frames. What it returns views the sender's memory, which is used again after the answer."""

    def __init__(self) -> None:
        self._mapped: dict[tuple[int, int], mmap.mmap] = {}  # by process and inode

    def value(self, payload: bytes) -> Any:
        """Return a frame. Raises ValueError when its sender has gone, ImportError if there is no numpy."""
        frame = _decode(memoryview(payload)[len(FRAME_MARK) :])
        if not frame.arrays:
            return msgspec.msgpack.decode(frame.tree)
        import numpy

        memory = self._memory(frame)

        def array(_: int, data: memoryview) -> Any:
            offset, kind, shape = frame.arrays[int.from_bytes(data, "little")]
            if 0 in shape:
                return numpy.empty(shape, kind)
            return numpy.ndarray(shape, kind, memory, offset)

        return msgspec.msgpack.decode(frame.tree, ext_hook=array)

    def _memory(self, frame: FramePayload) -> mmap.mmap:
        key = (frame.pid, frame.inode)
        found = self._mapped.pop(key, None)
        if found is None:
            found = _map(frame)
            while len(self._mapped) >= MAPPED_MAX:  # unmapped when the last view of it is gone
                del self._mapped[next(iter(self._mapped))]
        self._mapped[key] = found
        return found


def _map(frame: FramePayload) -> mmap.mmap:
    try:
        fd = os.open(f"/proc/{frame.pid}/fd/{frame.fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"the frame's sender has gone ({error.strerror})") from None
    try:
        found = os.fstat(fd)
        if found.st_ino != frame.inode or found.st_size < frame.size_b:
            raise ValueError("the frame's sender has gone, and another process has its number")
        return mmap.mmap(fd, found.st_size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
