"""JobEvent, Following, PartReader: the events of one job as they come, over whatever breaks in between.

No network here: both clients open what `Following.call` says and feed it what they read.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeGuard

from forebay.client.faults import RemoteError, StreamRestartedError, fault_of
from forebay.client.plans import Terms
from forebay.client.policy import Hint, may_repeat
from forebay.client.wire import Answer, Call, Lost, View, job_path, object_of
from forebay.errors import NotFinishedError, TooLargeError

EVENTS_TIMEOUT: Final = "24h"
SILENT_S: Final = 45.0  # a stream without so much as a heartbeat for so long is broken
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024
ACCEPT: Final = ("accept", "text/event-stream")


class JobEvent(NamedTuple):
    """One event of a job: `kind` is status, eta, progress, partial, restart, gap, accepted or done; `data`
    is what the server tells with it. `id` is None for events that only repeat what is known."""

    kind: str
    data: View
    id: str | None = None


class Parser:
    """Cuts a stream of bytes into events. Holds at most EVENT_BYTES_MAX."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[JobEvent]:
        """Return the events that are whole now. Raises TooLargeError and RemoteError."""
        self._rest += piece
        if len(self._rest) > EVENT_BYTES_MAX:
            raise TooLargeError(f"an event is larger than {EVENT_BYTES_MAX} bytes", limit=EVENT_BYTES_MAX)
        *blocks, last = bytes(self._rest).split(b"\n\n")
        if blocks:
            self._rest = bytearray(last)
        events = [_event(block) for block in blocks]
        return [event for event in events if event is not None]


def _event(block: bytes) -> JobEvent | None:
    fields: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    if "event" not in fields or "data" not in fields:
        return None
    try:
        data = object_of(json.loads(fields["data"]))
    except (ValueError, RecursionError):
        data = None
    if data is None:
        raise RemoteError("an event is not JSON: is this a Forebay server?")
    return JobEvent(fields["event"], data, fields.get("id"))


class Following:
    """Where a reader of one job's events is: what to open next, and how long to wait before."""

    def __init__(self, job_id: str, timeout_s: float, terms: Terms, first: Call | None = None) -> None:
        self.done = False
        self._job_id = job_id
        self._terms = terms
        self._first = first  # a submission that is answered with events, until one was
        self._last_id: str | None = None
        self._patience = terms.patience()
        self._ends_at = terms.now() + timeout_s
        self._timeout_s = timeout_s
        self._retry_s: float | None = None
        self._parser = Parser()

    def call(self) -> Call:
        """Return the request that opens the stream now. Raises NotFinishedError when the time is over."""
        self._check()
        self._parser = Parser()
        if self._first is not None:
            return self._first
        resume = () if self._last_id is None else (("last-event-id", self._last_id),)
        return Call("GET", job_path(self._job_id, "/events"), headers=(ACCEPT, *resume))

    @property
    def silence_s(self) -> float:
        """How long nothing may come now."""
        return max(0.05, min(SILENT_S, self._ends_at - self._terms.now()))

    def feed(self, piece: bytes) -> Iterator[JobEvent]:
        """Yield the events for the user. Raises NotFinishedError when the time is over."""
        for event in self._parser.feed(piece):
            self._patience.success(self._terms.now())
            if event.kind == "accepted":
                self._job_id, self._first = str(event.data.get("job_id")), None
            if event.id is not None:
                self._last_id = event.id
            if event.kind == "closing":
                after = event.data.get("retry_after_s")
                self._retry_s = float(after) if isinstance(after, int | float) else None
                continue
            self.done = event.kind == "done"
            yield event
        self._check()

    def broken(self, reply: Answer | Lost | None) -> float:
        """Take in that there is no stream, or no more of it (None); return the seconds to wait.

        Raises the ForebayError of the answer when trying again is useless or has lasted too long.
        """
        self._check()
        after_s, self._retry_s = self._retry_s, None
        if reply is None:
            wait_s = self._patience.wait_s(Hint(after_s), now=self._terms.now(), draw=self._terms.draw())
            reply = Lost("the stream ended before the job did", sent=True)
        elif may_repeat(self._first or Call("GET", ""), reply):
            wait_s = self._patience.refused(reply, now=self._terms.now(), draw=self._terms.draw())
        else:
            wait_s = None
        if wait_s is None:
            raise fault_of(reply, self._terms.url)
        return min(wait_s, max(0.0, self._ends_at - self._terms.now()))

    def _check(self) -> None:
        if not self.done and self._terms.now() >= self._ends_at:
            what = self._job_id or "the job"
            raise NotFinishedError(f"{what} has not ended after {self._timeout_s:g} s of reading its events")


class PartReader:
    """Turns the events of a job into the parts of its output, each once and in order, whatever is missed on
    the way: what did not come live comes with the end."""

    def __init__(self) -> None:
        self.view: View | None = None  # the finished job
        self._given: list[Any] = []

    def take(self, event: JobEvent) -> list[Any]:
        """Return the parts that are new. Raises StreamRestartedError when the job began anew and yields
        something else than was given out already."""
        if event.kind in {"accepted", "done"}:
            self.view = event.data
        if event.kind != "partial":
            return []
        index, parts = event.data.get("index"), event.data.get("parts")
        if not isinstance(index, int) or not _is_list(parts):
            raise RemoteError("a partial event has no index or no parts")
        return self._new(index, parts)

    def rest(self, result: Any) -> list[Any]:
        """Return the parts that never came live. The result of a job that yields none is its only part."""
        parts: list[Any] = result if _is_list(result) else [result]
        if len(parts) < len(self._given):
            raise StreamRestartedError
        return self._new(0, parts)

    def _new(self, index: int, parts: list[Any]) -> list[Any]:
        held = len(self._given)
        if index > held:  # some were missed: the end will bring them
            return []
        known = held - index
        if parts[:known] != self._given[index : index + len(parts)]:
            raise StreamRestartedError
        new = parts[known:]
        self._given += new
        return new


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
