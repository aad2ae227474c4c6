"""Link: the message broker as a relay uses it: each request bounded and counted, and whether it works."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from forebay.errors import DeliveryUnavailableError
from forebay.loops import tell
from forebay.ports.transport import Hint, Traits, Transport

T = TypeVar("T")
REQUEST_MAX_S: Final = 10.0  # one request; a broker that blocks who publishes is away
CLOSE_MAX_S: Final = 20.0  # each client has a shorter end of its own
LINE_MAX: Final = 300  # characters of an error that nobody thought of
BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0  # between two tries of a part that fails

# What is counted of hints. `dropped`: too many waited. `again`: were missing, and sent again.
EVENTS: Final = (
    "sent", "received", "acknowledged", "forged", "double", "stale", "given_back", "dropped", "again",
    "buried",
)  # fmt: skip


class Link:
    """A Transport that counts. It is up while no part of its work fails: sending, or receiving of a task."""

    def __init__(
        self,
        transport: Transport,
        *,
        on_down: Callable[[BaseException], None],
        on_up: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._on_down = on_down
        self._on_up = on_up
        self._failing: dict[str, float] = {}  # part of the work -> its next pause
        self.requests: Counter[str] = Counter()
        self.events: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        self.outages = 0

    @property
    def traits(self) -> Traits:
        """What the broker can and cannot do."""
        return self._transport.traits

    @property
    def up(self) -> bool:
        """Whether everything works."""
        return not self._failing

    def fails(self, part: str) -> bool:
        """Say whether a part of the work failed, and has not worked since."""
        return part in self._failing

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over."""
        await self._bounded("send", "send", self._transport.send(task, bodies))
        self.events["sent"] += len(bodies)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return hints, none after `wait_s`."""
        asked = self._transport.receive(task, limit=limit, wait_s=wait_s)
        hints = await self._bounded("receive", f"receive {task}", asked, wait_s)
        self.events["received"] += len(hints)
        return hints

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Be done with hints."""
        await self._bounded("ack", None, self._transport.ack(task, hints))
        self.events["acknowledged"] += len(hints)

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let hints come again."""
        await self._bounded("give_back", None, self._transport.give_back(task, hints, delay_s=delay_s))
        self.events["given_back"] += len(hints)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Put hints where the broker keeps dead letters."""
        await self._bounded("bury", None, self._transport.bury(task, bodies))
        self.events["buried"] += len(bodies)

    async def depth(self, task: str) -> int | None:
        """Return about how many hints there are."""
        return await self._bounded("depth", None, self._transport.depth(task))

    async def close(self) -> None:
        """Give back what is held and let go, within a bound; what fails of it comes again by itself."""
        try:
            async with asyncio.timeout(CLOSE_MAX_S):
                await self._transport.close()
        except TimeoutError:
            return
        except Exception as error:  # the store is to be closed all the same
            tell(f"let go of {self.traits.name}", error)

    def pause_s(self, part: str, jitter: float) -> float:
        """Return how long a part that failed waits before its next try; longer each time."""
        pause_s = self._failing.get(part, BACKOFF_MIN_S)
        if part in self._failing:
            self._failing[part] = min(BACKOFF_MAX_S, 2 * pause_s)
        return pause_s * (0.5 + jitter)

    async def _bounded(self, verb: str, part: str | None, asked: Awaitable[T], more_s: float = 0.0) -> T:
        """Await a request; of a `part`, note whether it works. Raises DeliveryUnavailableError."""
        self.requests[verb] += 1
        try:
            async with asyncio.timeout(REQUEST_MAX_S + more_s):
                answer = await asked
        except TimeoutError:
            late = DeliveryUnavailableError(f"{self.traits.name}: no answer to {verb} in {REQUEST_MAX_S:g} s")
            self._failed(part, late)
            raise late from None
        except DeliveryUnavailableError as error:
            self._failed(part, error)
            raise
        except Exception as error:  # whatever else a client raises must not end the loops that go on
            text = " ".join(f"{type(error).__name__}: {error}".split())[:LINE_MAX]
            odd = DeliveryUnavailableError(f"{self.traits.name}: {verb}: {text}")
            self._failed(part, odd)
            raise odd from error
        self._works(part)
        return answer

    def _failed(self, part: str | None, error: BaseException) -> None:
        if part is None or part in self._failing:
            return
        first = not self._failing
        self._failing[part] = BACKOFF_MIN_S
        if first:
            self.outages += 1
            self._on_down(error)

    def _works(self, part: str | None) -> None:
        if part is not None and self._failing.pop(part, None) is not None and not self._failing:
            self._on_up()
