"""PubSubTransport: hints as messages of one topic and one subscription for each task."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay.brokers.pubsub.address import Address
from forebay.brokers.pubsub.asking import Service
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX, Hint, Traits

PULL_MOST: Final = 100  # messages of one pull
PULLS_MAX: Final = 80  # at once: a connection carries 100 requests, and the others must not wait for pulls
HELD_MAX: Final = 10_000  # hints remembered to be given back at the end; older ones come again by themselves
UNASKED_S: Final = 2.0  # what came for somebody who asks no more goes back after so long
CLOSE_MAX_S: Final = 5.0
CLOSED: Final = "the connection to Pub/Sub is closed"

TRAITS: Final = Traits(
    name="Google Pub/Sub",
    counted=False,
    each=True,
    delays=True,
    durable=True,
    note="nobody can know how many hints wait; what a server that died had taken comes again after 30 s "
    "(`ack_deadline=`), what is given back after whole seconds, 600 at most",
)


class Token(NamedTuple):
    """What acknowledges one delivery."""

    ack_id: str


class _Line:
    """What one task's pulls brought: one pull at a time, which ends by itself, whoever stops waiting."""

    def __init__(self) -> None:
        self.came: deque[Hint] = deque()
        self.pulling: asyncio.Task[None] | None = None
        self.waiting = 0
        self.held: dict[Token, None] = {}


def _heard(pulling: "asyncio.Task[None]") -> None:
    """An error that nobody waits for is told by the next pull, which meets it too."""
    if not pulling.cancelled():
        pulling.exception()


class PubSubTransport:
    """One connection to a project. Topics and subscriptions are made when they are first used."""

    traits = TRAITS

    def __init__(self, address: Address, emulator: str | None = None) -> None:
        self._address = address
        self._service = Service(address, emulator)
        self._lines: dict[str, _Line] = {}
        self._returning: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._pulls = asyncio.Semaphore(PULLS_MAX)

    @classmethod
    async def open(cls, url: str, emulator: str | None = None) -> "PubSubTransport":
        """Return a connection when the project can be used; nothing is made. `emulator`: host:port of one.

        Raises ConfigError for a wrong URL or without the extra, DeliveryUnavailableError for all else.
        """
        transport = cls(Address.of(url), emulator)
        try:
            await transport._service.connect()
        except BaseException:
            await transport.close()
            raise
        return transport

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over; returns when the service has stored them."""
        self._check()
        await self._service.publish(self._address.name(task), bodies)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Publish dead letters to the topic that ends in `--dead`; its subscription keeps them for the
        retention."""
        self._check()
        await self._service.publish(self._address.dead_name(task), bodies)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return hints as soon as one comes. A pull goes on when nobody waits for it any more: what it
        brings is returned next time, or given back."""
        self._check()
        line = self._lines.setdefault(task, _Line())
        ends_at = asyncio.get_running_loop().time() + wait_s
        line.waiting += 1
        try:
            while not line.came:
                if line.pulling is None or line.pulling.done():
                    line.pulling = asyncio.ensure_future(self._pull(task, line, min(limit, PULL_MOST)))
                    line.pulling.add_done_callback(_heard)
                left_s = ends_at - asyncio.get_running_loop().time()
                await asyncio.wait([line.pulling], timeout=max(0.0, left_s))
                self._check()
                if line.pulling.done():
                    line.pulling.result()
                elif not line.came:
                    return []
                if not line.came and asyncio.get_running_loop().time() >= ends_at:
                    return []
            return [line.came.popleft() for _ in range(min(limit, len(line.came)))]
        finally:
            line.waiting -= 1

    async def _pull(self, task: str, line: _Line, limit: int) -> None:
        async with self._pulls:
            came = await self._service.pull(self._address.name(task), limit)
        for data, ack_id in came:
            hint = Hint(data[: BODY_MAX + 1], Token(ack_id))  # a longer one is not ours
            line.came.append(hint)
            line.held[Token(ack_id)] = None
            if len(line.held) > HELD_MAX:
                del line.held[next(iter(line.held))]
        if line.came and not line.waiting:
            returning = asyncio.ensure_future(self._return(task, line))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)

    async def _return(self, task: str, line: _Line) -> None:
        """Give back what came for somebody who is gone, unless somebody asks within a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNASKED_S):
                await self._ending.wait()
        if line.came and not line.waiting and not self._closed:
            hints = list(line.came)
            line.came.clear()
            with contextlib.suppress(DeliveryUnavailableError):
                await self.give_back(task, hints, delay_s=0.0)

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Be done with hints; those whose time is over are passed over."""
        self._check()
        if ids := self._let_go(task, hints):
            await self._service.acknowledge(self._address.name(task), ids)

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let hints come again, here or elsewhere, after whole seconds: 600 at most."""
        self._check()
        if ids := self._let_go(task, hints):
            await self._service.defer(self._address.name(task), ids, delay_s)

    def _let_go(self, task: str, hints: Sequence[Hint]) -> list[str]:
        line = self._lines.get(task)
        tokens = [hint.token for hint in hints if isinstance(hint.token, Token)]
        for token in tokens if line is not None else ():
            line.held.pop(token, None)  # type: ignore[union-attr]
        return [token.ack_id for token in tokens]

    async def depth(self, task: str) -> int | None:
        """Return None: the service tells it to its monitoring alone, minutes later."""
        self._check()
        return None

    async def forget(self, task: str) -> None:
        """Remove the topics and subscriptions of a task."""
        self._check()
        for name in (self._address.name(task), self._address.dead_name(task)):
            await self._service.remove(name)

    async def close(self) -> None:
        """Give back what is held, and let go of the channel."""
        if self._closed:
            return
        self._ending.set()
        pulls = [line.pulling for line in self._lines.values() if line.pulling is not None]
        for waiting in (*self._returning, *pulls):
            waiting.cancel()
        await asyncio.gather(*self._returning, *pulls, return_exceptions=True)
        with contextlib.suppress(DeliveryUnavailableError, TimeoutError):
            async with asyncio.timeout(CLOSE_MAX_S):
                for task, line in self._lines.items():
                    ids = [token.ack_id for token in line.held]
                    await self._service.defer(self._address.name(task), ids, 0.0)
        await self._service.close()

    @property
    def _closed(self) -> bool:
        return self._ending.is_set()

    def _check(self) -> None:
        if self._closed:
            raise DeliveryUnavailableError(CLOSED)
