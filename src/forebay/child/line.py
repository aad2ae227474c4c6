"""Line: the child's end of the socket, and the reader thread that only prefetches and obeys.

The main thread runs handlers and writes results. The reader takes in what comes, answers pings, gives
back what has not started, and sends results and progress that wait while the main thread is inside a
handler. Deques and lists are shared by operations that are atomic under the GIL: an item is popped by
exactly one of the two threads.
"""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

from forebay.child import guard
from forebay.child.kept import Kept
from forebay.node.frames import (
    PAGE_BYTES,
    BreakerReport,
    Breakers,
    Cancel,
    Checkpoints,
    GiveBack,
    ItemResult,
    Parts,
    Pass,
    Ping,
    Pong,
    Progress,
    Results,
    Returned,
    Run,
    RunItem,
    Splitter,
    Start,
    Stop,
    ToldBreaker,
    ToNode,
    decode_to_child,
    encode_frame,
)

READ_BYTES: Final = 256 * 1024
FLUSH_S: Final = 0.005  # results wait this long for company while a handler runs
QUIET_S: Final = 0.05  # and the reader looks this often when nothing but news can be waiting
PARTS_S: Final = 0.02  # parts that come faster than this leave together
PARTS_BYTES_MAX: Final = 64 * 1024  # or when so much waits
BREAKERS_MAX: Final = 1_024  # changes of breakers that wait; the oldest go


class Work:
    """A run as it waits and is taken: whoever pops an item owns it."""

    __slots__ = ("level", "pending", "run", "singles", "task")

    def __init__(self, run: Run) -> None:
        self.run = run.run
        self.task = run.task
        self.singles = run.singles
        self.level = run.level
        self.pending = deque(run.items)

    def take_all(self) -> list[RunItem]:
        """Return what is still pending; it is started now."""
        taken: list[RunItem] = []
        while self.pending:
            try:
                taken.append(self.pending.popleft())
            except IndexError:  # the reader gave the last one back
                break
        return taken


class Hooks(Protocol):
    """How the reader wakes the main thread."""

    def arrived(self) -> None:
        """There is something in `works`, or the line is stopping."""
        ...

    def cancelled(self, tag: int) -> None:
        """A running item was cancelled."""
        ...


class Line:
    """The connection to the node."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()  # one writer at a time
        self._splitter = Splitter()
        self.starts: SimpleQueue[Start] = SimpleQueue()
        self.works: deque[Work] = deque()
        self.current: Work | None = None  # of a sync child
        self.cancelled: set[int] = set()
        self.stopping = False
        self.hooks: Hooks | None = None
        self.arrivals = 0  # written by the reader only
        self.departures = 0  # written by the main thread only
        self.active = 0  # coroutines of an async child
        self._done: list[ItemResult] = []
        self.crowded = False  # one of them is not kept: they should leave before the next call
        self._kept = Kept(memoryview(bytearray(PAGE_BYTES)))  # the same, for the node to find
        self._progress: dict[int, tuple[float, str]] = {}
        self._checkpoints: dict[int, bytes] = {}
        self._checkpoints_at = 0.0  # when some were last sent
        self._parts: list[tuple[int, int, bytes]] = []
        self._parts_b = 0
        self._parts_at = 0.0
        self._breakers: deque[BreakerReport] = deque(maxlen=BREAKERS_MAX)
        self.on_told: Callable[[str, str, float, str], None] | None = None  # breakers of other processes
        self.busy_s = 0.0

    def share(self, page: memoryview) -> None:
        """From now on keep what waits in this page, which the node shares. Before the first run comes."""
        self._kept = Kept(page)

    # Any thread.

    def send(self, message: ToNode) -> None:
        """Write one message; blocks while the node does not read."""
        frame = encode_frame(message)
        with self._lock:
            self._socket.sendall(frame)

    def add(self, result: ItemResult) -> None:
        """Keep a result for the next flush."""
        with self._lock:
            self._done.append(result)
            if not self._kept.add(result):
                self.crowded = True

    def flush(self) -> None:
        """Send what is kept, in one message."""
        with self._lock:
            count = len(self._done)
            if not count:
                return
            if self._parts or self._checkpoints:  # what an item said leaves before its end
                self._send_news()
            # Only flushing removes, at the front: an append meanwhile goes to the end and stays.
            items = self._done[:count]
            del self._done[:count]
            busy_s, self.busy_s = self.busy_s, 0.0
            self._socket.sendall(encode_frame(Results(items, busy_s)))
            self._kept.sent(count)
            self.crowded = False

    def passes(self, run: int, size: int) -> None:
        """Say that another call for `size` items of a run begins; what is settled goes out first, as that
        call may never end."""
        self.flush()
        self.send(Pass(run, size))

    def report(self, tag: int, share: float, message: str) -> None:
        """Keep the newest progress of an item for the reader to send."""
        self._progress[tag] = (share, message)

    def breaker(self, report: BreakerReport) -> None:
        """Keep a change of a breaker for the reader to send."""
        self._breakers.append(report)

    def checkpoint(self, tag: int, text: bytes) -> None:
        """Send a checkpoint at once, or with the next ones when some left a moment ago; the newest counts."""
        self._checkpoints[tag] = text
        if time.monotonic() >= self._checkpoints_at + QUIET_S:
            with self._lock:
                self._send_news()

    def part(self, tag: int, number: int, text: bytes) -> None:
        """Send a part of an output at once, or with the next ones when some left a moment ago."""
        self._parts.append((tag, number, text))
        self._parts_b += len(text)
        if self._parts_b > PARTS_BYTES_MAX or time.monotonic() >= self._parts_at + PARTS_S:
            with self._lock:
                self._send_news()

    def flush_news(self) -> None:
        """Send the newest progress and checkpoint of each item, and the parts that wait."""
        with self._lock:
            self._send_news()
            if self._progress:
                progress, self._progress = self._progress, {}
                reports = [(tag, share, text) for tag, (share, text) in list(progress.items())]
                self._socket.sendall(encode_frame(Progress(reports)))
            if self._breakers:
                changes = [self._breakers.popleft() for _ in range(len(self._breakers))]
                self._socket.sendall(encode_frame(Breakers(changes)))

    def _send_news(self) -> None:
        """Send what may not be overtaken; call it with the lock."""
        if self._checkpoints:
            checkpoints, self._checkpoints = self._checkpoints, {}
            self._checkpoints_at = time.monotonic()
            self._socket.sendall(encode_frame(Checkpoints(list(checkpoints.items()))))
        count = len(self._parts)
        if count:
            parts = self._parts[:count]
            del self._parts[:count]
            self._parts_b, self._parts_at = 0, time.monotonic()
            self._socket.sendall(encode_frame(Parts(parts)))

    # The reader.

    def start_reader(self) -> None:
        """Begin to read, in a thread of its own."""
        threading.Thread(target=self._read, name="forebay-reader", daemon=True).start()

    def _read(self) -> None:
        try:
            self._read_on()
        except BaseException:  # the node is gone or user code closed our descriptor: nothing to live for
            guard.end_group()

    def _read_on(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        news_at = 0.0
        while True:
            readable = poll.poll(self._patience_ms())
            if readable:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    guard.end_group()
                for frame in self._splitter.feed(data):
                    self._obey(decode_to_child(frame))
            else:
                self.flush()
            if self._has_news() and time.monotonic() >= news_at:
                news_at = time.monotonic() + QUIET_S
                self.flush_news()

    def _patience_ms(self) -> int | None:
        if self.arrivals == self.departures and not self.active:
            return 1 if self._done or self._has_news() else None
        return int((FLUSH_S if self._done or len(self.works) > 1 or self._many() else QUIET_S) * 1000)

    def _has_news(self) -> bool:
        return bool(self._progress or self._parts or self._checkpoints or self._breakers)

    def _many(self) -> bool:
        current = self.current
        return current is None or bool(current.singles and current.pending)

    def _obey(self, message: object) -> None:
        match message:
            case Run():
                self.arrivals += 1
                self._kept.arrived(message.run)
                self.works.append(Work(message))
                self._wake()
            case Ping(number=number):
                self.send(Pong(number))
            case Cancel(tag=tag):
                self._cancel(tag)
            case GiveBack():
                self._give_back()
            case ToldBreaker(name=name, state=state, wait_s=wait_s, reason=reason):
                if self.on_told is not None:
                    self.on_told(name, state, wait_s, reason)
            case Stop():
                self._give_back()
                self.stopping = True
                self._wake()
            case Start():
                self.starts.put(message)
            case _:
                raise ValueError("not a message for a child")

    def _wake(self) -> None:
        if self.hooks is not None:
            self.hooks.arrived()

    def _waiting(self) -> list[Work]:
        current = self.current
        return [*([current] if current is not None else []), *list(self.works)]

    def _give_back(self) -> None:
        tags: list[int] = []
        for work in self._waiting():
            while work.pending:
                try:
                    tags.append(work.pending.pop().tag)
                except IndexError:  # the main thread took the last one
                    break
        self.send(Returned(tags))

    def _cancel(self, tag: int) -> None:
        for work in self._waiting():
            for item in list(work.pending):
                if item.tag == tag:
                    try:
                        work.pending.remove(item)
                    except (ValueError, IndexError):  # it started this instant
                        break
                    self.send(Returned([tag]))
                    return
        self.cancelled.add(tag)
        if self.hooks is not None:
            self.hooks.cancelled(tag)


def connect(fd: int) -> Line:
    """Return the line over an inherited socket."""
    return Line(socket.socket(fileno=fd))
