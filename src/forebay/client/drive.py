"""drive, adrive: carry out a plan, blocking or awaiting. The only difference between the two clients."""

import asyncio
import time
from typing import Protocol, TypeVar

from forebay.client.plans import Plan, Terms
from forebay.client.transport import AsyncTransport, SyncTransport
from forebay.client.wire import Answer, Lost, Pause

T = TypeVar("T")


class Runs(Protocol):
    """A client that blocks."""

    @property
    def terms(self) -> Terms:
        """How long its verbs try."""
        ...

    def run(self, plan: Plan[T]) -> T:
        """Return what a plan comes to."""
        ...


class RunsLater(Protocol):
    """A client that awaits."""

    @property
    def terms(self) -> Terms:
        """How long its verbs try."""
        ...

    async def run(self, plan: Plan[T]) -> T:
        """Return what a plan comes to."""
        ...


def drive(plan: Plan[T], transport: SyncTransport) -> T:
    """Return what the plan returns; raises what it raises."""
    reply: Answer | Lost | None = None
    try:
        while True:
            step = plan.send(reply)
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                reply = None
            else:
                reply = transport.send(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def adrive(plan: Plan[T], transport: AsyncTransport) -> T:
    """Return what the plan returns; raises what it raises."""
    reply: Answer | Lost | None = None
    try:
        while True:
            step = plan.send(reply)
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                reply = None
            else:
                reply = await transport.send(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
