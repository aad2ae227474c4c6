"""Queues: where a task's hints and dead letters lie; made when first used, again when they were removed."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from forebay.brokers.sqs.address import DEAD, WAITING, Address
from forebay.brokers.sqs.calls import Calls
from forebay.brokers.sqs.refusals import DELETED_RECENTLY, NAME_TAKEN, NO_QUEUE, RefusedError
from forebay.brokers.sqs.wire import MESSAGE_B_MAX
from forebay.errors import DeliveryUnavailableError
from forebay.ports.clock import Clock

RETENTION_S: Final = 14 * 24 * 3600  # as long as the service keeps a message; a store's reconciler sends anew
RECEIVES_MAX: Final = 1000  # of one hint before the service buries it; the most that it takes
DELETED_S: Final = 60.0  # for so long a queue of the same name cannot be made
DELETED_LOOK_S: Final = 1.0
POLL_MAX_S: Final = 20


class Queues:
    """The queues of one address, by their URLs."""

    def __init__(self, calls: Calls, address: Address, clock: Clock) -> None:
        self._calls = calls
        self._address = address
        self._clock = clock
        self._urls: dict[str, str] = {}  # by name; as many as there are tasks, twice
        self._making: dict[str, asyncio.Lock] = {}

    async def look(self) -> None:
        """Raise DeliveryUnavailableError with one line when queues cannot be asked for. Makes nothing."""
        await self._find(self._address.queue("_"))

    async def ask(self, task: str, verb: str, what: Mapping[str, Any], kind: str = WAITING) -> dict[str, Any]:
        """Return the answer to a call about a task's queue, which is made where there is none."""
        for last in (False, True):
            url = await self.url(task, kind)
            try:
                return await self._calls.ask(
                    verb, {"QueueUrl": url, **what}, wait_s=float(what.get("WaitTimeSeconds", 0))
                )
            except RefusedError as error:
                if error.reason not in NO_QUEUE:
                    raise
                self.lost(task)
                if last:
                    raise
        raise AssertionError("unreachable")

    async def url(self, task: str, kind: str = WAITING) -> str:
        """Return the URL of a task's queue, which is made where there is none."""
        name = self._address.queue(task, kind)
        if name in self._urls:
            return self._urls[name]
        async with self._making.setdefault(name, asyncio.Lock()):
            if name not in self._urls:
                self._urls[name] = await self._find(name) or await self._made(task, kind)
            return self._urls[name]

    def lost(self, task: str) -> None:
        """Believe no longer that a task's queues are there."""
        for kind in (WAITING, DEAD):
            self._urls.pop(self._address.queue(task, kind), None)

    async def remove(self, task: str) -> None:
        """Delete the queues of a task, where there are any."""
        self.lost(task)
        for kind in (WAITING, DEAD):
            url = await self._find(self._address.queue(task, kind))
            if url is not None:
                await self._delete(url)

    async def _find(self, name: str) -> str | None:
        try:
            return str((await self._calls.ask("GetQueueUrl", {"QueueName": name}))["QueueUrl"])
        except RefusedError as error:
            if error.reason in NO_QUEUE:
                return None
            raise

    async def _made(self, task: str, kind: str) -> str:
        attributes = {
            "MessageRetentionPeriod": str(RETENTION_S),
            "MaximumMessageSize": str(MESSAGE_B_MAX),
            "VisibilityTimeout": str(self._calls.bounds.hold_s),
            "ReceiveMessageWaitTimeSeconds": str(POLL_MAX_S),
        }
        name = self._address.queue(task, kind)
        if kind == DEAD:
            return await self._create(name, attributes)
        had = self._address.queue(task, DEAD) in self._urls
        dead = await self.url(task, DEAD)
        try:
            about = await self._calls.ask(
                "GetQueueAttributes", {"QueueUrl": dead, "AttributeNames": ["QueueArn"]}
            )
            redrive = {
                "deadLetterTargetArn": about["Attributes"]["QueueArn"],
                "maxReceiveCount": RECEIVES_MAX,
            }
            return await self._create(name, {**attributes, "RedrivePolicy": json.dumps(redrive)})
        except RefusedError:
            self.lost(task)
            if not had:
                await self._undo(dead)
            raise

    async def _create(self, name: str, attributes: Mapping[str, str]) -> str:
        until = self._clock.now() + self._calls.bounds.call_max_s
        while True:
            try:
                answer = await self._calls.ask("CreateQueue", {"QueueName": name, "Attributes": attributes})
                return str(answer["QueueUrl"])
            except RefusedError as error:
                if error.reason in NAME_TAKEN and (url := await self._find(name)) is not None:
                    return url  # somebody else made it meanwhile, in their own way
                if error.reason not in DELETED_RECENTLY:
                    raise
                if self._clock.now() >= until:
                    why = f"the queue {name} was deleted less than {DELETED_S:.0f} s ago"
                    raise self._calls.unavailable(why, DELETED_S) from None
            await self._clock.sleep(DELETED_LOOK_S)

    async def _undo(self, url: str) -> None:
        """Leave no dead letters' queue behind for which there is no other; a queue somebody uses stays."""
        with contextlib.suppress(DeliveryUnavailableError):
            await self._delete(url)

    async def _delete(self, url: str) -> None:
        try:
            await self._calls.ask("DeleteQueue", {"QueueUrl": url})
        except RefusedError as error:
            if error.reason not in NO_QUEUE:
                raise
