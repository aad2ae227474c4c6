"""Place: whether the file that this process writes is still the one at its path, and has room to grow.

A file that was deleted or moved takes writes and syncs as before, and nobody will ever read them again.
A disk that a backlog has filled to the last page has none for the results that would empty it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from forebay.errors import ForebayError, StoreFullError, StoreUnavailableError

RETRY_S: Final = 5.0
RESERVE_SHARE: Final = 0.2  # of the disk, that new work leaves to the ends of what was accepted
RESERVE_MAX_B: Final = 64 * 1024 * 1024  # of a larger disk no more than this


class Place:
    """Remembers which file was opened. A look costs three system calls of about a microsecond.

    `spare_b` says how many bytes of the file are free, so that it need not grow for new rows; it is asked
    where the disk has little room.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_gone: Callable[[ForebayError], None] | None = None,
        spare_b: Callable[[], int] = lambda: 0,
    ) -> None:
        files = (str(path), f"{path}-wal")
        self._shown = path
        self._on_gone = on_gone
        self._spare_b = spare_b
        self._opened = [(file, was) for file in files if (was := _identity(file)) is not None]

    def problem(self) -> StoreUnavailableError | None:
        """Return why nothing new may be accepted: what would be written could not be found again.

        What is held already goes on: it can still be finished and read. None as soon as the same files are
        back. Tells `on_gone` each time.
        """
        if all(_identity(file) == was for file, was in self._opened):
            return self._low()
        error = StoreUnavailableError(
            f"{self._shown} was deleted, moved or replaced while it was in use: put it back, or start again",
            retry_after_s=RETRY_S,
        )
        if self._on_gone is not None:
            self._on_gone(error)
        return error

    def _low(self) -> StoreFullError | None:
        """Return why new work may not take what room is left."""
        try:
            disk = os.statvfs(self._shown)
        except OSError:
            return None
        free_b = disk.f_bavail * disk.f_frsize
        reserve_b = min(RESERVE_MAX_B, RESERVE_SHARE * disk.f_blocks * disk.f_frsize)
        if free_b >= reserve_b or free_b + self._spare_b() >= 2 * reserve_b:
            return None
        return StoreFullError(
            f"the disk of {self._shown} has {free_b / 1e6:.0f} MB left: no new work takes the last"
            f" {reserve_b / 1e6:.0f} MB, which the results of what was accepted need",
            retry_after_s=RETRY_S,
        )


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
