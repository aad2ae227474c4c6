"""named, written: what a task is called in a message broker: different for each task, and readable."""

import hashlib
import re
from typing import Final

NAME_MAX: Final = 180  # characters for a task; a longer name is cut and told apart by its digest
PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def named(prefix: str, task: str) -> str:
    """Return `prefix-task` of letters, digits, `_` and `-`. What else a task's name holds is written `-2e`,
    so that no two are the same and none holds `--`; `prefix` is as PREFIX says."""
    return f"{prefix}-{written(task, '-')}"


def written(task: str, mark: str, also: str = "") -> str:
    """Return a task's name in letters, digits, `_` and what is `also` allowed; each other byte becomes `mark`
    and two hex digits. No two are the same."""
    plain = _PLAIN | frozenset(also.encode())
    name = "".join(chr(byte) if byte in plain else f"{mark}{byte:02x}" for byte in task.encode())
    if len(name) > NAME_MAX:
        name = f"{name[:NAME_MAX]}{mark}x{hashlib.sha256(task.encode()).hexdigest()[:32]}"
    return name
