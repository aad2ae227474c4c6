"""Place and what the checks of transports are written with."""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from forebay.conformance.fixtures import equal
from forebay.ports.transport import Hint, Transport

ARRIVES_MAX_S: Final = 30.0  # what is there must have come by then, on a busy machine
QUIET_S: Final = 0.5  # nothing that should not come comes meanwhile


class Place(Protocol):
    """A broker under check."""

    async def open(self) -> Transport:
        """Return one more connection to the same broker; the caller closes it."""
        ...

    def task(self, name: str = "echo") -> str:
        """Return a task name that no other check uses, which holds `name`."""
        ...


def seconds() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


def bodies(count: int, start: int = 0) -> list[bytes]:
    """Return so many different bodies."""
    return [b"hint %d" % number for number in range(start, start + count)]


async def received(transport: Transport, task: str, count: int, *, limit: int = 100) -> list[Hint]:
    """Return hints until there are `count` different bodies; raise AssertionError when they do not come."""
    found: list[Hint] = []
    until = seconds() + ARRIVES_MAX_S
    while len({hint.body for hint in found}) < count:
        if seconds() > until:
            raise AssertionError(f"{count} hints were due, {len(found)} came in {ARRIVES_MAX_S:g} s")
        found += await transport.receive(task, limit=limit, wait_s=1.0)
    return found


async def none_left(transport: Transport, task: str) -> None:
    """Raise AssertionError when a hint comes."""
    equal(
        [hint.body for hint in await transport.receive(task, limit=100, wait_s=QUIET_S)], [], "what is left"
    )


async def counts(transport: Transport, task: str, count: int) -> None:
    """Raise AssertionError when the depth does not become `count`."""
    if not transport.traits.counted:
        equal(await transport.depth(task), None, "a depth that nobody can know")
        return
    until = seconds() + ARRIVES_MAX_S
    while (told := await transport.depth(task)) != count:
        if seconds() > until:
            raise AssertionError(f"depth: {count} hints wait or are held, it says {told}")
        await transport.receive(transport_idle(task), limit=1, wait_s=0.05)


def transport_idle(task: str) -> str:
    """Return the name of a task that has no hints, to wait by."""
    return f"{task}-idle"[-60:]


def same(hints: Sequence[Hint], expected: Sequence[bytes], what: str) -> None:
    """Raise AssertionError when the bodies differ."""
    equal(sorted({hint.body for hint in hints}), sorted(expected), what)
