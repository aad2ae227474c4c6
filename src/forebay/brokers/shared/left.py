"""How a store that processes share is taken away to be moved: nobody may be there, and it takes no more."""

import secrets
from typing import Final, NamedTuple, Protocol

from forebay.errors import ConfigError, StoreLockedError
from forebay.ports.clock import Clock

LOOKS_MAX: Final = 10  # at who is connected: a server takes a moment to notice that a process has gone
LOOK_S: Final = 0.1


def left_line(label: str, *, done: bool) -> str:
    """Return one line for who wants to serve it."""
    if done:
        return f"broker: {label}: its jobs were moved to another engine by `forebay migrate`"
    return (
        f"broker: {label}: its jobs are being moved to another engine: let `forebay migrate` end,"
        " or take it back with --give-up"
    )


def arriving_line(label: str) -> str:
    """Return one line for who wants to serve a store that another one is being moved to. Jobs arrive newest
    first: what runs before all are there may run out of its order, or twice."""
    return (
        f"broker: {label}: the jobs of another engine are on their way there: let `forebay migrate` end,"
        " or remove what has arrived"
    )


class Seal(NamedTuple):
    """What stands on a store that takes nothing more."""

    origin: str
    done: bool  # all of it was moved


class Sealed(Protocol):
    """What an engine does about its seal."""

    async def users(self) -> int:
        """Return how many processes are connected."""
        ...

    async def seal(self, fresh: str) -> Seal:
        """Put the seal on under this name, or leave the one that is there; return what stands."""
        ...

    async def unseal(self) -> bool:
        """Take it off where there is one. Returns False when all was moved: then it stays."""
        ...


class Sealing:
    """A move's hold on a store. `label` names it for people."""

    def __init__(self, store: Sealed, label: str, clock: Clock) -> None:
        self._store = store
        self._label = label
        self._clock = clock
        self._ours = False  # the seal was put on here, and not by a move that was interrupted

    async def begin(self) -> str:
        """Have the store take nothing any more; return what tells it from all others."""
        await self._check_idle()
        fresh = secrets.token_hex(16)
        origin, done = await self._store.seal(fresh)
        self._ours = origin == fresh
        if done:
            raise ConfigError(f"--from: {self._label}: all of it was moved before")
        try:
            await self._check_idle()  # who came in between
        except StoreLockedError:
            await self.turn_back()
            raise
        return origin

    async def turn_back(self) -> None:
        """Nothing will be moved now: let it take jobs again, unless a move before this one began it."""
        if self._ours:
            await self.give_up()

    async def give_up(self) -> None:
        """Let the store take jobs again."""
        if not await self._store.unseal():
            raise ConfigError(f"--from: {self._label}: all of it was moved, and may have been run since")
        self._ours = False

    async def _check_idle(self) -> None:
        """Return when no process is connected. Raises StoreLockedError when some still are after a second."""
        count = 0
        for _ in range(LOOKS_MAX):
            count = await self._store.users()
            if not count:
                return
            await self._clock.sleep(LOOK_S)
        raise StoreLockedError(
            f"--from: {self._label} is in use by {count} process{'es' * (count != 1)}: stop them first"
        )
