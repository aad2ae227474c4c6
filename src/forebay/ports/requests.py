"""Requests: where the door hands in what somebody waits for, in memory; nothing of it is stored."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from forebay.core.admission import Rejected
from forebay.core.basin import Asked
from forebay.core.job import Job
from forebay.core.knocks import Knocks
from forebay.core.requests import Ended, Request
from forebay.core.tenant import Held as HeldBy

OnEnd = Callable[[Ended], None]


class Held(NamedTuple):
    """What one task holds of requests now."""

    waiting: int
    running: int
    bytes: int  # of those that wait
    wait_s: float | None  # a request that comes now would start in so long; None: nobody knows


class Requests(Protocol):
    """The basin of this process. Calls are cheap, never wait and never raise."""

    @property
    def knocks(self) -> Knocks:
        """Where a door says who has connected: a run waits a moment for what they may ask."""
        ...

    def look(self, asked: Asked) -> Rejected | None:
        """Return why this request would be refused, None when it would be let in; takes nothing."""
        ...

    def offer(self, job: Job, on_end: OnEnd, *, frame: bool = False) -> Request | Rejected:
        """Let a request in or refuse it. `on_end` is called once, later, unless it is withdrawn before. The
        job's deadline must be set and its id be new. `frame`: it is one of a stream."""
        ...

    def withdraw(self, request: Request) -> None:
        """Whoever waited has gone."""
        ...

    def held(self, task: str) -> Held:
        """Return what a task holds."""
        ...

    def held_by(self, tenant: str) -> HeldBy:
        """Return the open requests of a tenant and their bytes, over all tasks."""
        ...
