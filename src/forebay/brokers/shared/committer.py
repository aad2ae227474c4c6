"""Committer: what writers ask for goes to the store in groups: while one ends, the next fills."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from forebay.brokers.shared.news import News
from forebay.errors import ForebayError, StoreUnavailableError

T = TypeVar("T")
Tx = Any  # a transaction of the engine

GROUP_ITEMS_MAX: Final = 2_000  # jobs, claims and transitions of one transaction
GROUP_BYTES_MAX: Final = 8 << 20
WAITING_ITEMS_MAX: Final = 100_000  # that wait for their transaction; past it writers are refused
WAITING_BYTES_MAX: Final = 256 << 20


class Kind(Enum):
    """What is merged with its like; ALONE has a transaction of its own."""

    ENQUEUE = 0
    EXTEND = 1
    COMMIT = 2
    LEASE = 3
    ALONE = 4


class Op(Generic[T]):
    """One call. `items` are what is merged; `terms` must be equal of those that are."""

    __slots__ = ("bytes", "future", "items", "kind", "now", "terms", "work")

    def __init__(
        self,
        kind: Kind,
        now: float,
        items: Sequence[Any] = (),
        *,
        terms: Any = None,
        size_b: int = 0,
        work: Callable[[Tx], Awaitable[T]] | None = None,
    ) -> None:
        self.kind = kind
        self.now = now
        self.items = items
        self.terms = terms
        self.bytes = size_b
        self.work = work
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class Store(Protocol):
    """Where groups go."""

    async def write(self, work: Callable[[Tx], Awaitable[Any]], *, now: float) -> tuple[Any, News]:
        """Run `work` in a transaction; return what it returns and what there is to tell."""
        ...


Merged = Callable[[Tx, Kind, Sequence[Any], Any, float], Awaitable[list[Any]]]
# Stores the first calls of a group in one step; returns their answers, errors among them, and what there is
# to tell, or None.
OneStep = Callable[[Sequence[Op[Any]]], Awaitable[tuple[list[Any], News] | None]]


class Committer:
    """One loop while there is something to do. A caller that goes away takes nothing back."""

    def __init__(
        self,
        store: Store,
        merged: Merged,
        tell: Callable[[News], None],
        *,
        mixed: bool = True,
        one_step: OneStep | None = None,
        joined: bool = False,
    ) -> None:
        """`mixed`: a group is stored as a whole, so that it may hold calls of several kinds.
        `one_step`: tried before a transaction of several steps, where nothing else waits; `joined`: always,
        and a lease may be the last of a group of submissions."""
        self._store = store
        self._mixed = mixed
        self._merged = merged
        self._tell = tell
        self._one_step = one_step
        self._joined = joined
        self._ops: deque[Op[Any]] = deque()
        self._items = 0
        self._bytes = 0
        self._loop: asyncio.Task[None] | None = None
        self.closed = False
        self.groups = 0  # transactions

    def put(self, op: Op[T]) -> "asyncio.Future[T]":
        """Take in a call. Raises StoreUnavailableError when too much waits, or the store is closed."""
        if self.closed:
            raise StoreUnavailableError("the store is closed")
        if self._items >= WAITING_ITEMS_MAX or self._bytes >= WAITING_BYTES_MAX:
            raise StoreUnavailableError("too much waits for the store already", retry_after_s=1.0)
        self._ops.append(op)
        self._items += len(op.items) + 1
        self._bytes += op.bytes
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._run())
        return op.future

    async def alone(self, work: Callable[[Tx], Awaitable[T]], now: float) -> T:
        """Run `work` in a transaction of its own, in turn. It goes on when the caller is cancelled."""
        return await asyncio.shield(self.put(Op(Kind.ALONE, now, work=work)))

    async def close(self) -> None:
        """Finish what was taken in, and take in nothing more."""
        self.closed = True
        if self._loop is not None:
            await asyncio.gather(self._loop, return_exceptions=True)

    async def abandon(self) -> None:
        """Stop where it is: what was taken in is not stored, or nobody hears of it."""
        self.closed = True
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        calm = True  # nobody came while another group was stored
        while self._ops:
            group = self._next_group()
            error = await self._try(group, calm=calm)
            calm = False
            if error is None:
                continue
            if len(group) <= 1 or isinstance(error, ForebayError):
                for op in group:
                    _fail(op, error)
                continue
            for op in group:  # one of them is at fault: it alone fails
                own = await self._try([op])
                if own is not None:
                    _fail(op, own)

    def _next_group(self) -> list[Op[Any]]:
        group = [self._ops.popleft()]
        items, size_b = len(group[0].items), group[0].bytes
        while (
            group[0].kind is not Kind.ALONE
            and self._ops
            and self._ops[0].kind is not Kind.ALONE
            and self._go_together(group, self._ops[0])
            and items + len(self._ops[0].items) <= GROUP_ITEMS_MAX
            and size_b + self._ops[0].bytes <= GROUP_BYTES_MAX
        ):
            op = self._ops.popleft()
            items += len(op.items)
            size_b += op.bytes
            group.append(op)
        self._items -= items + len(group)
        self._bytes -= size_b
        return group

    def _go_together(self, group: list[Op[Any]], op: Op[Any]) -> bool:
        if self._mixed:
            return True
        if self._joined and op.kind is Kind.LEASE:
            return group[-1].kind in (Kind.ENQUEUE, Kind.LEASE)
        return op.kind is group[-1].kind

    async def _try(self, group: list[Op[Any]], *, calm: bool = False) -> BaseException | None:
        """Run a group; return what it failed with, None when it is stored and everybody knows. What was
        stored in one step is left out of it."""
        try:
            # Under load the longer way is the cheaper one: what comes meanwhile makes the next group larger.
            tried = self._one_step if calm or self._joined else None
            while tried is not None and group:
                found = await tried(group)
                if found is None:
                    break
                stored = len(found[0])
                self._answer(group[:stored], *found)
                del group[:stored]
            if group:
                found = await self._store.write(lambda tx: self._work(tx, group), now=group[-1].now)
                self._answer(group, *found)
        except Exception as error:
            return error
        return None

    def _answer(self, group: Sequence[Op[Any]], answers: Sequence[Any], news: News) -> None:
        self.groups += 1
        for op, answer in zip(group, answers, strict=True):
            if isinstance(answer, ForebayError):
                _fail(op, answer)
            elif not op.future.done():
                op.future.set_result(answer)
        self._tell(news)

    async def _work(self, tx: Tx, group: list[Op[Any]]) -> list[Any]:
        if group[0].work is not None:
            return [await group[0].work(tx)]
        answers: dict[int, Any] = {}
        for kind in (Kind.ENQUEUE, Kind.EXTEND, Kind.COMMIT, Kind.LEASE):
            ops = [(at, op) for at, op in enumerate(group) if op.kind is kind]
            while ops:
                terms = ops[0][1].terms
                like = (
                    [(at, op) for at, op in ops if op.terms == terms] if kind is not Kind.LEASE else ops[:1]
                )
                ops = [one for one in ops if one not in like]
                items = [item for _, op in like for item in op.items]
                found = await self._merged(tx, kind, items, terms, like[-1][1].now)
                if kind is Kind.LEASE:
                    answers[like[0][0]] = found
                    continue
                begin = 0
                for at, op in like:
                    answers[at] = found[begin : begin + len(op.items)]
                    begin += len(op.items)
        return [answers[at] for at in range(len(group))]


def _fail(op: Op[Any], error: BaseException) -> None:
    if not op.future.done():
        op.future.set_exception(error)
        op.future.exception()  # whoever has gone does not look at it
