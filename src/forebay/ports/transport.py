"""Transport: how a message broker delivers hints that a task has work; the store alone says what the work is.

A hint may be lost, come twice, late or out of order, or be forged: nothing of that loses a job or runs one
twice, because leases come from the store. What a transport must not do is to keep a hint for good that it
neither delivers nor gives back. Every verb raises DeliveryUnavailableError when the broker cannot be reached,
refuses, or the transport is closed; what a writing verb did is unknown then.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

BODY_MAX: Final = 1_000  # bytes of one hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a message broker can and cannot do, said aloud."""

    name: str  # of the broker, for people
    counted: bool  # `depth` knows; else it returns None
    each: bool  # hints are acknowledged one by one, not up to a place
    delays: bool  # `give_back` keeps a hint away for so long; else it may come again at once
    durable: bool  # hints survive a restart of the broker
    note: str = ""  # what an operator should know: a limit, a setting


class Hint(NamedTuple):
    """One delivery. `token` is the transport's own: what it needs to acknowledge it."""

    body: bytes
    token: object


class Transport(Protocol):
    """One connection to a message broker; makes what it needs there when it is first used, and makes it again
    when somebody removed it. For one event loop; verbs may run side by side, of one task too."""

    @property
    def traits(self) -> Traits:
        """What this broker can and cannot do."""
        ...

    def send(self, task: str, bodies: Sequence[bytes]) -> Awaitable[None]:
        """Hand hints over; when it returns the broker has them, as safe as it makes them."""
        ...

    def receive(self, task: str, *, limit: int, wait_s: float) -> Awaitable[list[Hint]]:
        """Return up to `limit` hints as soon as there is one; none after `wait_s`.

        Who is cancelled meanwhile loses none: what had arrived is returned next time, or given back.
        """
        ...

    def ack(self, task: str, hints: Sequence[Hint]) -> Awaitable[None]:
        """Be done with hints: they do not come again, at best. A hint that is not held any more, because its
        connection was lost or its time is over, is passed over in silence."""
        ...

    def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> Awaitable[None]:
        """Let hints come again, here or elsewhere, after about `delay_s`, or what the broker allows of it."""
        ...

    def bury(self, task: str, bodies: Sequence[bytes]) -> Awaitable[None]:
        """Put hints of jobs that ended dead where the broker keeps dead letters, for people and their tools.
        `receive` never returns them, and the broker keeps a bounded number or time of them."""
        ...

    def depth(self, task: str) -> Awaitable[int | None]:
        """Return about how many hints of a task wait or are held by somebody; None when nobody can know."""
        ...

    def forget(self, task: str) -> Awaitable[None]:
        """Remove what was made for a task, its dead letters too. For checks and for people."""
        ...

    def close(self) -> Awaitable[None]:
        """Give back what is held and let go of everything. Twice is harmless."""
        ...
