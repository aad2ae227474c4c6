"""Pump: one source's thread: takes its frames to the first stage, waits where that does, tells it of room."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from forebay.core.buffer import Reason
from forebay.core.gate import Let
from forebay.core.lanes import Ticket
from forebay.errors import InvalidError
from forebay.pipeline.ledger import Ledger
from forebay.pipeline.line import Line
from forebay.streams.ports import AsyncSource, Captured, Pressure, Source

UNBOUNDED_S: Final = float("inf")


class Plain:
    """A Source out of any iterable of arrays, bytes or Captured. It waits for room; it is not live."""

    live = False
    item_bytes_max: int | None = None

    def __init__(self, frames: Iterable[Any], stream: str, now: Callable[[], float]) -> None:
        self._frames = frames
        self._stream = stream
        self._now = now
        self._closed = False

    def __iter__(self) -> Iterator[Captured]:
        for frame in self._frames:
            if self._closed:
                return
            yield frame if isinstance(frame, Captured) else Captured(frame, self._stream, self._now())

    def press(self, pressure: Pressure) -> None:
        """Do nothing: it is asked when there is room."""

    def counts(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def close(self) -> None:
        """End before the next frame."""
        self._closed = True


def size_of(pixels: Any) -> int:
    """Return the bytes of a frame's pixels. Raises InvalidError for what is neither array nor bytes."""
    if isinstance(pixels, bytes | bytearray):
        size = len(pixels)
    elif isinstance(pixels, memoryview) or hasattr(pixels, "__array_interface__"):
        size = int(pixels.nbytes)
    else:
        raise InvalidError(f"a frame is a numpy array or bytes, not {type(pixels).__name__}")
    if not size:
        raise InvalidError("a frame has no bytes")
    return size


class Pump:
    """Carries the frames of one source to a line."""

    def __init__(
        self,
        source: Source | AsyncSource,
        line: Line,
        ledger: Ledger,
        *,
        now: Callable[[], float],
        deadline_s: float | None,
        streams: Callable[[], int],
        checked: Callable[[int], None],
    ) -> None:
        self.source = source
        self.error: BaseException | None = None
        self.names: set[str] = set()  # of its streams
        self._line = line
        self._ledger = ledger
        self._now = now
        self._deadline_s = UNBOUNDED_S if deadline_s is None else deadline_s
        self._streams = streams  # how many there are
        self._checked = checked  # told the size of the largest frame, raises when memory cannot hold them
        self._largest_b = 0
        self._stop = threading.Event()
        self._waiting: Ticket | None = None  # of a live source: what a newer frame is to replace
        self._tries = 0

    def run(self) -> None:
        """Carry every frame; return when the source has ended or was stopped. What it raised is kept."""
        try:
            if isinstance(self.source, Source):
                for captured in self.source:
                    if self._stop.is_set():
                        break
                    self._carry(captured)
            else:
                asyncio.run(self._run_async(self.source))
        except BaseException as error:  # the run reports it
            if not self._stop.is_set():
                self.error = error
        finally:
            waiting, self._waiting = self._waiting, None
            if waiting is not None:  # none newer came
                self._line.put(waiting)

    async def _run_async(self, source: AsyncSource) -> None:
        async for captured in source:
            if self._stop.is_set():
                break
            await asyncio.to_thread(self._carry, captured)

    def stop(self) -> None:
        """End soon: the source is closed, and the frame in hand is the last."""
        self._stop.set()
        try:
            self.source.close()
        except Exception as error:
            self.error = self.error or error

    def press(self, retry_after_s: float | None = None) -> None:
        """Tell the source how much room there is for each of its streams."""
        gate = self._line.gate
        streams = max(1, self._streams())
        credits_ = -(-gate.room() // streams)
        every = gate.terms.ladder[gate.level - 1].every if gate.level else 1
        for name in tuple(self.names):
            self._tell(Pressure(name, credits_, retry_after_s, every))

    def _tell(self, pressure: Pressure) -> None:
        try:
            self.source.press(pressure)
        except Exception as error:  # a source's own fault must not end the others
            self.error = self.error or error

    def _carry(self, captured: Captured) -> None:
        stream = self._ledger.name(captured.stream)
        self.names.add(stream)
        ticket = Ticket(stream, self._ledger.open(stream), min(captured.captured_at, self._now()))
        try:
            ticket.size_b = size_of(captured.pixels)
            if ticket.size_b > self._largest_b:
                self._checked(ticket.size_b)
                self._largest_b = ticket.size_b
        except BaseException:
            self._line.give_up(ticket, Reason.INVALID)
            raise
        ticket.load, ticket.facts = captured.pixels, captured.facts
        ticket.deadline = ticket.captured_at + self._deadline_s
        if captured.deadline is not None:
            ticket.deadline = min(ticket.deadline, captured.deadline)
        self._drop_waiting(Reason.REPLACED)
        let = self._offer_live(ticket) if self.source.live else self._put(ticket)
        if let is not None and let.entered:
            self._tries = 0
        self.press()

    def _put(self, ticket: Ticket) -> Let:
        line, began = self._line, self._now()
        let, tries = line.offer(ticket), 0
        while not let.entered and let.reason is None:
            tries += 1
            left_s = line.left_s(ticket, began)
            if left_s <= 0:
                return line.give_up(ticket)
            if tries == 1 or line.retry_after_s(tries) is not None:
                self.press(line.retry_after_s(tries))
            line.wait_for_room(tries, left_s)
            let = line.offer(ticket)
        return let

    def _offer_live(self, ticket: Ticket) -> Let | None:
        """Offer once. Where that would wait, wait, and leave the frame to be replaced by a newer one: on
        waking up the newest frame is worth more than the one that waited."""
        line = self._line
        let = line.offer(ticket)
        if let.entered or let.reason is not None:
            return let
        self._tries += 1
        left_s = line.left_s(ticket, self._now())
        self.press(line.retry_after_s(self._tries))
        line.wait_for_room(self._tries, left_s)
        self._waiting = ticket
        return None

    def _drop_waiting(self, reason: Reason) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._line.give_up(waiting, reason)


def source_of(given: Any, number: int, now: Callable[[], float]) -> Source | AsyncSource:
    """Return what was given as a source. Raises InvalidError for what gives no frames."""
    if isinstance(given, Source | AsyncSource):
        return given
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise InvalidError(
            "a source is an iterable of arrays, bytes or Captured, or one of forebay.sources, not"
            f" {given!r:.60}"
        )
    return Plain(given, f"stream-{number}", now)
