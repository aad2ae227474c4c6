"""What a machine gives a queue of frames: a place in its memory, the life of processes."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from forebay.errors import NoMemoryError, UnsupportedError
from forebay.host.cgroups import text_of
from forebay.host.memory import SHARED_MEMORY


class Place(NamedTuple):
    """Memory that processes can share: its descriptor and the kind it is of."""

    fd: int
    kind: str  # memfd, shm or file
    why: str = ""  # what kept it from a better place


def check_system(platform: str = sys.platform) -> None:
    """Raise UnsupportedError, with what to do instead, where the kernel lacks what frames need."""
    if platform != "linux":
        raise UnsupportedError(
            f"FrameQueue needs Linux (pipes that can be peeked at, shared memory by descriptor), and this is"
            f" {platform}: use threads with queue.Queue in one process here"
        )


def open_place(size: int, *, kinds: tuple[str, ...] = ("memfd", "shm", "file")) -> Place:
    """Return `size` bytes of zeroed memory in the first of these places that has them, all of it allocated.

    Raises NoMemoryError that says why each place did not do.
    """
    said: list[str] = []
    for kind in kinds:
        try:
            fd = _OPENERS[kind]()
        except (OSError, AttributeError) as error:
            said.append(f"{kind}: {error}")
            continue
        try:
            os.posix_fallocate(fd, 0, size)  # a clear refusal now in place of SIGBUS later
            if kind == "memfd":  # and nobody can take it away again
                fcntl.fcntl(
                    fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
                )
        except OSError as error:
            os.close(fd)
            said.append(f"{kind}: {error.strerror}")
            continue
        return Place(fd, kind, "; ".join(said))
    raise NoMemoryError(f"no place for {size:,} bytes of frames: {'; '.join(said)}", limit=size)


def _memfd() -> int:
    return os.memfd_create("forebay-frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _unnamed(directory: str) -> int:
    # A file without a name: nothing is left behind by any death.
    return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)


_OPENERS: Final[dict[str, Callable[[], int]]] = {
    "memfd": _memfd,
    "shm": lambda: _unnamed(SHARED_MEMORY),
    "file": lambda: _unnamed(tempfile.gettempdir()),
}


def started_at(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, which tells it from a later one of that number.

    None when there is none, or it has ended and only waits to be reaped. One whose first thread alone ended
    looks the same but for the number of its threads: the others go on.
    """
    fields = text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 20 or (fields[0] in {"Z", "X", "x"} and int(fields[17]) <= 1):
        return None
    return int(fields[19])


def is_hidden(pid: int) -> bool:
    """Return whether there is such a process, of another user, that /proc does not show to us."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
