"""Channel, Reader: the recent events of one job in a ring, and how far each of its readers has come."""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from forebay.core.estimator import Eta
from forebay.core.job import Settled
from forebay.core.lifecycle import State
from forebay.server.caller import caller

RING_EVENTS_MAX: Final = 1_000  # newest events kept per job
RING_BYTES_MAX: Final = 256 * 1024
TAKE_BYTES_MAX: Final = 64 * 1024  # handed to one reader at a time
WAKE_S: Final = 0.0001  # per reader of a job between two rounds: a crowd is served in larger pieces
WAKES_PER_TURN: Final = 50  # readers woken before others get their turn


def event_text(kind: str, data: bytes, event_id: str | None = None) -> bytes:
    """Return one event as it travels. `data` is JSON text: no line end is in it."""
    head = f"event: {kind}\n" if event_id is None else f"id: {event_id}\nevent: {kind}\n"
    return b"%bdata: %b\n\n" % (head.encode(), data)


class ToldEta(NamedTuple):
    """What was told last about the place in line and the end."""

    position: int | None
    eta: Eta | None
    at: float


Stood = tuple[State, int, bool]  # state, fence, cancel requested


class Reader:
    """One reader of one channel: the number of the last event it has taken."""

    __slots__ = ("_future", "_rung", "channel", "place", "who", "wrote_at")

    def __init__(self, channel: "Channel", now: float) -> None:
        self.channel = channel
        self.place = 0
        self.who = caller()  # that reads
        self.wrote_at = now  # when something was last sent to it
        self._rung = False
        self._future: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Tell it that there may be something."""
        self._rung = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def rung(self) -> None:
        """Return at the next ring, or at once when one came since the last call."""
        if not self._rung:
            self._future = asyncio.get_running_loop().create_future()
            try:
                await self._future
            finally:
                self._future = None
        self._rung = False

    def resume(self, last_event_id: str) -> int | None:
        """Go on behind this event. Returns how many events are lost; None when nothing is known of the id:
        the reader begins with the oldest event kept then."""
        token, _, number = last_event_id.rpartition("-")
        if token != self.channel.token or not (number.isascii() and number.isdigit()) or len(number) > 12:
            return None
        if int(number) > self.channel.last:
            return None
        self.place = int(number)
        return max(0, self.channel.first - 1 - self.place)

    def missed(self) -> int:
        """Return how many events it can no longer get, and go on behind them."""
        lost = max(0, self.channel.first - 1 - self.place)
        self.place += lost
        return lost

    def take(self) -> bytes:
        """Return the next events, b"" when there are none."""
        self.place, text = self.channel.after(self.place)
        return text


class Channel:
    """The recent events of one job."""

    __slots__ = (
        "_joined",
        "_timer",
        "changes",
        "ended",
        "eta",
        "fence",
        "final",
        "gone",
        "job_id",
        "last",
        "looked_at",
        "parts",
        "progress",
        "progress_at",
        "progress_timer",
        "readers",
        "ring",
        "rung_at", "settled",
        "size_b",
        "state",
        "status",
        "token",
        "touched_at",
    )  # fmt: skip

    def __init__(self, job_id: str, token: str, now: float) -> None:
        self.job_id = job_id
        self.token = token
        self.ring: deque[bytes] = deque()  # of the events first ... last
        self.last = 0  # number of the newest event; the first has 1
        self.size_b = 0
        self.readers: dict[Reader, None] = {}
        self.status = b""  # the newest status event, without a number
        self.state: Stood | None = None  # what it told of
        self.ended = False
        self.final: bytes | None = None  # the done event, while somebody waits for it and there is room
        self.gone = False  # the job is no longer known
        self.settled: Settled | None = None  # how it ended, where the engine told
        self.changes: list[State] = []  # heard of since the last look at the job
        self.eta: ToldEta | None = None
        self.looked_at = float("-inf")
        self.fence = 0  # of the attempt that yielded `parts` parts so far
        self.parts = 0
        self.progress: bytes | None = None  # waits for its time
        self.progress_at = float("-inf")
        self.progress_timer: asyncio.TimerHandle | None = None
        self.touched_at = now
        self.rung_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._joined: tuple[int, int, bytes] = (0, 0, b"")

    @property
    def first(self) -> int:
        """Number of the oldest event kept; one more than the last when none is."""
        return self.last - len(self.ring) + 1

    def push(self, kind: str, data: bytes) -> int:
        """Add an event; the oldest ones make room. Returns the bytes that the ring grew by."""
        before = self.size_b
        self.last += 1
        text = event_text(kind, data, f"{self.token}-{self.last}")
        self.ring.append(text)
        self.size_b += len(text)
        while len(self.ring) > RING_EVENTS_MAX or (self.size_b > RING_BYTES_MAX and len(self.ring) > 1):
            self.size_b -= len(self.ring.popleft())
        return self.size_b - before

    def after(self, place: int) -> tuple[int, bytes]:
        """Return the events behind this place, as many as go at once, and the place behind them. Readers
        that are as far get the same bytes."""
        if place >= self.last:
            return place, b""
        known_from, known_to, text = self._joined
        if known_from == place and (known_to == self.last or len(text) >= TAKE_BYTES_MAX):
            return known_to, text
        texts: list[bytes] = []
        size, at = 0, place
        for index in range(place + 1 - self.first, len(self.ring)):
            texts.append(self.ring[index])
            size += len(texts[-1])
            at += 1
            if size >= TAKE_BYTES_MAX:
                break
        text = b"".join(texts)
        self._joined = (place, at, text)
        return at, text

    def wake(self) -> None:
        """Ring every reader, now or when a crowd is due again."""
        if self.readers and self._timer is None:
            loop = asyncio.get_running_loop()
            due = self.rung_at + WAKE_S * len(self.readers)
            if loop.time() >= due:
                self._wake(loop)
            else:
                self._timer = loop.call_at(due, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.rung_at = loop.time()
        _ring(loop, list(self.readers))


def _ring(loop: asyncio.AbstractEventLoop, readers: list[Reader]) -> None:
    for reader in readers[:WAKES_PER_TURN]:
        reader.ring()
    if len(readers) > WAKES_PER_TURN:
        loop.call_soon(_ring, loop, readers[WAKES_PER_TURN:])
