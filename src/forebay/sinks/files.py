"""Files: results as lines of JSON or as envelopes, written whole or not at all."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.core.envelope import unpack
from forebay.errors import InvalidError, StoreFullError
from forebay.sinks.shape import envelope_of, is_pixels, line_of
from forebay.sources.asked import size_bytes
from forebay.streams.ports import Result

LENGTH_BYTES: Final = 8
PIECE_BYTES: Final = 65_536
FORMS: Final = ("ndjson", "raw")


class File:
    """What `file` returns. A result that cannot be written whole leaves the file as it was."""

    def __init__(self, path: str, form: str, bytes_max: int | None) -> None:
        self._form = form
        self._bytes_max = bytes_max
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidError(f"path {path}: {error.strerror}") from None
        # Who died while writing left a part of a result: it is cut off, so that the next begins in its place.
        self._size = _whole_bytes(self._fd, form)
        os.ftruncate(self._fd, self._size)
        os.lseek(self._fd, self._size, os.SEEK_SET)
        self._is_open = True
        self._counts = {"written": 0, "bytes": 0, "failed": 0}

    def write(self, result: Result) -> None:
        """Append one result. Raises StoreFullError where it does not fit, InvalidError for no JSON."""
        try:
            data = self._data(result)
            if self._bytes_max is not None and self._size + len(data) > self._bytes_max:
                raise StoreFullError(f"{self._path} may have {self._bytes_max} bytes", limit=self._bytes_max)
            self._append(data)
        except Exception:
            self._counts["failed"] += 1
            raise
        self._size += len(data)
        self._counts["written"] += 1
        self._counts["bytes"] += len(data)

    def _data(self, result: Result) -> bytes:
        if self._form == "ndjson":
            return line_of(result).encode() + b"\n"
        more: dict[str, Any] = {}
        if not is_pixels(result.value):
            result = result._replace(value=line_of(result).encode())
            more = {"json": True}
        data = envelope_of(result, more)
        return len(data).to_bytes(LENGTH_BYTES, "big") + data

    def _append(self, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            # What was written of it is taken back, so that the next one begins where a reader looks for it.
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise StoreFullError(f"{self._path}: {error.strerror}") from None

    def counts(self) -> Mapping[str, int]:
        """Return `written`, `bytes` and `failed`."""
        return dict(self._counts)

    def close(self) -> None:
        """Have the disk hold it, and end."""
        if self._is_open:
            self._is_open = False
            try:
                os.fsync(self._fd)
            finally:
                os.close(self._fd)


def _whole_bytes(fd: int, form: str) -> int:
    """Return how many bytes of a file are whole results."""
    size = os.fstat(fd).st_size
    at = 0
    if form == "raw":
        while at + LENGTH_BYTES <= size:
            end = at + LENGTH_BYTES + int.from_bytes(os.pread(fd, LENGTH_BYTES, at), "big")
            if end > size:
                break
            at = end
        return at
    at = size
    while at:
        begin = max(0, at - PIECE_BYTES)
        newline = os.pread(fd, at - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        at = begin
    return 0


def read_raw(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Return (header, value) of each result in a `raw` file: an array, bytes, or what was JSON.

    A part of a result at the end is left out. Raises InvalidError for what is no such file.
    """
    with open(path, "rb") as opened:
        while len(length := opened.read(LENGTH_BYTES)) == LENGTH_BYTES:
            size = int.from_bytes(length, "big")
            if size > os.fstat(opened.fileno()).st_size:
                return
            data = opened.read(size)
            if len(data) < size:
                return
            header, pixels = unpack(data)
            yield header, _value(header, pixels)


def _value(header: dict[str, Any], pixels: memoryview) -> Any:
    if header.pop("json", False):
        return json.loads(bytes(pixels))["value"]
    if "shape" not in header:
        return bytes(pixels)
    import numpy

    shape, kind = header.pop("shape"), header.pop("dtype")
    return numpy.frombuffer(pixels, kind).reshape(shape)


def file(path: str | os.PathLike[str], *, form: str = "ndjson", bytes_max: str | int | None = None) -> File:
    """Return a sink that appends to a file: `ndjson`, a line of JSON each, or `raw`, for arrays and bytes:
    eight bytes of length, big end first, then an envelope, which `read_raw` reads.

    `bytes_max`: of the file; what would pass it is not written. Raises InvalidError where it cannot be open.
    """
    if form not in FORMS:
        raise InvalidError(f"form must be one of {', '.join(FORMS)}, not {form!r:.40}")
    return File(os.fspath(path), form, None if bytes_max is None else size_bytes("bytes_max", bytes_max))
