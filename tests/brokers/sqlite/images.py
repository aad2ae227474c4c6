"""What a disk may hold after the power went: a recorded history of writes, and images made out of it.

The recorder sees each write, cut and sync of SQLite's files. An image is the state after any prefix of that
history: what was synced before is there, each later write is there, or not, or cut at a sector, or swapped
with another one's place in the order. A file that was deleted may come back until its directory is synced.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512


@dataclass
class History:
    """Everything that was done to the files, in order: (what, file name, ...)."""

    steps: list[tuple[Any, ...]] = field(default_factory=list)
    armed: bool = True

    def add(self, *step: Any) -> None:
        if self.armed:
            self.steps.append(step)


def recorder(name: str, history: History) -> apsw.VFS:
    """Register a VFS that records; keep what is returned for as long as it is used."""

    class File(apsw.VFSFile):
        def __init__(self, filename: Any, flags: Any) -> None:
            super().__init__("", filename, flags)
            full = filename.filename() if hasattr(filename, "filename") else filename
            self.short = Path(full).name

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            history.add("write", self.short, offset, bytes(data))
            super().xWrite(data, offset)

        def xTruncate(self, size: int) -> None:  # noqa: N802
            history.add("truncate", self.short, size)
            super().xTruncate(size)

        def xSync(self, flags: int) -> None:  # noqa: N802
            super().xSync(flags)
            history.add("sync", self.short)

    class Recorder(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(name, "")

        def xOpen(self, filename: Any, flags: Any) -> File:  # noqa: N802
            return File(filename, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
            history.add("delete", Path(filename).name)
            super().xDelete(filename, syncdir)

    return Recorder()


class Images:
    """Makes images of ever longer prefixes; prefixes are asked for in ascending order."""

    def __init__(self, history: History, chance: random.Random) -> None:
        self._steps = history.steps
        self._chance = chance
        self._at = 0
        self._synced: dict[str, bytearray] = {}
        self._loose: list[tuple[Any, ...]] = []  # not yet synced, in order

    def at(self, prefix: int) -> dict[str, bytes]:
        """Return the content of each file after `prefix` steps and a power cut."""
        while self._at < prefix:
            self._step(self._steps[self._at])
            self._at += 1
        files = {name: bytearray(content) for name, content in self._synced.items()}
        loose = list(self._loose)
        kind = self._chance.randrange(4)
        if kind == 0:
            loose = []  # nothing of it arrived
        elif kind == 1:
            loose = [step for step in loose if self._chance.random() < 0.5]
        elif kind == 2:  # all but a torn last one
            loose = [*loose[:-1], self._torn(loose[-1])] if loose else []
        else:
            loose = [self._torn(step) for step in loose if self._chance.random() < 0.8]
            self._chance.shuffle(loose)
        for step in loose:
            apply(files, step)
        return {name: bytes(content) for name, content in files.items()}

    def _step(self, step: tuple[Any, ...]) -> None:
        if step[0] == "sync directory":
            for loose in self._loose:
                if loose[0] == "delete":
                    self._synced.pop(loose[1], None)
            self._loose = [loose for loose in self._loose if loose[0] != "delete"]
        elif step[0] == "sync":
            for loose in self._loose:
                if loose[1] == step[1]:
                    apply(self._synced, loose)
            self._loose = [loose for loose in self._loose if loose[1] != step[1]]
            self._synced.setdefault(step[1], bytearray())
        else:
            self._loose.append(step)

    def _torn(self, step: tuple[Any, ...]) -> tuple[Any, ...]:
        if step[0] != "write" or len(step[3]) <= SECTOR:
            return step
        keep = self._chance.randrange(len(step[3]) // SECTOR + 1) * SECTOR
        return ("write", step[1], step[2], step[3][:keep])


def apply(files: dict[str, bytearray], step: tuple[Any, ...]) -> None:
    """Do one recorded step to files in memory."""
    kind, name = step[0], step[1]
    if kind == "delete":
        files.pop(name, None)
        return
    content = files.setdefault(name, bytearray())
    if kind == "truncate":
        del content[step[2] :]
        return
    offset, data = step[2], step[3]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
