"""Place: whether the file that this process writes is still the one at its path.

A file that was deleted or moved takes writes and syncs as before, and nobody will ever read them again.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from forebay.errors import ForebayError, StoreUnavailableError

RETRY_S: Final = 5.0


class Place:
    """Remembers which file was opened. A look costs two system calls of about a microsecond."""

    def __init__(self, path: Path, *, on_gone: Callable[[ForebayError], None] | None = None) -> None:
        files = (str(path), f"{path}-wal")
        self._shown = path
        self._on_gone = on_gone
        self._opened = [(file, was) for file in files if (was := _identity(file)) is not None]

    def problem(self) -> StoreUnavailableError | None:
        """Return why nothing new may be accepted: what would be written could not be found again.

        What is held already goes on: it can still be finished and read. None as soon as the same files are
        back. Tells `on_gone` each time.
        """
        if all(_identity(file) == was for file, was in self._opened):
            return None
        error = StoreUnavailableError(
            f"{self._shown} was deleted, moved or replaced while it was in use: put it back, or start again",
            retry_after_s=RETRY_S,
        )
        if self._on_gone is not None:
            self._on_gone(error)
        return error


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
