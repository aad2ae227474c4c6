"""Signer: a hint as bytes that only the servers of one store can make: a JSON text that people can read."""

import hashlib
import hmac
from typing import Final, NamedTuple

import msgspec

from forebay.ports.transport import BODY_MAX

VERSION: Final = 1
MAC_BYTES: Final = 16


class Told(NamedTuple):
    """What a hint says: this task has work. `job_id` is empty where it is about no job."""

    task: str
    job_id: str


class _Body(msgspec.Struct):
    forebay: int
    task: str
    job: str
    mac: str


class Signer:
    """Makes hints and knows its own. The key is the store's."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._decoder = msgspec.json.Decoder(_Body)

    def body(self, task: str, job_id: str) -> bytes:
        """Return a hint of a job, or of a task alone."""
        return msgspec.json.encode(_Body(VERSION, task, job_id, self._mac(task, job_id)))

    def read(self, task: str, body: bytes) -> Told | None:
        """Return what a hint of this task says; None for one that nobody here made."""
        if len(body) > BODY_MAX:
            return None
        try:
            found = self._decoder.decode(body)
            if found.forebay != VERSION or found.task != task:
                return None
            whole = hmac.compare_digest(self._mac(task, found.job).encode(), found.mac.encode())
        except (msgspec.MsgspecError, UnicodeError, RecursionError):  # anybody may send anything
            return None
        return Told(task, found.job) if whole else None

    def _mac(self, task: str, job_id: str) -> str:
        said = b"\0".join((b"forebay hint %d" % VERSION, task.encode(), job_id.encode()))
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()[: 2 * MAC_BYTES]
