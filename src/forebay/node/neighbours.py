"""Neighbours: what this process tells of its node on a shared engine, and what it knows of the others."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from forebay.core.estimator import Estimator
from forebay.core.scaling import deletion_cost
from forebay.errors import ForebayError
from forebay.loops import goes_on
from forebay.ports.clock import Clock
from forebay.ports.nodes import Nodes

TELL_S: Final = 1.0
FRESH_S: Final = 10.0  # a node that told nothing for so long is not shown any more
RUNS_TOLD_MAX: Final = 32  # of one task: the newest
WORKERS_TOLD_MAX: Final = 256  # replicas of one node
LEAVE_MAX_S: Final = 2.0  # for the last word


class Ran(NamedTuple):
    """One run of a batch, numbered from the start of its process."""

    number: int
    items: int
    took_s: float
    size_b: int
    level: int


class TaskTold(msgspec.Struct, array_like=True):
    """What a node tells of one task; the counts are of its whole life."""

    ready: int = 0
    level: int = 0
    final: int = 0
    again: int = 0
    runs: list[Ran] = []
    breaker: dict[str, Any] | None = None


class NodeTold(msgspec.Struct):
    """What a node tells of itself. Unknown fields of a newer version are passed over."""

    workers: list[dict[str, Any]] = []
    tasks: dict[str, TaskTold] = {}
    unready: str | None = None
    host: str = ""
    started_at: float = 0.0
    idle_s: float = 0.0  # for so long nothing ran
    draining: bool = False


class Recorded(Estimator):
    """An estimator that also remembers what it was told, for others."""

    def __init__(self, *, task: str = "", batch_max: int = 1, concurrency: int = 1) -> None:
        super().__init__(task=task, batch_max=batch_max, concurrency=concurrency)
        self.runs: deque[Ran] = deque(maxlen=RUNS_TOLD_MAX)
        self.final = self.again = 0
        self._number = 0

    def ran(self, *, items: int, took_s: float, size_b: int = 0, level: int = 0) -> None:
        """Take in one run."""
        super().ran(items=items, took_s=took_s, size_b=size_b, level=level)
        self._number += 1
        self.runs.append(Ran(self._number, items, took_s, size_b, level))

    def settled(self, *, final: int, again: int = 0, now: float) -> None:
        """Take in ended attempts."""
        super().settled(final=final, again=again, now=now)
        self.final += final
        self.again += again


class Heard:
    """How far one node's words about one task were taken in."""

    __slots__ = ("again", "final", "number")

    def __init__(self, told: TaskTold) -> None:
        self.number = 0  # its newest runs are news; what it counted before we came is not
        self.final, self.again = told.final, told.again

    def take(self, told: TaskTold, estimator: Estimator, *, now: float) -> None:
        """Give an estimator what is new. One that records what it is told for others does not record this:
        they hear it from who measured it."""
        for run in told.runs:
            if run.number > self.number:
                Estimator.ran(
                    estimator, items=run.items, took_s=run.took_s, size_b=run.size_b, level=run.level
                )
                self.number = run.number
        final, again = max(0, told.final - self.final), max(0, told.again - self.again)
        if final or again:
            Estimator.settled(estimator, final=final, again=again, now=now)
        self.final, self.again = told.final, told.again


class Neighbours:
    """One loop. `describe` says how the node of this process is; None where it has none."""

    def __init__(
        self,
        nodes: Nodes | None,
        clock: Clock,
        *,
        name: str,
        describe: Callable[[], NodeTold] | None,
        on_failure: Callable[[str, BaseException], None] | None = None,
        on_heard: Callable[[Mapping[str, NodeTold]], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._clock = clock
        self._name = name
        self._describe = describe
        self._on_failure = on_failure
        self._on_heard = on_heard
        self._loop: asyncio.Task[None] | None = None
        self.others: dict[str, NodeTold] = {}

    async def start(self) -> None:
        """Look once, so that the first question about the others has an answer, and begin."""
        if self._nodes is not None:
            await self.turn()
            self._loop = asyncio.ensure_future(goes_on(self._run, "look for other nodes"))

    async def close(self) -> None:
        """Stop, and have the others forget us. Twice is harmless."""
        if self._loop is None or self._nodes is None:
            return
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        self._loop = None
        if self._describe is not None:
            try:
                async with asyncio.timeout(LEAVE_MAX_S):
                    await self._nodes.leave(self._name)
            except (ForebayError, TimeoutError) as error:
                self._failed(error)

    def workers(self) -> list[Mapping[str, object]]:
        """Return the replicas of the others, as GET /v1/workers shows them."""
        return [worker for told in self.others.values() for worker in told.workers]

    def nodes(self) -> list[Mapping[str, object]]:
        """Return this process's node and the others, as GET /v1/nodes shows them: those first whose end
        would cost least."""
        own = {} if self._describe is None else {self._name: self._describe()}
        shown = [_shown(name, told) for name, told in (own | self.others).items()]
        return sorted(shown, key=lambda one: (one["state"] != "draining", one["deletion_cost"], one["node"]))

    async def turn(self) -> None:
        """Tell and look once. What fails is said, and tried again in the next turn."""
        assert self._nodes is not None
        try:
            if self._describe is not None:
                await self._nodes.tell(self._name, msgspec.json.encode(self._describe()))
            seen = await self._nodes.seen(within_s=FRESH_S)
        except ForebayError as error:
            self._failed(error)
            return
        self.others = {
            one.node: told for one in seen if one.node != self._name and (told := _read(one.document))
        }
        if self._on_heard is not None:
            self._on_heard(self.others)

    async def _run(self) -> None:
        await self._clock.sleep(TELL_S)
        await self.turn()

    def _failed(self, error: BaseException) -> None:
        if self._on_failure is not None:
            self._on_failure("nodes", error)


def _read(document: bytes) -> NodeTold | None:
    try:
        return msgspec.json.decode(document, type=NodeTold)
    except msgspec.MsgspecError:  # of another version: it works, and we cannot say how
        return None


def _shown(name: str, told: NodeTold) -> dict[str, Any]:
    in_hand = sum(int(worker.get("batch") or 0) for worker in told.workers)
    ready = sum(worker.get("state") == "ready" for worker in told.workers)
    state = "busy" if in_hand else "idle" if ready else "starting"
    return {
        "node": name,
        "host": told.host,
        "state": "draining" if told.draining else state,
        "replicas": sum(worker.get("state") != "parked" for worker in told.workers),
        "ready": ready,
        "in_hand": in_hand,
        "idle_s": round(told.idle_s, 1),
        "deletion_cost": deletion_cost(in_hand=in_hand, idle_s=told.idle_s),
        "unready": told.unready,
        "started_at": told.started_at,
    }
