"""Results: the file of `--out`, one JSON line per item, that an interrupted run is continued from."""

import fcntl
import json
import os
import stat
from typing import Any

from forebay.cli.show import Stop

FLUSH_LINES = 1  # every line is worth more than the call it saves
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "EXPIRED", "REFUSED"})


class Results:
    """Appends records. `done` holds the line numbers that need nothing more, `failed` those among them that
    ended without a result. "-" is standard output."""

    def __init__(self, path: str, *, run: dict[str, Any], wait: bool) -> None:
        self.path = path
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.run = run
        self._wait = wait
        self._descriptor = 1 if path == "-" else self._open()
        if path != "-" and stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self._continue()

    def write(self, record: dict[str, Any]) -> None:
        """Append one record. Raises Stop when it cannot be written."""
        data = json.dumps(record).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Stop(f"cannot write {self._shown()}: {error.strerror}", 1) from None

    def close(self) -> None:
        """Close the file; a write that failed late is told here."""
        if self._descriptor > 2:
            try:
                os.close(self._descriptor)
            except OSError as error:
                raise Stop(f"cannot write {self._shown()}: {error.strerror}", 1) from None
            self._descriptor = -1

    def _shown(self) -> str:
        return "standard output" if self.path == "-" else repr(self.path)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Stop(f"cannot write {self.path!r}: {error.strerror}", 2) from None
        except ValueError:
            raise Stop(f"cannot write {self.path!r}: not a path", 2) from None

    def _continue(self) -> None:
        """Take over what an earlier run left, or claim a fresh file. Refuses a file that is not ours."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Stop(f"{self.path!r} is being written by another submit", 2) from None
        state = f"{self.path}.state"
        try:
            with open(state, encoding="utf-8") as file:
                before: dict[str, Any] = dict(json.loads(file.read(1 << 16)))
        except FileNotFoundError:
            if os.fstat(self._descriptor).st_size:
                raise Stop(
                    f"{self.path!r} exists and is not of an earlier submit: remove it or name another", 2
                ) from None
            self._claim(state)
            return
        except (OSError, ValueError, TypeError):
            raise Stop(f"{state!r} cannot be read: remove it and {self.path!r} to begin anew", 2) from None
        key = before.pop("key", None)
        asked = {name: value for name, value in self.run.items() if name != "key"}
        if before != asked:
            raise Stop(f"{self.path!r} is of another submit (see {state!r}): remove both or name another", 2)
        self.run["key"] = key
        self._read_done()

    def _claim(self, state: str) -> None:
        try:
            with open(f"{state}.new", "w", encoding="utf-8") as file:
                json.dump(self.run, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{state}.new", state)
        except OSError as error:
            raise Stop(f"cannot write {state!r}: {error.strerror}", 2) from None

    def _read_done(self) -> None:
        whole = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # cut off by a crash
                whole += len(line)
                try:
                    record = json.loads(line)
                    if not self._wait or record["status"] in ENDED:
                        number = int(record["line"])
                        self.done.add(number)
                        bad = record["status"] in ENDED and record["status"] != "COMPLETED"
                        (self.failed.add if bad or "error" in record else self.failed.discard)(number)
                except (ValueError, KeyError, TypeError):
                    continue
        os.ftruncate(self._descriptor, whole)
