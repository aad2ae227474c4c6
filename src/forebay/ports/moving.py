"""What a store that is moved to another engine hands over, beside what its verbs tell of it."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from forebay.core.crons import CronMark
from forebay.core.job import JobRecord
from forebay.core.numbered_ids import Former
from forebay.core.outbox import Delivery
from forebay.core.quarantine import DeadlyInput


class KeyOf(NamedTuple):
    """An idempotency key and the job that it means."""

    tenant: str
    key: str
    job_id: str
    body_hash: bytes


class Tap(NamedTuple):
    """A task that is paused or drains."""

    task: str
    paused: bool
    draining: bool


class Stone(NamedTuple):
    """A job that was removed: its id, or what stands for it (`core.numbered_ids.stone`), whose it was, if the
    id does not tell, and when."""

    job_id: str
    tenant: str = ""
    at: float = 0.0  # 0.0: not known, counts as now


class Load(NamedTuple):
    """Some jobs, with what belongs to each of them."""

    records: Sequence[JobRecord]
    deliveries: Sequence[Delivery]
    keys: Sequence[KeyOf]


class Rest(NamedTuple):
    """What belongs to no job."""

    marks: Sequence[CronMark]
    deadly: Sequence[DeadlyInput]
    taps: Sequence[Tap]
    former: Former | None  # so that ids of jobs that were removed are known, of the first store


class Arriving(Protocol):
    """What an engine has that can take in one other store. `origin` tells which."""

    async def begin(self, origin: str) -> bool:
        """Say whether all of it is here already. Raises ConfigError when this is no place for it."""
        ...

    async def put(self, load: Load) -> int:
        """Store jobs that are not here yet, whole or not at all; return how many those were."""
        ...

    async def bury(self, stones: Sequence[Stone]) -> None:
        """Remember removed jobs. Twice is harmless."""
        ...

    async def finish(self, origin: str, rest: Rest) -> None:
        """Store what belongs to no job, and that all of it is here."""
        ...


class Sealing(Protocol):
    """How a store that processes share is taken away, and given back."""

    async def begin(self) -> str:
        """Have the store take nothing any more, from nobody, and return what tells it from all others; again
        after a move was interrupted. Raises StoreLockedError while processes are connected, ConfigError when
        all of it was moved before."""
        ...

    async def turn_back(self) -> None:
        """Nothing will be moved now: let it take jobs again, unless a move before this one began it."""
        ...

    async def give_up(self) -> None:
        """Let the store take jobs again. What arrived elsewhere so far cannot be gone on with. Raises
        ConfigError when all of it was moved."""
        ...


class Leaving(Protocol):
    """What an engine that processes share has so that its jobs can be moved elsewhere."""

    @property
    def sealing(self) -> "Sealing":
        """Its hold on the store."""
        ...

    async def page(self, after: str | None, limit: int) -> list[JobRecord]:
        """Return jobs with their outputs, newest first, also those past their retention."""
        ...

    async def keys(self, ids: Sequence[str]) -> list[KeyOf]:
        """Return every idempotency key that means one of these jobs."""
        ...

    def stones(self) -> AsyncIterator[list[Stone]]:
        """Go through what is remembered of removed jobs."""
        ...

    async def counts(self) -> tuple[int, int | None]:
        """Return how many jobs and how many deliveries there are; None where nothing counts them."""
        ...

    async def rest(self) -> tuple[Sequence[DeadlyInput], Sequence[Tap], Former | None]:
        """Return what belongs to no job."""
        ...

    async def put_aside(self) -> None:
        """Say for good that all of it was moved."""
        ...
