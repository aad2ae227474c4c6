"""LocalBlobs: blobs as files of one directory, for one machine; the standard library only.

`data/<tag>/<id>` holds the bytes and `<id>.json` beside it what is known of them. The second is renamed into
place last: without it there is no blob. Every name is opened below a directory handle, never through a link.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

from forebay.core.blobs import BlobInfo, is_id
from forebay.errors import ConfigError, NotFoundError, StoreFullError, StoreUnavailableError

ABOUT: Final = ".json"
UNFINISHED: Final = "unfinished"  # directory of what is being written
ABOUT_BYTES_MAX: Final = 4096
_TAG: Final = 12  # first characters of an id: its tenant's directory
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class LocalBlobs:
    """A ports.blobs.BlobStore on one directory, which is made when it is not there. `reserve_b` bytes of the
    disk are left free: past them nothing new is begun or goes on.

    Raises ConfigError for a directory that cannot be used.
    """

    def __init__(self, directory: str, *, reserve_b: int = 0) -> None:
        self.directory = os.path.abspath(directory)
        self._reserve_b = reserve_b
        try:
            for path in (self.directory, os.path.join(self.directory, UNFINISHED)):
                os.makedirs(path, mode=0o700, exist_ok=True)
            self._root = os.open(self.directory, _DIRECTORY)
            self._unfinished = os.open(UNFINISHED, _DIRECTORY, dir_fd=self._root)
        except OSError as error:
            raise ConfigError(f"blobs: {self.directory}: {_why(error)}") from None
        if os.fstat(self._root).st_mode & stat.S_IWOTH:
            raise ConfigError(
                f"blobs: {self.directory} may be written by everybody; take that away (chmod o-w)"
            )

    def begin(self, blob_id: str, media_type: str) -> "LocalWriter":
        """Return a writer of a new blob. Raises StoreFullError or StoreUnavailableError."""
        assert is_id(blob_id)
        self.check_room(0)
        return LocalWriter(self, blob_id, media_type)

    def check_room(self, size: int) -> None:
        """Raise StoreFullError when `size` more bytes would leave less than the reserve free."""
        space = os.fstatvfs(self._root)
        if space.f_bavail * space.f_frsize - size < self._reserve_b:
            raise StoreFullError(
                f"the disk of {self.directory} is full: {self._reserve_b} bytes stay free "
                "for jobs and results (blob_disk_reserve)",
                retry_after_s=5.0,
            )

    def head(self, blob_id: str) -> BlobInfo | None:
        """Return what is known of a blob, None when there is none."""
        try:
            with os.fdopen(self._open(blob_id, ABOUT), "rb") as file:
                about: dict[str, Any] = json.loads(file.read(ABOUT_BYTES_MAX))
            return BlobInfo(blob_id, int(about["size"]), str(about["sha256"]), str(about["media_type"]))
        except NotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise StoreUnavailableError(f"what is known of blob {blob_id} cannot be read") from None

    def read(self, blob_id: str, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start`. Raises NotFoundError."""
        handle = self._open(blob_id)
        try:
            return os.pread(handle, size, start)
        except OSError as error:
            raise _failed(error, self.directory) from None
        finally:
            os.close(handle)

    def link(self, blob_id: str, ttl_s: float) -> str | None:
        """Return None: nobody but the server answers for a directory."""
        return None

    def path(self, blob_id: str) -> str | None:
        """Return the path of its file; None when there is none, or something that is not a plain file."""
        try:
            handle = self._open(blob_id)
        except NotFoundError:
            return None
        os.close(handle)
        return os.path.join(self.directory, blob_id[:_TAG], blob_id)

    def delete(self, blob_id: str) -> bool:
        """Forget a blob; False when there was none."""
        there = False
        try:
            tag = self._tag(blob_id)
        except NotFoundError:
            return False
        try:
            for end in (ABOUT, ""):  # first what makes it a blob
                try:
                    os.unlink(blob_id + end, dir_fd=tag)
                    there = True
                except FileNotFoundError:
                    pass
        except OSError as error:
            raise _failed(error, self.directory) from None
        finally:
            os.close(tag)
        return there

    def ids(self) -> Iterator[str]:
        """Yield the id of every blob, also of what is half gone."""
        for tag in os.listdir(self._root):
            if len(tag) != _TAG:
                continue
            try:
                handle = os.open(tag, _DIRECTORY, dir_fd=self._root)
            except OSError:
                continue
            try:
                with os.scandir(handle) as entries:
                    for entry in entries:
                        # The bytes stay longest, so their name stands for both.
                        if is_id(entry.name):
                            yield entry.name
            finally:
                os.close(handle)

    def clear_unfinished(self, before: float) -> int:
        """Remove what writers left behind and last wrote before `before`."""
        count = 0
        for name in os.listdir(self._unfinished):
            try:
                if os.lstat(name, dir_fd=self._unfinished).st_mtime < before:
                    os.unlink(name, dir_fd=self._unfinished)
                    count += 1
            except FileNotFoundError:
                pass
            except OSError as error:
                raise _failed(error, self.directory) from None
        return count

    def place(self, blob_id: str) -> None:
        """Make the two files that were written in `unfinished` the blob."""
        tag = blob_id[:_TAG]
        made = False
        try:
            os.mkdir(tag, 0o700, dir_fd=self._root)
            made = True
        except FileExistsError:
            pass
        handle = os.open(tag, _DIRECTORY, dir_fd=self._root)
        try:
            for end in ("", ABOUT):
                os.rename(blob_id + end, blob_id + end, src_dir_fd=self._unfinished, dst_dir_fd=handle)
            os.fsync(handle)
            if made:
                os.fsync(self._root)
        finally:
            os.close(handle)

    def create(self, name: str) -> int:
        """Return the handle of a new file in `unfinished`."""
        return os.open(name, _NEW, 0o600, dir_fd=self._unfinished)

    def forget(self, name: str) -> None:
        """Remove a file of `unfinished`, if it is there."""
        try:
            os.unlink(name, dir_fd=self._unfinished)
        except FileNotFoundError:
            pass

    def _tag(self, blob_id: str) -> int:
        """Return a handle of the directory a blob is in."""
        if not is_id(blob_id):
            raise NotFoundError("no blob has this id")
        return _open_below(self._root, blob_id[:_TAG], _DIRECTORY)

    def _open(self, blob_id: str, end: str = "") -> int:
        tag = self._tag(blob_id)
        try:
            handle = _open_below(tag, blob_id + end, _READ)
        finally:
            os.close(tag)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotFoundError("no blob has this id")
        return handle


class LocalWriter:
    """A ports.blobs.BlobWriter: a file in `unfinished` until it is whole."""

    CHECK_EVERY_B: Final = 16 * 1024 * 1024  # between two looks at the room left

    def __init__(self, store: LocalBlobs, blob_id: str, media_type: str) -> None:
        self._store = store
        self._id = blob_id
        self._media_type = media_type
        self._digest = hashlib.sha256()
        self._size = 0
        self._check_at = self.CHECK_EVERY_B
        try:
            self._handle = store.create(blob_id)
        except OSError as error:
            raise _failed(error, store.directory) from None

    def write(self, data: bytes) -> None:
        """Add bytes. Raises StoreFullError or StoreUnavailableError."""
        if self._size + len(data) > self._check_at:
            self._store.check_room(len(data))
            self._check_at += self.CHECK_EVERY_B
        try:
            _write(self._handle, data)
        except OSError as error:
            raise _failed(error, self._store.directory) from None
        self._digest.update(data)
        self._size += len(data)

    def commit(self) -> BlobInfo:
        """Make it whole and durable."""
        info = BlobInfo(self._id, self._size, self._digest.hexdigest(), self._media_type)
        about = {"size": info.size, "sha256": info.sha256, "media_type": info.media_type}
        try:
            os.fsync(self._handle)
            handle = self._store.create(self._id + ABOUT)
            try:
                _write(handle, json.dumps(about).encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            self._store.place(self._id)
        except OSError as error:
            raise _failed(error, self._store.directory) from None
        self._close()
        return info

    def abort(self) -> None:
        """Forget it; nothing of it stays."""
        if self._handle >= 0:
            self._close()
            self._store.forget(self._id)
            self._store.forget(self._id + ABOUT)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def _open_below(directory: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in _ABSENT:  # a link that somebody planted is nothing either
            raise NotFoundError("no blob has this id") from None
        raise _failed(error, "blobs") from None


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _failed(error: OSError, directory: str) -> StoreUnavailableError:
    if error.errno in _FULL:
        return StoreFullError(f"the disk of {directory} is full", retry_after_s=5.0)
    return StoreUnavailableError(f"{directory}: {_why(error)}", retry_after_s=1.0)


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
