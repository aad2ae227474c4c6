"""Service: the calls to Pub/Sub that a transport needs, each with a bound, each error one line."""

import asyncio
import math
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from forebay.brokers.pubsub.address import Address, pubsub_modules
from forebay.errors import DeliveryUnavailableError

ASK_MAX_S: Final = 5.0
PULL_MAX_S: Final = 25.0  # one pull that waits
PUBLISH_MAX: Final = 1_000  # messages of one request, as the service says
IDS_MAX: Final = 500  # ids of one request: it may hold 512 KiB
LINE_MAX: Final = 300
DELETED: Final = "_deleted-topic_"  # what a subscription says when its topic was removed


class GoneError(DeliveryUnavailableError):
    """The topic or the subscription is not there."""


class Service:
    """One channel. For one event loop."""

    def __init__(self, address: Address, emulator: str | None) -> None:
        self._pubsub, self._errors, grpc, self._auth = pubsub_modules()
        self._grpc, self._address, self._emulator = grpc, address, emulator
        self._label = address.label if emulator is None else f"{address.label} at {emulator}"
        self._publisher: Any = None
        self._subscriber: Any = None
        self._made: set[str] = set()
        self._making = asyncio.Lock()
        self._credentials: Any = None
        self._opened = 0  # channels so far
        self._left: set[asyncio.Future[None]] = set()  # channels that end

    async def connect(self) -> None:
        """Return when the project can be used. Raises DeliveryUnavailableError with one line."""
        if self._emulator is None:
            try:
                self._credentials, _ = await asyncio.to_thread(self._auth.default)
            except self._auth.exceptions.GoogleAuthError as error:
                raise DeliveryUnavailableError(f"{self._label}: {told(error)}") from None
        self._open()
        project = {"project": f"projects/{self._address.project}", "page_size": 1}
        await self._ask(self._publisher.list_topics(request=project, timeout=ASK_MAX_S, retry=None))

    def _open(self) -> None:
        publisher, subscriber = self._pubsub.PublisherAsyncClient, self._pubsub.SubscriberAsyncClient
        self._opened += 1
        if self._emulator is None:
            self._publisher = publisher(credentials=self._credentials)
            self._subscriber = subscriber(credentials=self._credentials)
            return
        # Channels share no connection behind the scenes: one that is left is left for good. (Those to Google
        # do, and ask for a sign of life each 30 s themselves.)
        channel = self._grpc.aio.insecure_channel(self._emulator, [("grpc.use_local_subchannel_pool", 1)])
        self._publisher = publisher(transport=publisher.get_transport_class("grpc_asyncio")(channel=channel))
        self._subscriber = subscriber(
            transport=subscriber.get_transport_class("grpc_asyncio")(channel=channel)
        )

    def _renew(self) -> None:
        """Leave a channel that gives no sign of life: its connection may be dead without a word for a quarter
        of an hour. What is under way on it ends by its own time."""
        for client in (self._publisher, self._subscriber):
            closing = asyncio.ensure_future(client.transport.grpc_channel.close(PULL_MAX_S + 1.0))
            self._left.add(closing)
            closing.add_done_callback(self._left.discard)
        self._open()

    async def publish(self, name: str, bodies: Sequence[bytes]) -> None:
        """Return when the service has them; the topic is made where it is missing."""
        await self.make(name)
        try:
            await self._publish(name, bodies)
        except GoneError:
            self._made.discard(name)
            await self.make(name)
            await self._publish(name, bodies)

    async def _publish(self, name: str, bodies: Sequence[bytes]) -> None:
        topic = self._address.topic(name)
        for at in range(0, len(bodies), PUBLISH_MAX):
            # The service takes no message without bytes, unless it has an attribute.
            messages = [
                {"data": body} if body else {"attributes": {"empty": "1"}}
                for body in bodies[at : at + PUBLISH_MAX]
            ]
            request = {"topic": topic, "messages": messages}
            await self._ask(self._publisher.publish(request=request, timeout=ASK_MAX_S, retry=None))

    async def pull(self, name: str, limit: int) -> list[tuple[bytes, str]]:
        """Return up to `limit` bodies, each with what acknowledges it; none after a while."""
        await self.make(name)
        request = {"subscription": self._address.subscription(name), "max_messages": limit}
        try:
            answer = await self._ask(
                self._subscriber.pull(request=request, timeout=PULL_MAX_S, retry=None), PULL_MAX_S
            )
        except GoneError:
            self._made.discard(name)
            raise
        except LateError:  # nothing came, or nothing can
            await self._prove_alive(name)
            return []
        return [(one.message.data, one.ack_id) for one in answer.received_messages]

    async def _prove_alive(self, name: str) -> None:
        """Return when the service answers, whatever it says. Raises DeliveryUnavailableError."""
        known = {"subscription": self._address.subscription(name)}
        asked = self._subscriber.get_subscription(request=known, timeout=ASK_MAX_S, retry=None)
        await self._ask(asked, passes=(self._errors.NotFound, self._errors.PermissionDenied))

    async def acknowledge(self, name: str, ids: Sequence[str]) -> None:
        """Be done with them; those that are not ours any more are passed over."""
        await self._each(name, ids, self._subscriber.acknowledge, {})

    async def defer(self, name: str, ids: Sequence[str], delay_s: float) -> None:
        """Let them come again after a while."""
        whole_s = min(math.ceil(max(0.0, delay_s)), 600)
        await self._each(name, ids, self._subscriber.modify_ack_deadline, {"ack_deadline_seconds": whole_s})

    async def _each(self, name: str, ids: Sequence[str], verb: Any, more: dict[str, int]) -> None:
        subscription = self._address.subscription(name)
        for at in range(0, len(ids), IDS_MAX):
            some = list(ids[at : at + IDS_MAX])
            try:
                await self._told(verb, {"subscription": subscription, "ack_ids": some, **more})
            except _OldIdError:  # one of them is not known any more, and all were refused
                for one in some if len(some) > 1 else ():
                    try:
                        await self._told(verb, {"subscription": subscription, "ack_ids": [one], **more})
                    except _OldIdError:
                        continue

    async def _told(self, verb: Any, request: dict[str, Any]) -> None:
        try:
            await self._ask(verb(request=request, timeout=ASK_MAX_S, retry=None))
        except GoneError:
            return  # the subscription was removed, and what was held went with it

    async def make(self, name: str) -> None:
        """See that a topic and its subscription are there."""
        if name in self._made:
            return
        async with self._making:
            if name not in self._made:
                await self._make(name)
                self._made.add(name)

    async def _make(self, name: str) -> None:
        topic, subscription = self._address.topic(name), self._address.subscription(name)
        exists, forbidden = self._errors.AlreadyExists, self._errors.PermissionDenied
        # Who may not make them may use what others made: what is missing is told when it is used.
        made = self._publisher.create_topic(request={"name": topic}, timeout=ASK_MAX_S, retry=None)
        await self._ask(made, passes=(exists, forbidden))
        request = {
            "name": subscription,
            "topic": topic,
            "ack_deadline_seconds": math.ceil(self._address.deadline_s),
            "message_retention_duration": {"seconds": math.ceil(self._address.retention_s)},
            "expiration_policy": {},  # else it is removed after 31 quiet days
        }
        asked = {"request": request, "timeout": ASK_MAX_S, "retry": None}
        if await self._ask(self._subscriber.create_subscription(**asked), passes=(exists, forbidden)) is None:
            known = {"subscription": subscription}
            found = await self._ask(
                self._subscriber.get_subscription(request=known, timeout=ASK_MAX_S, retry=None),
                passes=(forbidden,),
            )
            if found is not None and found.topic == DELETED:
                await self._ask(
                    self._subscriber.delete_subscription(request=known, timeout=ASK_MAX_S, retry=None)
                )
                await self._ask(self._subscriber.create_subscription(**asked), passes=(exists,))

    async def remove(self, name: str) -> None:
        """Remove a topic and its subscription."""
        self._made.discard(name)
        missing = (self._errors.NotFound,)
        subscription = {"subscription": self._address.subscription(name)}
        topic = {"topic": self._address.topic(name)}
        for verb, request in (
            (self._subscriber.delete_subscription, subscription),
            (self._publisher.delete_topic, topic),
        ):
            await self._ask(verb(request=request, timeout=ASK_MAX_S, retry=None), passes=missing)

    async def close(self) -> None:
        """Let go of the channel."""
        for closing in self._left:
            closing.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)
        for client in (self._publisher, self._subscriber):
            if client is not None:
                await client.transport.close()

    async def _ask(
        self, asked: Awaitable[Any], wait_s: float = ASK_MAX_S, passes: tuple[type[Exception], ...] = ()
    ) -> Any:
        errors, opened = self._errors, self._opened
        try:
            async with asyncio.timeout(wait_s + 1.0):
                return await asked
        except passes:
            return None
        except errors.NotFound as error:
            raise GoneError(self._line(error)) from None
        except (errors.DeadlineExceeded, TimeoutError):
            if wait_s == ASK_MAX_S and opened == self._opened:  # a pull may have nothing to say
                self._renew()
            raise LateError(f"{self._label}: no answer in {wait_s:g} s") from None
        except errors.InvalidArgument as error:
            raise _OldIdError(self._line(error)) from None
        except (errors.GoogleAPIError, self._auth.exceptions.GoogleAuthError, self._grpc.RpcError) as error:
            raise DeliveryUnavailableError(self._line(error)) from None
        except self._grpc.aio.UsageError as error:  # the channel was closed meanwhile
            raise DeliveryUnavailableError(self._line(error)) from None

    def _line(self, error: Exception) -> str:
        return f"{self._label}: {told(error)}"


class LateError(DeliveryUnavailableError):
    """It did not answer in time."""


class _OldIdError(DeliveryUnavailableError):
    """It does not take an argument."""


def told(error: Exception) -> str:
    """Return the client's words in one line."""
    text = " ".join(str(getattr(error, "message", None) or error).split()) or type(error).__name__
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
