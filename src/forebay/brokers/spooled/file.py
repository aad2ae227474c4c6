"""SpoolFile: submissions on the disk of this machine, in their order. Owned by one process through a lock."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec

from forebay.core.job import Job
from forebay.errors import ConfigError, StoreFullError, StoreUnavailableError

FILES_MAX: Final = 256  # processes that share one directory
_OPEN: Final = (
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    " CREATE TABLE IF NOT EXISTS jobs (seq INTEGER PRIMARY KEY, job BLOB NOT NULL)"
)
_ALL: Final = "SELECT job FROM jobs ORDER BY seq"

_encode = msgspec.msgpack.Encoder().encode


class _Row(msgspec.Struct, array_like=True):
    job: Job
    idempotency_key: bytes | None  # any text, also what is no UTF-8
    ordering_key: bytes | None


_decode = msgspec.msgpack.Decoder(_Row).decode


class SpoolFile:
    """One file. Its verbs block, and are called by one thread at a time."""

    def __init__(self, path: Path, lock: int) -> None:
        self._lock = lock
        self._path = path
        try:
            self._connection = apsw.Connection(str(path))
            os.chmod(path, 0o600)
            self._connection.execute(_OPEN).fetchall()
        except (apsw.Error, OSError) as error:
            os.close(lock)
            raise self._unusable(error) from None

    def load(self) -> list[Job]:
        """Return what is there, in order. Raises ConfigError for what cannot be read."""
        try:
            rows = cast("list[tuple[bytes]]", self._connection.execute(_ALL).fetchall())
            return [_job_of(row) for (row,) in rows]
        except (apsw.Error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._unusable(error) from None

    def replace(self, rows: Sequence[tuple[int, Job]]) -> None:
        """Store these in place of all there is. Raises ConfigError."""
        try:
            with self._connection:
                self._connection.execute("DELETE FROM jobs")
                self._insert(rows)
        except apsw.Error as error:
            raise self._unusable(error) from None

    def add(self, rows: Sequence[tuple[int, Job]]) -> None:
        """Store jobs, durably. Raises StoreUnavailableError; nothing is stored then."""
        try:
            with self._connection:
                self._insert(rows)
        except apsw.FullError:
            raise StoreFullError("the disk of the spool is full", retry_after_s=5.0) from None
        except apsw.Error as error:
            raise StoreUnavailableError(f"the spool cannot be written: {error}", retry_after_s=1.0) from None

    def remove(self, upto: int) -> None:
        """Forget what was handed over: every row up to this one."""
        with self._connection:
            self._connection.execute("DELETE FROM jobs WHERE seq <= ?", (upto,))

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError(f"spool: {self._path} cannot be used: {' '.join(str(error).split())}")

    def _insert(self, rows: Sequence[tuple[int, Job]]) -> None:
        values = [(seq, _row_of(job)) for seq, job in rows]
        self._connection.executemany("INSERT INTO jobs VALUES (?, ?)", values)

    def close(self) -> None:
        """Let go. What is there stays for the next one who opens it."""
        self._connection.close()
        os.close(self._lock)


def open_files(directory: Path) -> list[SpoolFile]:
    """Return every file of a directory that no living process owns, at least one. The first takes new jobs.

    So what a dead process left is taken over by the next that starts. Raises ConfigError.
    """
    files: list[SpoolFile] = []
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for number in range(FILES_MAX):
            path = directory / f"{number}.db"
            if files and not path.exists():
                continue
            lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            except OSError:  # a place that knows no locks, say
                os.close(lock)
                raise
            files.append(SpoolFile(path, lock))
    except OSError as error:
        raise ConfigError(f"spool: {directory}: {error.strerror}") from None
    if not files:
        raise ConfigError(f"spool: more than {FILES_MAX} processes share {directory}")
    return files


def _row_of(job: Job) -> bytes:
    keys = [
        None if key is None else key.encode("utf-8", "surrogatepass")
        for key in (job.idempotency_key, job.ordering_key)
    ]
    return _encode(_Row(job._replace(idempotency_key=None, ordering_key=None), *keys))


def _job_of(row: bytes) -> Job:
    found = _decode(row)
    idempotency_key, ordering_key = (
        None if key is None else key.decode("utf-8", "surrogatepass")
        for key in (found.idempotency_key, found.ordering_key)
    )
    return found.job._replace(idempotency_key=idempotency_key, ordering_key=ordering_key)
