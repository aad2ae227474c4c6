"""Source, AsyncSource, Sink: what a pipeline asks of where frames come from and where results go.

Plain classes satisfy them; nothing need be inherited. A pipeline takes any iterable of arrays, bytes or
Captured in the place of a Source, and any function of one Result in the place of a Sink.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Captured:
    """One frame as a source gives it.

    `pixels`: a numpy array, or bytes (a JPEG, say). The pipeline holds it without a copy, so the source
    leaves it alone from now on: it gives a fresh array, or a copy of its buffer.
    `captured_at`: seconds since the epoch, as near to the lens as the source knows. Ages and deadlines count
    from it. `deadline`: an instant of this frame's own, when the pipeline's is not meant.
    """

    pixels: Any
    stream: str
    captured_at: float
    deadline: float | None = None
    facts: Mapping[str, Any] | None = None  # JSON values that go along to the stages and the sinks


class Pressure(NamedTuple):
    """What a source is told about one of its streams, when it changes."""

    stream: str
    credits: int  # frames that have room now: more than these wait, degrade or are dropped
    retry_after_s: float | None = None  # send nothing for so long, then the newest; None: send on
    every: int = 1  # one frame in so many is wanted: more than 1 while frames are decimated


@runtime_checkable
class Source(Protocol):
    """Where frames come from. The pipeline iterates it once, in a thread of its own.

    An iterator that ends ends its streams. One that raises ends them with that error, which the run reports:
    a source that can reconnect does so inside. `next` may wait for as long as nothing comes.
    """

    @property
    def live(self) -> bool:
        """Whether the world goes on while nobody reads (a camera, a push).

        A live source gives, at each `next`, the newest frame it has: the pipeline, having waited for room,
        takes a newer one in the place of the one that waited. One that is not live (a file) waits.
        """
        ...

    @property
    def item_bytes_max(self) -> int | None:
        """Bytes of its largest frame, None when not known before the first: to refuse what cannot fit."""
        ...

    def __iter__(self) -> Iterator[Captured]:
        """Return its frames, those of one stream in the order of their capture."""
        ...

    def press(self, pressure: Pressure) -> None:
        """Hear how much room there is. Called by any thread, often; must return at once and not raise.

        To obey is the source's kindness: a camera lowers its rate, a push server hands the credits on.
        What comes in spite of it is dropped by the stage's policy, and counted.
        """
        ...

    def counts(self) -> Mapping[str, int]:
        """Return what it knows itself, by name: `reconnects`, `skipped` (frames never offered), and so on.

        Called by any thread. Every name must be one of a few, and every count only grow.
        """
        ...

    def close(self) -> None:
        """End soon, from any thread: a `next` that waits returns or stops within a second. Twice is once."""
        ...


@runtime_checkable
class AsyncSource(Protocol):
    """The same by `async for`. Iterated once, in an event loop in a thread of its own; `press`, `counts` and
    `close` come from other threads all the same."""

    @property
    def live(self) -> bool:
        """See Source."""
        ...

    @property
    def item_bytes_max(self) -> int | None:
        """See Source."""
        ...

    def __aiter__(self) -> AsyncIterator[Captured]:
        """See Source."""
        ...

    def press(self, pressure: Pressure) -> None:
        """See Source."""
        ...

    def counts(self) -> Mapping[str, int]:
        """See Source."""
        ...

    def close(self) -> None:
        """See Source."""
        ...


class Result(NamedTuple):
    """What the last stage made of one frame."""

    value: Any  # as it was returned; arrays in it are copies of its own
    stream: str
    seq: int  # numbers what its stream offered; a gap is what was dropped
    captured_at: float  # seconds since the epoch
    served_at: float
    degraded: int = 0  # 0: as it came; else the step of the ladder it was let in at
    fallback: bool = False  # a stage's fallback answered in the place of its model
    facts: Mapping[str, Any] | None = None  # those of its Captured


@runtime_checkable
class Sink(Protocol):
    """Where results go. Called by one thread at a time, results of one stream in their order.

    While `write` waits, the last stage waits: a sink whose readers are slow has a bounded buffer of its own
    and says in `counts` what it dropped from it. One that raises loses that result, counted by the pipeline.
    """

    def write(self, result: Result) -> None:
        """Take one result."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return what it knows itself, by name: `dropped`, `readers`, and so on. Called by any thread."""
        ...

    def close(self) -> None:
        """Write out what it holds and end; called once, after the last result."""
        ...
