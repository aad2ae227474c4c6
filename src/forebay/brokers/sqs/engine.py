"""SqsTransport: a Transport on Amazon SQS: standard queues, long polls, visibility timeouts as the hold."""

import asyncio
import contextlib
import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from forebay.brokers.sqs.account import Account
from forebay.brokers.sqs.address import DEAD, WAITING, Address
from forebay.brokers.sqs.calls import Bounds, Calls
from forebay.brokers.sqs.inbox import Inbox, Receipt
from forebay.brokers.sqs.queues import Queues
from forebay.brokers.sqs.refusals import NO_QUEUE, RefusedError
from forebay.brokers.sqs.wire import body_of, groups, tens, text_of
from forebay.errors import DeliveryUnavailableError
from forebay.ports.clock import Clock
from forebay.ports.transport import Hint, Traits

HOLD_MAX_S: Final = 12 * 3600  # of one message, from when it was received
LATE_S: Final = 10.0  # an answer may have been on its way for so long
HELD_MAX: Final = 10_000  # hints that are remembered to be given back at the end; older ones come by time
COUNTED: Final = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


class SqsTransport:
    """Hints through the queues of one address; see ports.transport.Transport."""

    traits = Traits(
        name="Amazon SQS",
        counted=True,
        each=True,
        delays=True,
        durable=True,
        note="depth is approximate, as the service counts; hints are kept 14 days",
    )

    def __init__(self, calls: Calls, queues: Queues, clock: Clock) -> None:
        self._calls = calls
        self._queues = queues
        self._clock = clock
        self._inboxes: dict[str, Inbox] = {}
        self._held: dict[str, tuple[str, Receipt]] = {}  # by handle: of which task
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, clock: Clock, bounds: Bounds | None = None) -> "SqsTransport":
        """Return a connection, when the credentials may ask for queues there. Makes nothing.

        Raises ConfigError or DeliveryUnavailableError with one line.
        """
        address = Address.of(url)
        account = await Account.find(address, clock)
        calls = Calls(account, address.label, clock, bounds or Bounds())
        queues = Queues(calls, address, clock)
        try:
            await queues.look()
        except BaseException:
            await calls.close()
            raise
        return cls(calls, queues, clock)

    @property
    def requests(self) -> Mapping[str, int]:
        """How many calls were sent, by verb: what the service bills."""
        return self._calls.requests

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Hand hints over, ten in a call."""
        await self._send(task, bodies, WAITING)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return up to `limit` hints as soon as there is one; none after `wait_s`."""
        self._check_open()
        inbox = self._inboxes.get(task)
        if inbox is None:
            bounds = self._calls.bounds
            inbox = self._inboxes[task] = Inbox(
                lambda most, for_s: self._poll(task, most, for_s),
                lambda hints: self.give_back(task, hints, delay_s=0.0),
                self._clock,
                bounds.hold_s,
                bounds.idle_s,
            )
        hints = await inbox.take(limit, wait_s)
        self._check_open()
        return hints

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Delete messages. One that is not held any more is passed over in silence."""
        self._check_open()
        entries = [{"ReceiptHandle": receipt.handle} for receipt in self._let_go(hints)]
        await _all(self._about_held(task, "DeleteMessageBatch", ten) for ten in tens(entries))

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let messages be seen again after `delay_s`, in whole seconds, within the 12 h a hold may last."""
        self._check_open()
        await self._give_back(task, self._let_go(hints), delay_s)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Put hints into the queue of dead letters, which keeps them 14 days."""
        await self._send(task, bodies, DEAD)

    async def depth(self, task: str) -> int | None:
        """Return about how many hints there are, as the service counts them."""
        self._check_open()
        answer = await self._queues.ask(task, "GetQueueAttributes", {"AttributeNames": list(COUNTED)})
        return sum(int(count) for count in answer.get("Attributes", {}).values())

    async def forget(self, task: str) -> None:
        """Delete the queues of a task. The service lets none of that name be made for a minute."""
        self._check_open()
        inbox = self._inboxes.pop(task, None)
        if inbox is not None:
            await inbox.close()
        await self._queues.remove(task)

    async def close(self) -> None:
        """Give back what is held, let go of the connections."""
        if self._closed:
            return
        self._closed = True
        for inbox in self._inboxes.values():
            await inbox.close()
        held: dict[str, list[Receipt]] = {}
        ours = self._clock.now() - self._calls.bounds.hold_s
        for task, receipt in self._held.values():
            if receipt.received_at <= ours:
                continue  # somebody else has it by now
            held.setdefault(task, []).append(receipt)
        self._held.clear()
        with contextlib.suppress(DeliveryUnavailableError, TimeoutError):  # then they come again by time
            async with asyncio.timeout(self._calls.bounds.close_max_s):
                await _all(self._give_back(task, receipts, 0.0) for task, receipts in held.items())
        await self._calls.close()

    async def _send(self, task: str, bodies: Sequence[bytes], kind: str) -> None:
        self._check_open()
        await _all(self._sent(task, entries, kind) for entries in groups(text_of(body) for body in bodies))

    async def _sent(self, task: str, entries: list[dict[str, Any]], kind: str) -> None:
        refused = await self._whole(task, "SendMessageBatch", entries, kind)
        if refused:
            raise self._calls.unavailable(f"{len(refused)} of {len(entries)} hints are refused: {refused[0]}")

    async def _about_held(self, task: str, verb: str, entries: list[dict[str, Any]]) -> None:
        try:
            await self._whole(task, verb, entries, WAITING)  # what is refused is held no more
        except RefusedError as error:
            if error.reason not in NO_QUEUE:
                raise

    async def _whole(self, task: str, verb: str, entries: list[dict[str, Any]], kind: str) -> list[str]:
        """Make a call until no entry fails for reasons that pass. Returns why others were refused."""
        refused: list[str] = []
        why = ""
        for attempt in range(self._calls.bounds.tries_max):
            if attempt:
                await self._calls.pause(attempt - 1)
            answer = await self._queues.ask(task, verb, {"Entries": entries}, kind)
            failed = {str(one.get("Id")): one for one in answer.get("Failed") or ()}
            refused += [_why(one) for one in failed.values() if one.get("SenderFault")]
            entries = [
                entry
                for entry in entries
                if (one := failed.get(entry["Id"])) is not None and not one.get("SenderFault")
            ]
            if not entries:
                return refused
            why = _why(failed[entries[0]["Id"]])
        raise self._calls.unavailable(f"{verb} failed for {len(entries)} entries: {why}")

    async def _give_back(self, task: str, receipts: Iterable[Receipt], delay_s: float) -> None:
        now = self._clock.now()
        entries = [
            {"ReceiptHandle": one.handle, "VisibilityTimeout": _seconds(delay_s, now - one.received_at)}
            for one in receipts
        ]
        await _all(self._about_held(task, "ChangeMessageVisibilityBatch", ten) for ten in tens(entries))

    async def _poll(self, task: str, most: int, wait_s: int) -> Sequence[Hint]:
        what = {
            "MaxNumberOfMessages": most,
            "WaitTimeSeconds": wait_s,
            "VisibilityTimeout": self._calls.bounds.hold_s,
        }
        answer = await self._queues.ask(task, "ReceiveMessage", what)
        received_at = self._clock.now()
        hints: list[Hint] = []
        for message in answer.get("Messages") or ():
            receipt = Receipt(str(message["ReceiptHandle"]), received_at)
            self._held[receipt.handle] = (task, receipt)
            hints.append(Hint(body_of(str(message.get("Body", ""))), receipt))
        while len(self._held) > HELD_MAX:
            del self._held[next(iter(self._held))]
        return hints

    def _let_go(self, hints: Sequence[Hint]) -> list[Receipt]:
        receipts = {hint.token.handle: hint.token for hint in hints if isinstance(hint.token, Receipt)}
        for handle in receipts:
            self._held.pop(handle, None)
        return list(receipts.values())

    def _check_open(self) -> None:
        if self._closed:
            raise self._calls.unavailable("the connection is closed")


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; then raise the first error there was."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _seconds(delay_s: float, held_s: float) -> int:
    return max(0, min(math.ceil(delay_s), int(HOLD_MAX_S - held_s - LATE_S)))


def _why(failed: Mapping[str, Any]) -> str:
    return " ".join(f"{failed.get('Code', '')} {failed.get('Message', '')}".split())[:300]
