"""Sender: the loop that claims what callbacks are owed, sends it, and stores what came of it.

It holds no worker and no lease of a job: a receiver that is down costs its own tries and nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forebay.core.callback import Callback, CallbackRules, read_callback
from forebay.core.delivering import DeliveryPolicy, Endpoints, after_try
from forebay.core.job import JobRecord
from forebay.core.outbox import Delivery, DeliveryState, DeliveryStep, Try, endpoint_of
from forebay.errors import ForebayError, StoreBrokenError
from forebay.loops import tell
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock
from forebay.webhooks.post import Posted
from forebay.webhooks.signing import signed

TRIES_MAX = 128  # in flight
ENDPOINT_TRIES_MAX = 16  # of these to one endpoint
STEP = 4  # tries of one endpoint are claimed so many at a time: a claim is a write
CLAIM_S = 60.0  # longer than a try may take
LOOK_S = 1.0  # the longest the loop sleeps
PAUSE_S = 0.05  # the shortest, when what is due has no room
FAILURE_WAIT_S = 1.0
STALLED_S = 10.0  # a loop that has not turned for so long counts as dead


class Postman(Protocol):
    """What sends one message: webhooks.post.Poster."""

    async def post(self, callback: Callback, headers: list[tuple[bytes, bytes]], body: bytes) -> Posted:
        """Post once; raises nothing that a receiver could cause."""
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...


class Log(Protocol):
    """Where ends that somebody should know of are told."""

    def info(self, event: str, **fields: object) -> object:
        """Say something that is as it should be."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Say something that somebody should look at."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a sender needs to know beside its tools. `body_of` renders a finished job as JSON."""

    keys: Sequence[bytes]
    rules: CallbackRules
    agent: str  # User-Agent
    body_of: Callable[[JobRecord], bytes]
    count: Callable[[str], None]  # a settled try, by its outcome: delivered, retried, given_up, disabled
    policy: DeliveryPolicy = field(default_factory=DeliveryPolicy)


class Sender:
    """One loop and its tries. Several senders on one store are harmless: claims decide."""

    def __init__(
        self, broker: Broker, clock: Clock, postman: Callable[[], Postman], terms: Terms, log: Log
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._make_postman = postman  # on first use
        self._postman: Postman | None = None
        self._terms = terms
        self._log = log
        self._endpoints = Endpoints(total_max=TRIES_MAX, each_max=ENDPOINT_TRIES_MAX, step=STEP)
        self._tries: set[asyncio.Task[None]] = set()
        self._bell = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._turned_at = clock.now()
        self._silence: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin."""
        self._silence = self._broker.outbox.on_owed(self._bell.set)
        self._turned_at = self._clock.now()
        self._loop = asyncio.ensure_future(self._run())

    async def close(self, *, within_s: float = 0.0) -> None:
        """Claim no more, give the tries on their way `within_s` to end, cut the others: they will be made
        again. Twice is harmless.
        """
        if self._silence is not None:
            self._silence()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None
        if self._tries:
            await asyncio.wait(self._tries, timeout=max(0.0, within_s))
        cut = list(self._tries)
        for each in cut:
            each.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        if self._postman is not None:
            await self._postman.close()

    def unready_reason(self) -> str | None:
        """Return why nobody is told of anything, None when the loop turns."""
        if self._loop is not None and self._loop.done():
            return "the sender of webhooks has stopped"
        late_s = self._clock.now() - self._turned_at
        return None if late_s < STALLED_S else f"the sender of webhooks stands still for {late_s:.0f} s"

    async def _run(self) -> None:
        while True:
            self._turned_at = self._clock.now()
            self._bell.clear()
            try:
                await self._pause(await self._begin())
            except StoreBrokenError:
                return  # the process is about to end
            except ForebayError as error:
                self._log.warning("webhooks_not_claimed", error=str(error))
                await self._clock.sleep(FAILURE_WAIT_S)
            except Exception as error:
                tell("claim webhooks that are due", error)
                await self._clock.sleep(FAILURE_WAIT_S)

    async def _begin(self) -> int:
        """Claim what is due and has room, and begin to send it; return how much that was."""
        now, outbox, line = self._clock.now(), self._broker.outbox, self._endpoints
        due_at = outbox.due_at()
        if due_at is None or due_at > now or (line.in_flight and line.free < STEP):
            return 0
        rows = await outbox.claim(
            limit=line.free, each_max=ENDPOINT_TRIES_MAX, rooms=line.rooms(now=now), lease_s=CLAIM_S, now=now
        )
        for row in rows:
            line.started(endpoint_of(row.url))
            each = asyncio.ensure_future(self._try(row))
            self._tries.add(each)
            each.add_done_callback(self._tried)
        return len(rows)

    async def _pause(self, begun: int) -> None:
        """Wait for something to do: a bell, a try that ended, a time that has come."""
        if begun:
            return
        now = self._clock.now()
        due_at = self._broker.outbox.due_at()
        wait_s = LOOK_S if due_at is None else due_at - now
        if due_at is not None and due_at <= now:  # due, and no room: an end of a try or of a rest makes some
            rests_until = self._endpoints.wakes_at(now=now)
            wait_s = LOOK_S if rests_until is None else rests_until - now
        try:
            async with asyncio.timeout(min(max(wait_s, PAUSE_S), LOOK_S)):
                await self._bell.wait()
        except TimeoutError:
            pass

    def _tried(self, each: "asyncio.Task[None]") -> None:
        self._tries.discard(each)
        self._bell.set()
        if not each.cancelled() and each.exception() is not None:
            # The claim lapses and the delivery is tried again.
            self._log.warning("webhook_not_settled", error=repr(each.exception()))

    async def _try(self, row: Delivery) -> None:
        endpoint, worked = endpoint_of(row.url), False
        try:
            step = await self._step(row)
            worked = step.state is DeliveryState.DELIVERED or step.state is DeliveryState.DISABLED
            (stored,) = await self._broker.outbox.settle([step], now=self._clock.now())
            if stored:
                self._tell(row, step)
        finally:
            self._endpoints.ended(endpoint, worked=worked, now=self._clock.now())

    async def _step(self, row: Delivery) -> DeliveryStep:
        """Make one try and return what it leads to."""
        began = self._clock.now()
        record = await self._broker.get(row.job_id, now=began)
        if record is None:
            tried = Try(row.tries, began, 0.0, None, "the job is past its retention")
            return DeliveryStep(row.job_id, DeliveryState.GIVEN_UP, tried, began)
        posted = await self._send(row, record)
        now = self._clock.now()
        tried = Try(row.tries, began, now - began, posted.status, posted.detail)
        return after_try(
            row,
            tried,
            policy=self._terms.policy,
            now=now,
            jitter=self._clock.random(),
            retry_after_s=posted.retry_after_s,
        )

    async def _send(self, row: Delivery, record: JobRecord) -> Posted:
        terms = self._terms
        try:
            callback = read_callback(row.url, terms.rules)  # again: the rules may be stricter than they were
        except ValueError as error:
            return Posted(None, f"refused: the URL {error}")
        body = terms.body_of(record)
        headers = signed(terms.keys, message_id=row.message_id, timestamp=int(self._clock.now()), body=body)
        if self._postman is None:
            self._postman = self._make_postman()
        return await self._postman.post(callback, [*headers, (b"user-agent", terms.agent.encode())], body)

    def _tell(self, row: Delivery, step: DeliveryStep) -> None:
        outcome = "retried" if step.state is DeliveryState.WAITING else step.state.value
        self._terms.count(outcome)
        if step.state in {DeliveryState.GIVEN_UP, DeliveryState.DISABLED}:
            # Not the URL: its path and query may be a secret between two others.
            self._log.warning(
                f"webhook_{step.state.value}",
                job_id=row.job_id,
                endpoint=endpoint_of(row.url),
                tries=row.tries - row.before,
                status=step.tried.status,
                detail=step.tried.detail,
            )
