"""Plain submissions: those without options, which most lines of a bulk are, at a third of the price of any.

What is read and made here is what `wire` would read and make of the same bytes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.core.job import Job
from forebay.core.task import TaskSpec
from forebay.server.nesting import is_flat, is_too_deep
from forebay.server.wire import Submission, job_from


class Plain(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A task and a payload."""

    task: str
    payload: msgspec.Raw = msgspec.Raw()


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)
_decode_plain = msgspec.json.Decoder(Plain).decode
_decode_any = msgspec.json.Decoder().decode


def decode_plain(body: bytes) -> tuple[Plain, Any] | None:
    """Return a plain submission and its decoded payload; None for any that `wire.decode` must look at: it has
    options, or something is wrong with it."""
    if not body.isascii():
        return None
    try:
        plain = _decode_plain(body)
        payload = _decode_any(plain.payload)
    except _UNREADABLE:
        return None
    if not is_flat(payload) and is_too_deep(body, payload):
        return None
    return plain, payload


class PlainJobs:
    """Makes the jobs of plain submissions of one caller at one instant."""

    def __init__(self, tasks: Mapping[str, TaskSpec], *, now: float, tenant: str) -> None:
        self._tasks = tasks
        self._now = now
        self._tenant = tenant
        self._tails: dict[str, tuple[Any, ...]] = {}  # of each task: all that its jobs have in common

    def make(self, plain: Plain, job_id: str) -> Job:
        """Return the job to store. Raises what `job_from` raises."""
        task = plain.task
        tail = self._tails.get(task)
        if tail is None:
            tail = self._tails[task] = self._tail(task)
        return tuple.__new__(Job, (job_id, task, bytes(plain.payload), *tail))

    def _tail(self, task: str) -> tuple[Any, ...]:
        made = job_from(Submission(task), self._tasks[task], job_id="", now=self._now, tenant=self._tenant)
        return made[3:]
