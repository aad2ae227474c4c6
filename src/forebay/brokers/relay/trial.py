"""RelayTrial: a relay as the checks of the contract get it: in front of a store's own trial."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, cast

from forebay.brokers.relay.engine import Relay, relayed
from forebay.errors import DeliveryUnavailableError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.ports.transport import Hint, Traits, Transport

CONNECT_TRIES: Final = 3
AGAIN_S: Final = 1.0


class Trial(Protocol):
    """The store under check."""

    async def open(self) -> Broker:
        """Return it on a new store."""
        ...

    async def reopen(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return it on the same store."""
        ...

    async def remove(self) -> None:
        """Remove what was made."""
        ...


class RelayTrial:
    """The store goes by the times it is given, the relay by this machine's clock. Tasks have names of their
    own in the broker, and are forgotten there before the next check and at the end: hundreds of queues are
    more than a small broker bears."""

    def __init__(self, store: Trial, connect: Callable[[], Awaitable[Transport]], *, clock: Clock) -> None:
        self._store = store
        self._connect = connect
        self._clock = clock
        self._prefix = ""
        self._tasks: set[str] = set()
        self._last = ""  # a task that was forgotten
        self._opened: list[Relay] = []  # a check may leave one open
        self._answered = False  # the broker was there

    async def open(self) -> Broker:
        """Return the engine on a new store."""
        await self._forget()
        self._prefix = f"conform-{secrets.token_hex(4)}-"
        return await self._open(await self._store.open())

    async def reopen(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return the engine on the same store. A crash sends and acknowledges nothing more."""
        relay = cast("Relay", broker)
        if crash:
            await relay.abandon()
        else:
            await relay.close()
        return await self._open(await self._store.reopen(relay.store, crash=crash, now=now))

    async def remove(self) -> None:
        """Remove the store, and what was made in the broker."""
        if self._last:  # what belongs to no task goes with the last one
            self._tasks.add(self._last)
        try:
            await self._forget()
        finally:
            await self._store.remove()

    async def _forget(self) -> None:
        for relay in self._opened:
            await relay.close()
        self._opened.clear()
        if not self._tasks:
            return
        transport = await self._connected()
        try:
            for task in sorted(self._tasks):
                await transport.forget(task)
                self._last = task
        finally:
            self._tasks.clear()
            await transport.close()

    async def _connected(self) -> Transport:
        """Return a connection. Where one was there before it is tried again: each check makes a new one, and
        a machine that stalls for seconds is not what is checked."""
        for tries_left in reversed(range(CONNECT_TRIES)):
            try:
                transport = await self._connect()
            except DeliveryUnavailableError:
                if not self._answered or not tries_left:
                    raise
                await self._clock.sleep(AGAIN_S)
            else:
                self._answered = True
                return transport
        raise AssertionError  # the last try returned or raised

    async def _open(self, store: Broker) -> Broker:
        transport = _Named(await self._connected(), self._prefix, self._tasks)
        relay = await Relay.open(store, transport, clock=self._clock)
        self._opened.append(relay)
        return relayed(relay)


class _Named:
    """A transport whose tasks have a name before their own."""

    def __init__(self, inner: Transport, prefix: str, used: set[str]) -> None:
        self._inner = inner
        self._prefix = prefix
        self._used = used

    @property
    def traits(self) -> Traits:
        return self._inner.traits

    def _name(self, task: str) -> str:
        name = f"{self._prefix}{task}"
        self._used.add(name)
        return name

    def send(self, task: str, bodies: Sequence[bytes]) -> Awaitable[None]:
        return self._inner.send(self._name(task), bodies)

    def receive(self, task: str, *, limit: int, wait_s: float) -> Awaitable[list[Hint]]:
        return self._inner.receive(self._name(task), limit=limit, wait_s=wait_s)

    def ack(self, task: str, hints: Sequence[Hint]) -> Awaitable[None]:
        return self._inner.ack(self._name(task), hints)

    def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> Awaitable[None]:
        return self._inner.give_back(self._name(task), hints, delay_s=delay_s)

    def bury(self, task: str, bodies: Sequence[bytes]) -> Awaitable[None]:
        return self._inner.bury(self._name(task), bodies)

    def depth(self, task: str) -> Awaitable[int | None]:
        return self._inner.depth(self._name(task))

    def forget(self, task: str) -> Awaitable[None]:
        return self._inner.forget(self._name(task))

    def close(self) -> Awaitable[None]:
        return self._inner.close()
