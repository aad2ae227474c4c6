"""Shared: frames of a stage that are served by a task's replicas, with the requests and jobs of that task."""

import contextlib
import mmap
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from forebay.child.codec import is_plain
from forebay.core.buffer import Reason
from forebay.core.envelope import parse
from forebay.errors import AppError, ForebayError, InvalidError, NotFoundError
from forebay.node.frames import FRAME_MARK, HEADER, FramePayload
from forebay.pipeline.calls import Failure, Job, failure_of, scale_of
from forebay.pipeline.stage import Stage
from forebay.pipeline.talk import PAYLOAD_BYTES_MAX, Ask, End, Push, Taken, Takes, Told, decode, encoded
from forebay.sources.pushed import within
from forebay.streams.asked import check_kind
from forebay.streams.machine import open_place

ALIGN_BYTES: Final = 64
ANSWER_SLACK_S: Final = 5.0  # a server that says nothing so long after a deadline has lost the frame
_ARRAY: Final = 1


class Slip:
    """One frame's answer, once it is there."""

    __slots__ = ("came", "told")

    def __init__(self) -> None:
        self.came = threading.Event()
        self.told: Told | None = None


class Desk:
    """The way from this process to the server's basin. For several threads at once."""

    def __init__(self, sock: socket.socket, tasks: Collection[str]) -> None:
        self.tasks = frozenset(tasks)
        self.ending = threading.Event()
        self.grace_s = 0.0
        self._sock = sock
        self._lock = threading.Lock()
        self._waiting: dict[int, Slip] = {}
        self._number = 0
        self._gone = False
        threading.Thread(target=self._listen, name="forebay-desk", daemon=True).start()

    def ask(self, task: str, payload: bytes, captured_at: float, deadline_at: float, wait_s: float) -> Told:
        """Return what became of a frame, after `wait_s` at most."""
        slip = Slip()
        with self._lock:
            self._number += 1
            number = self._number
            if self._gone:
                return Told(number, reason=Reason.ENDED.value)
            self._waiting[number] = slip
            try:
                self._sock.sendall(encoded(Ask(number, task, payload, captured_at, deadline_at)))
            except OSError:
                del self._waiting[number]
                return Told(number, reason=Reason.ENDED.value)
        slip.came.wait(wait_s)
        with self._lock:
            self._waiting.pop(number, None)
        return slip.told or Told(number, reason=Reason.LATE.value)

    def _listen(self) -> None:
        try:
            while True:
                (length,) = HEADER.unpack(self._exactly(HEADER.size))
                message = decode(self._exactly(length))
                if isinstance(message, Told):
                    with self._lock:
                        slip = self._waiting.pop(message.number, None)
                    if slip is not None:
                        slip.told = message
                        slip.came.set()
                elif isinstance(message, Push):
                    self._say(taken(message))
                elif isinstance(message, End):
                    self.grace_s = message.grace_s
                    self.ending.set()
        except (OSError, EOFError):
            self._lose()

    def announce(self) -> None:
        """Say which streams the sources of this process take."""
        for source in within():
            names = None if source.names is None else sorted(source.names)
            self._say(Takes(source.item_bytes_max or 0, names))

    def _say(self, message: Takes | Taken) -> None:
        with self._lock, contextlib.suppress(OSError):  # a server that has gone is seen where we listen
            self._sock.sendall(encoded(message))

    def _lose(self) -> None:
        """The server has gone: nobody answers any more."""
        with self._lock:
            self._gone = True
            waiting, self._waiting = self._waiting, {}
        for slip in waiting.values():
            slip.told = Told(0, reason=Reason.ENDED.value)
            slip.came.set()
        self.ending.set()

    def _exactly(self, length: int) -> bytes:
        found = bytearray(length)
        view, got = memoryview(found), 0
        while got < length:
            count = self._sock.recv_into(view[got:])
            if not count:
                raise EOFError
            got += count
        return bytes(found)


def taken(push: Push) -> Taken:
    """Hand a frame that was sent to the server to the source that takes it."""
    for source in within():
        if source.names is not None and push.stream not in source.names:
            continue
        try:
            verdict = source.take(push.stream, parse(push.header), push.pixels, push.kind)
        except ForebayError as error:
            source.count("invalid" if isinstance(error, InvalidError) else "refused")
            return Taken(push.number, b"", error.code, str(error), error.retry_after_s)
        return Taken(push.number, msgspec.json.encode(verdict))
    return Taken(push.number, b"", NotFoundError.code, "no such stream is taken in here")


_desks: list[Desk] = []


def use(desk: Desk) -> None:
    """Have the stages of this process that are tasks ask there."""
    _desks[:] = [desk]


class Shelf:
    """Memory that holds the arrays of one frame at a time, for whoever serves it to look at."""

    def __init__(self) -> None:
        self._fd = -1
        self._memory: mmap.mmap | None = None

    def payload(self, value: Any) -> bytes:
        """Return the value as a job's payload. Raises InvalidError for what can be none, NoMemoryError."""
        if is_plain(value):
            return msgspec.json.encode(value)
        arrays: list[Any] = []
        frame = FramePayload(_tree(value, arrays))
        if len(frame.tree) > PAYLOAD_BYTES_MAX:
            raise InvalidError(
                f"a frame of {len(frame.tree):,} bytes beside arrays; {PAYLOAD_BYTES_MAX:,} at most"
            )
        for array in arrays:
            frame.arrays.append((frame.size_b, array.dtype.str, list(array.shape)))
            frame.size_b += -(-array.nbytes // ALIGN_BYTES) * ALIGN_BYTES
        if frame.size_b:
            self._place(frame, arrays)
        return FRAME_MARK + msgspec.msgpack.encode(frame)

    def _place(self, frame: FramePayload, arrays: list[Any]) -> None:
        import numpy

        if self._memory is None or len(self._memory) < frame.size_b:
            self.close()
            length = -(-frame.size_b // mmap.PAGESIZE) * mmap.PAGESIZE
            self._fd = open_place(length).fd
            self._memory = mmap.mmap(self._fd, length, flags=mmap.MAP_SHARED)
        for array, (offset, kind, shape) in zip(arrays, frame.arrays, strict=True):
            if array.nbytes:
                numpy.copyto(numpy.ndarray(shape, kind, self._memory, offset), array)
        frame.pid, frame.fd, frame.inode = os.getpid(), self._fd, os.fstat(self._fd).st_ino

    def close(self) -> None:
        """Let go of the memory; whoever looks at it keeps it."""
        self._memory = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _tree(value: Any, arrays: list[Any]) -> bytes:
    """Return the msgpack of a value, with arrays by number."""

    def other(found: Any) -> Any:
        if hasattr(found, "__array_interface__"):
            if getattr(found, "ndim", 0) == 0 and hasattr(found, "item"):
                return found.item()
            check_kind(found.dtype)
            arrays.append(found)
            return msgspec.msgpack.Ext(_ARRAY, (len(arrays) - 1).to_bytes(4, "little"))
        raise InvalidError(f"to a task go JSON values, bytes and arrays, not {type(found).__name__}")

    try:
        return msgspec.msgpack.encode(value, enc_hook=other)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidError(f"to a task go JSON values, bytes and arrays: {error}") from None


class TaskWorker:
    """One frame at a time on its way to a task and back."""

    def __init__(self, stage: Stage, task: str, now: Callable[[], float]) -> None:
        self.restarts: Counter[str] = Counter()
        self._stage = stage
        self._task = task
        self._now = now
        self._shelf = Shelf()
        self._desk: Desk | None = None

    def load(self) -> None:
        """Find the way to the task. Raises AppError where there is none."""
        if not _desks:
            raise AppError(
                f"stage {self._stage.name}: it is a task, so its pipeline runs under `forebay serve`; start"
                " it in a function with @app.pipeline()"
            )
        if self._task not in _desks[0].tasks:
            raise AppError(f"stage {self._stage.name}: the App has no task {self._task}")
        self._desk = _desks[0]

    def run(self, jobs: list[Job]) -> list[Any]:
        """Return for each a value, a Failure, or why the task did not serve it."""
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Any:
        assert self._desk is not None
        try:
            payload = self._shelf.payload(job.value if job.scale == 1.0 else scale_of(job.value, job.scale))
        except (ForebayError, OSError) as error:
            return failure_of(error)
        now, facts = self._now(), job.facts
        deadline_at = now + self._stage.timeout_s if facts.deadline is None else facts.deadline
        wait_s = max(0.0, deadline_at - now) + ANSWER_SLACK_S
        told = self._desk.ask(self._task, payload, facts.captured_at, deadline_at, wait_s)
        if told.output is not None:
            return msgspec.json.decode(told.output)
        reason = Reason(told.reason)
        return Failure(told.kind or "Failed", told.text) if reason is Reason.FAILED else reason

    def revive(self, over: threading.Event) -> bool:
        """Return True: it does not die."""
        return True

    def close(self) -> None:
        """Let go of its memory."""
