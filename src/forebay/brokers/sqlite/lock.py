"""OwnerLock and the data directory: one process owns a store."""

import fcntl
import os
from pathlib import Path
from typing import Final

from forebay.errors import ConfigError, StoreLockedError

LOCK_NAME: Final = "owner.lock"


class OwnerLock:
    """Held from opening to closing a store. The kernel lets go of it when the process dies, however it dies,
    so a file that was left behind means nothing: only the lock decides.
    """

    def __init__(self, directory: Path) -> None:
        """Take the lock. Raises StoreLockedError with the owner's process id when somebody has it."""
        path = directory / LOCK_NAME
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(f"data directory {directory} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._file, 64, 0).decode("ascii", "replace").split()
            os.close(self._file)
            whose = f"process {owner[0]}" if owner else "another process"
            raise StoreLockedError(
                f"data directory {directory} is owned by {whose}; one process at a time: "
                "end that one, or give a second server another --data"
            ) from None
        os.fchmod(self._file, 0o600)
        self._write(f"{os.getpid()} {started_at(os.getpid())}\n".encode())

    def _write(self, text: bytes) -> None:
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, text, 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only its owner stays unnamed

    def release(self) -> None:
        """Let go. Twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def started_at(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; "0" when that cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def prepare_directory(directory: Path) -> None:
    """Make the data directory (0700) where there is none, and refuse one that everybody can write to.

    Raises ConfigError with one line.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = directory.stat().st_mode
    except FileExistsError:
        raise ConfigError(f"data directory {directory} is a file") from None
    except OSError as error:
        raise ConfigError(f"data directory {directory} cannot be made: {error.strerror}") from None
    if mode & 0o002:
        raise ConfigError(
            f"data directory {directory} can be written by everybody; run chmod o-w on it or choose another"
        )
