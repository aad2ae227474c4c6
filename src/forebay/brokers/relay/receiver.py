"""Receiver: the hints of one task: asked for while somebody can work, held until they led to a lease."""

import asyncio
import contextlib
from collections.abc import Callable, Container, Sequence
from typing import Final

from forebay.brokers.relay.hints import Signer
from forebay.brokers.relay.link import Link
from forebay.core.relay import BACK_S, Gap, Line, Take
from forebay.errors import DeliveryUnavailableError, ForebayError
from forebay.loops import goes_on, tell
from forebay.ports.clock import Clock
from forebay.ports.hinted import Hinted
from forebay.ports.transport import Hint

WAIT_S: Final = 20.0  # one long receive
TEND_S: Final = 1.0  # between two looks at what is held, and whether more is wanted


class Receiver:
    """Two loops for as long as the relay is open: one receives, one tends what is held."""

    def __init__(
        self,
        task: str,
        link: Link,
        signer: Signer,
        hinted: Hinted,
        clock: Clock,
        *,
        ring: Callable[[str], None],
    ) -> None:
        self.line = Line(task, delays=link.traits.delays)
        self.gap = Gap()
        self.leased_at = clock.now()
        self._task = task
        self._link = link
        self._signer = signer
        self._hinted = hinted
        self._clock = clock
        self._ring = ring
        self._wanted = asyncio.Event()
        self._acks: list[Hint] = []
        self._acking: asyncio.Task[None] | None = None
        self._ops: set[asyncio.Task[None]] = set()
        self._part = f"receive {task}"  # of the link's work
        self._loops = [
            asyncio.ensure_future(goes_on(self._receive, f"receive hints of {task!r}")),
            asyncio.ensure_future(goes_on(self._tend, f"tend hints of {task!r}")),
        ]

    def granted(self, ids: Sequence[str], *, asked: int, mark: int, silent: Container[str]) -> None:
        """Take in what a lease gave that was asked for at `mark`."""
        now = self.leased_at = self._clock.now()
        self._ack(self.line.granted(ids, asked=asked, now=now, silent=silent))
        if len(ids) < asked:
            self._look_into(self.line.doubted(now=now, mark=mark))
        self._wanted.set()

    def too_many(self, count: int) -> None:
        """There are so many hints too many: look into as many."""
        self.line.too_many(count)
        self._wanted.set()

    async def close(self) -> None:
        """Stop. What is held is given back by whoever closes the transport."""
        ops = [*self._loops, *self._ops, *([] if self._acking is None else [self._acking])]
        if self._acking is not None:  # what was leased is acknowledged, if that takes no time
            await asyncio.wait([self._acking], timeout=TEND_S)
        for op in ops:
            op.cancel()
        await asyncio.gather(*ops, return_exceptions=True)

    async def _receive(self) -> None:
        self._wanted.clear()
        # What failed is tried until it works, whether or not more is wanted: nobody else would find out.
        wanted = self.line.wanted(now=self._clock.now()) or int(self._link.fails(self._part))
        if not wanted:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TEND_S):
                    await self._wanted.wait()
            return
        try:
            hints = await self._link.receive(self._task, limit=wanted, wait_s=WAIT_S)
        except DeliveryUnavailableError:
            await self._clock.sleep(self._link.pause_s(self._part, self._clock.random()))
            return
        self._took(hints)

    def _took(self, hints: Sequence[Hint]) -> None:
        now, done, rings = self._clock.now(), list[object](), False
        for hint in hints:
            told = self._signer.read(self._task, hint.body)
            if told is None:
                self._link.events["forged"] += 1
                done.append(hint)
                continue
            if not told.job_id:
                rings = True
                done.append(hint)
                continue
            take = self.line.received(told.job_id, hint, now=now)
            if take is Take.HELD:
                rings = True
            else:
                self._link.events["double"] += take is Take.DOUBLE
                done.append(hint)
        self._ack(done)
        if rings:
            self._ring(self._task)

    async def _tend(self) -> None:
        await self._clock.sleep(TEND_S)
        self._look_into(self.line.doubted(now=self._clock.now()))

    def _look_into(self, ids: Sequence[str]) -> None:
        if ids:
            op = asyncio.ensure_future(self._look(ids))
            self._ops.add(op)
            op.add_done_callback(self._ops.discard)

    async def _look(self, ids: Sequence[str]) -> None:
        """Ask the store about hints that led to no lease: gone, or not to run yet."""
        try:
            queued = await self._hinted.still_queued(ids)
        except Exception as error:  # whatever it is, what is held must not stay so for good
            self.line.unknown(ids, now=self._clock.now())
            if not isinstance(error, ForebayError):
                tell(f"look into hints of {self._task!r}", error)
            return
        verdict = self.line.looked(ids, queued, now=self._clock.now())
        self._link.events["stale"] += len(verdict.stale)
        self._ack(verdict.stale)
        if verdict.back:
            with contextlib.suppress(DeliveryUnavailableError):
                await self._link.give_back(self._task, _hints(verdict.back), delay_s=BACK_S)
        self._wanted.set()

    def _ack(self, tokens: Sequence[object]) -> None:
        """Acknowledge, soon; what comes together goes together."""
        if not tokens:
            return
        self._acks += _hints(tokens)
        if self._acking is None or self._acking.done():
            self._acking = asyncio.ensure_future(self._ack_all())

    async def _ack_all(self) -> None:
        while self._acks:
            hints, self._acks = self._acks, []
            with contextlib.suppress(DeliveryUnavailableError):  # they come again, and are stale
                await self._link.ack(self._task, hints)


def _hints(tokens: Sequence[object]) -> list[Hint]:
    return [token for token in tokens if isinstance(token, Hint)]
