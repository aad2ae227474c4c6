"""BlobCache: files fetched from elsewhere, shared by the processes of one machine, bounded in bytes.

Whoever uses a file holds a shared lock on it, so that making room never takes a file away under a reader.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from forebay.errors import BlobCorruptError, StoreFullError, StoreUnavailableError

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Cached:
    """A file in use. It may be gone from the cache when this is closed or forgotten."""

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self._handle = handle

    def close(self) -> None:
        """Let it go."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()


class BlobCache:
    """The files of one directory. Nothing in it is needed: it can be removed whenever nobody runs."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._count = 0

    def get(
        self, name: str | None, pieces: Callable[[], Iterator[bytes]], *, sha256: str | None = None
    ) -> Cached:
        """Return a file with these bytes: the one of this name when it is there, else a new one. Without a
        name it is for this one use. With a digest the bytes are held to it.

        Raises BlobCorruptError, StoreFullError, StoreUnavailableError, and what `pieces` raises.
        """
        found = None if name is None else self._open(name)
        return found or self._fetch(name, pieces, sha256)

    def _open(self, name: str) -> Cached | None:
        path = os.path.join(self._directory, name)
        try:
            handle = os.open(path, _FLAGS)
        except OSError:
            return None
        fcntl.flock(handle, fcntl.LOCK_SH)
        if os.fstat(handle).st_nlink == 0:  # removed before we had the lock
            os.close(handle)
            return None
        try:
            os.utime(handle)
        except OSError:
            pass
        return Cached(path, handle)

    def _fetch(self, name: str | None, pieces: Callable[[], Iterator[bytes]], sha256: str | None) -> Cached:
        self._count += 1
        partial = os.path.join(self._directory, f"{os.getpid()}-{self._count}.partial")
        digest, size = hashlib.sha256(), 0
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            handle = os.open(
                partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise StoreUnavailableError(f"{self._directory}: {error.strerror}") from None
        cached = Cached(partial, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            for part in pieces():
                self._make_room(size + len(part))
                _write(handle, part)
                digest.update(part)
                size += len(part)
            if sha256 is not None and digest.hexdigest() != sha256:
                raise BlobCorruptError("the bytes of a blob are not those that were stored")
            if name is not None:
                cached.path = os.path.join(self._directory, name)
                os.rename(partial, cached.path)
        except OSError as error:
            _unlink(partial)
            raise StoreFullError(f"{self._directory}: {error.strerror}", retry_after_s=5.0) from None
        except BaseException:
            _unlink(partial)
            raise
        return cached

    def _make_room(self, size: int) -> None:
        """Remove what was not used for longest until `size` bytes fit beside the rest."""
        if size > self._bytes_max:
            raise StoreFullError(f"larger than {self._bytes_max} bytes (blob_cache_bytes_max)")
        entries: list[tuple[float, int, str]] = []
        with os.scandir(self._directory) as found:
            for entry in found:
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entries.append((about.st_mtime, about.st_size, entry.path))
        held = sum(one for _, one, _ in entries)
        for _, one, path in sorted(entries):
            if held <= self._bytes_max:
                return
            if _remove_unused(path):
                held -= one
        if held > self._bytes_max:
            raise StoreFullError(
                f"{self._directory} is full of blobs in use (blob_cache_bytes_max)", retry_after_s=5.0
            )


def _remove_unused(path: str) -> bool:
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
