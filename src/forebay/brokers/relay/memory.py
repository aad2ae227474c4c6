"""MemoryHub, MemoryTransport: a message broker in memory, which can lose, double, delay and mix up."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import Hint, Traits

DEAD_MAX: Final = 1_000
HINTS_MAX: Final = 1_000_000


@dataclass(slots=True)
class Faults:
    """What the hub does to hints, each as a share of them. `draw` returns numbers in [0, 1)."""

    draw: Callable[[], float] = lambda: 1.0
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    late_s: float = 1.0
    mixed: bool = False  # any of what waits is next
    away: bool = False  # every verb fails
    blocked: bool = False  # a sender waits, and nothing comes of it


@dataclass(slots=True)
class _Queue:
    waiting: deque[bytes] = field(default_factory=deque[bytes])
    held: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryHub:
    """What connections share."""

    def __init__(self, faults: Faults | None = None, *, counted: bool = True, delays: bool = True) -> None:
        self.faults = faults or Faults()
        self.queues: dict[str, _Queue] = {}
        self.dead: dict[str, deque[bytes]] = {}
        self.traits = Traits(name="memory", counted=counted, each=True, delays=delays, durable=False)

    def queue(self, task: str) -> _Queue:
        """Return the queue of a task."""
        return self.queues.setdefault(task, _Queue())

    def depth(self, task: str) -> int:
        """Return how many hints of a task wait or are held."""
        queue = self.queue(task)
        return len(queue.waiting) + queue.held

    def put(self, task: str, body: bytes) -> None:
        """Put a hint into a queue, or do to it what the faults say."""
        faults, queue = self.faults, self.queue(task)
        if faults.draw() < faults.lost or len(queue.waiting) >= HINTS_MAX:
            return
        for _ in range(2 if faults.draw() < faults.doubled else 1):
            if faults.draw() < faults.late:
                asyncio.get_running_loop().call_later(faults.late_s, self.arrive, task, body)
            else:
                self.arrive(task, body)

    def arrive(self, task: str, body: bytes) -> None:
        """Let a hint be there."""
        queue = self.queue(task)
        queue.waiting.append(body)
        queue.news.set()

    def take(self, task: str, limit: int) -> list[bytes]:
        """Take hints out, to be held."""
        queue, found = self.queue(task), list[bytes]()
        while queue.waiting and len(found) < limit:
            if self.faults.mixed:
                queue.waiting.rotate(int(self.faults.draw() * len(queue.waiting)))
            found.append(queue.waiting.popleft())
        queue.held += len(found)
        if not queue.waiting:
            queue.news.clear()
        return found

    def lose_all(self) -> None:
        """Forget every queue, as a broker whose disk was taken away."""
        for queue in self.queues.values():
            queue.waiting.clear()
            queue.news.clear()

    def check(self) -> None:
        """Raise DeliveryUnavailableError while it is away."""
        if self.faults.away:
            raise DeliveryUnavailableError("memory: it is away")


class MemoryTransport:
    """A ports.transport.Transport on a hub."""

    def __init__(self, hub: MemoryHub) -> None:
        self._hub = hub
        self._held: dict[object, tuple[str, bytes]] = {}
        self._away: dict[object, asyncio.TimerHandle] = {}
        self._closed = False
        self.traits = hub.traits

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over."""
        self._check()
        if self._hub.faults.blocked:
            await asyncio.Event().wait()
        for body in bodies:
            self._hub.put(task, body)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return hints as soon as there is one."""
        self._check()
        queue = self._hub.queue(task)
        try:
            async with asyncio.timeout(wait_s):
                while not queue.waiting:
                    queue.news.clear()
                    await queue.news.wait()
                    self._check()
        except TimeoutError:
            self._check()
        hints = [Hint(body, object()) for body in self._hub.take(task, limit)]
        for hint in hints:
            self._held[hint.token] = (task, hint.body)
        return hints

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Be done with hints."""
        self._check()
        for hint in hints:
            if self._held.pop(hint.token, None) is not None:
                self._hub.queue(task).held -= 1

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let hints come again after a while."""
        self._check()
        loop = asyncio.get_running_loop()
        for hint in hints:
            if hint.token in self._held:
                self._away[hint.token] = loop.call_later(delay_s, self._return, hint.token)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Keep dead letters, the newest."""
        self._check()
        self._hub.dead.setdefault(task, deque(maxlen=DEAD_MAX)).extend(bodies)

    async def depth(self, task: str) -> int | None:
        """Return how many hints wait or are held."""
        self._check()
        return self._hub.depth(task) if self.traits.counted else None

    async def forget(self, task: str) -> None:
        """Remove what there is of a task."""
        self._check()
        self._hub.queue(task).waiting.clear()
        self._hub.dead.pop(task, None)

    async def close(self) -> None:
        """Give back what is held."""
        self._closed = True
        for timer in self._away.values():
            timer.cancel()
        for token in list(self._held):
            self._return(token)
        for queue in self._hub.queues.values():
            queue.news.set()  # whoever waits finds that this one is closed

    def _return(self, token: object) -> None:
        self._away.pop(token, None)
        held = self._held.pop(token, None)
        if held is not None:
            task, body = held
            self._hub.queue(task).held -= 1
            self._hub.arrive(task, body)

    def _check(self) -> None:
        if self._closed:
            raise DeliveryUnavailableError("memory: closed")
        self._hub.check()
