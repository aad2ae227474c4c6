"""Link: one connection to a NATS server: questions with an answer in time, deliveries to whoever asked.

When it is lost it is never mended; the next one is made instead. Reconnecting by the client is off: it hides
what was lost, and tries without an end. A few of its inner hooks are replaced, so that nothing it meets is
printed, and so that a forged header does not end its reading for good.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from forebay.brokers.nats.address import Address, nats_module, told
from forebay.errors import ConfigError, DeliveryUnavailableError

CONNECT_MAX_S: Final = 5.0  # for one server; others of the URL are tried within twice that
ANSWER_WAITS_S: Final = (1.0, 2.0, 2.0)  # for one question: until it is asked again, and again, and given up
ALIVE_MAX_S: Final = 2.0  # for a sign of life after a question that had no answer
LET_GO_MAX_S: Final = 1.0
GIVE_BACK_MAX_S: Final = 5.0  # for what is given back at the end to arrive
PING_EVERY_S: Final = 10  # an idle connection that is dead is noticed after two pings without an answer
UNSENT_BYTES_MAX: Final = 8 << 20  # what waits to be written; a server that takes nothing gets no more
# Its own words may be lost with the connection.
LET_IN_NOT: Final = "it ended the connection when it was told who we are: authorization may be wrong"
NO_RESPONDERS: Final = "503"
STATUS, DESCRIPTION = "Status", "Description"


class Unanswered(Exception):
    """Nobody listens to the subject: no JetStream, or no such stream."""


class Asked(NamedTuple):
    """A question, and its answer to come."""

    subject: str
    body: bytes
    answer_to: str
    future: "asyncio.Future[Any]"


class Link:
    """Made by `Link.to`. Verbs raise DeliveryUnavailableError once it is lost."""

    def __init__(self, address: Address, delivered: Callable[[Any], Awaitable[None]]) -> None:
        self.address = address
        self.lost = asyncio.Event()
        self.server = ""  # its version
        self._introduced = False  # the server was told who we are
        self._why = ""
        self._delivered = delivered
        self._asked: dict[str, Asked] = {}  # what has no answer yet, by where that goes
        self._count = 0
        self._subscription: Any = None
        self._own: dict[str, Any] = {}  # the client's hooks that ours stand in the place of
        self._client: Any = nats_module().aio.client.Client()
        self._inbox = str(self._client.new_inbox())
        self._tame()

    @classmethod
    async def to(cls, address: Address, delivered: Callable[[Any], Awaitable[None]]) -> "Link":
        """Connect. Raises DeliveryUnavailableError with one line."""
        link = cls(address, delivered)
        try:
            async with asyncio.timeout(2 * CONNECT_MAX_S):
                await link._connect()
        except BaseException as error:
            cause = link._why or told(error)
            if link._introduced and isinstance(error, ConnectionResetError | BrokenPipeError):
                cause = LET_IN_NOT
            await link.drop(cause)
            link._why = cause
            if not isinstance(error, Exception):
                raise
            raise link.unavailable() from None
        return link

    async def _connect(self) -> None:
        address = self.address
        who = {"token": address.user} if address.password is None else {"user": address.user}
        if address.password is not None:
            who["password"] = address.password
        more = {} if address.tls is None else {"tls": address.tls}
        await self._client.connect(
            [f"nats://{server}" for server in address.servers],
            **who,
            **more,
            name="forebay",
            error_cb=self._heard,
            allow_reconnect=False,
            connect_timeout=CONNECT_MAX_S,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.05,
            ping_interval=PING_EVERY_S,
            pending_size=UNSENT_BYTES_MAX * 2,  # `put` looks before, as the client would wait without an end
        )
        if not self._client.is_connected:
            raise ConnectionResetError
        self._why = ""
        reading = getattr(self._client, "_reading_task", None)
        if reading is not None:
            reading.add_done_callback(self._ended)
        self.server = str(self._client.connected_server_version)
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._arrived)
        await self._client.flush(CONNECT_MAX_S)
        if self.lost.is_set():
            raise ConnectionError(self._why)

    async def put(self, subject: str, body: bytes, answer_to: str = "") -> None:
        """Hand a message to the connection; whether it arrives is not known."""
        if self.lost.is_set():
            raise self.unavailable()
        if self._client.pending_data_size > UNSENT_BYTES_MAX:
            raise self.unavailable("it takes nothing more")
        try:
            await self._client.publish(subject, body, reply=answer_to)
        except (nats_module().errors.Error, OSError) as error:
            raise self.unavailable(told(error)) from None

    async def begin(self, subject: str, body: bytes) -> "Asked":
        """Ask; the future is the answer. Whoever begins must call `end`."""
        self._count += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        one = Asked(subject, body, f"{self._inbox}.{self._count}", future)
        self._asked[one.answer_to] = (
            one  # before it is put: the answer may be here, or the link lost, by then
        )
        try:
            await self.put(subject, body, one.answer_to)
        except BaseException:
            self.end(one)
            raise
        return one

    def end(self, one: "Asked") -> None:
        """Wait for an answer no longer."""
        self._asked.pop(one.answer_to, None)
        if not one.future.done():
            one.future.cancel()
        elif not one.future.cancelled():
            one.future.exception()  # heard

    async def ask_all(self, subject: str, bodies: list[bytes]) -> list[Any]:
        """Send each body and return the answers: a message, or the error that stands for it.

        What has no answer is sent again, and may arrive twice: whoever should answer may have died.
        """
        asked: list[Asked] = []
        try:
            for body in bodies:
                asked.append(await self.begin(subject, body))  # noqa: PERF401 - half of them must be ended too
            for again, wait_s in enumerate(ANSWER_WAITS_S):
                open_ = [one for one in asked if not one.future.done()]
                for one in open_ if again else ():
                    await self.put(subject, one.body, one.answer_to)
                if open_:
                    await asyncio.wait([one.future for one in open_], timeout=wait_s)
                if all(one.future.done() for one in asked):
                    return [one.future.exception() or one.future.result() for one in asked]
            await self.prove_alive()
            raise self.unavailable("it did not answer in time")
        finally:
            for one in asked:
                self.end(one)

    async def ask(self, subject: str, body: bytes = b"") -> bytes:
        """Return the answer. Raises Unanswered, or DeliveryUnavailableError."""
        (answer,) = await self.ask_all(subject, [body])
        if isinstance(answer, Exception):
            raise answer
        if status(answer) == NO_RESPONDERS:
            raise Unanswered
        return bytes(answer.data)

    async def prove_alive(self) -> None:
        """Drop the connection unless the server gives a sign of life."""
        try:
            async with asyncio.timeout(
                2 * ALIVE_MAX_S
            ):  # to ask may wait itself, for a peer that takes nothing
                await self._client.flush(ALIVE_MAX_S)
        except (nats_module().errors.Error, OSError) as error:  # TimeoutError is one
            await self.drop(told(error))
        if self.lost.is_set():
            raise self.unavailable()

    def unavailable(self, why: str = "") -> DeliveryUnavailableError:
        """Return the error that says why the broker cannot be used."""
        return DeliveryUnavailableError(f"broker: {self.address.label}: {why or self._why}")

    async def hush(self) -> None:
        """Have nothing more delivered. What was on its way has been heard then; no question has an answer."""
        if self._subscription is None or self.lost.is_set():
            return
        with contextlib.suppress(Exception):  # it is lost, or will be
            async with asyncio.timeout(GIVE_BACK_MAX_S):
                await self._subscription.drain()

    async def close(self) -> None:
        """Let what was put arrive, and go."""
        with contextlib.suppress(Exception):
            if not self.lost.is_set():
                await self._client.flush(GIVE_BACK_MAX_S)
        await self.drop("it is closed")

    async def drop(self, why: str) -> None:
        """Go at once, whatever the connection is in the middle of. Twice is harmless."""
        broken = self.lost.is_set()
        self._lose(why)
        try:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LET_GO_MAX_S):
                    if self._subscription is not None:
                        await self._subscription.unsubscribe()
            if broken:
                self._abort()  # else a peer that takes nothing is waited for
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LET_GO_MAX_S):
                    await self._client.close()
        finally:
            self._abort()

    def _abort(self) -> None:
        with contextlib.suppress(AttributeError):
            self._client._transport._io_writer.transport.abort()  # noqa: SLF001

    def _lose(self, why: str) -> None:
        """Tell all who wait that nothing comes any more."""
        if self.lost.is_set():
            return
        self._why = self._why or why
        self.lost.set()
        for one in self._asked.values():
            if not one.future.done():
                one.future.set_exception(self.unavailable())

    async def _heard(self, error: Exception) -> None:
        """Take what the client would print."""
        self._why = told(error)
        if self._subscription is not None and not isinstance(error, nats_module().errors.SlowConsumerError):
            self._lose(self._why)

    async def _failed(self, error: Exception) -> None:
        """In the place of the client's own ending of a connection, which may itself fail half-way."""
        self._lose(told(error))

    async def _refused(self, text: str) -> None:
        """In the place of the client's own: a permission that is missing concerns those who asked for it."""
        line = told(ConnectionError(text))
        if "permissions violation" not in line or self._inbox.lower() in line:
            self._lose(line)
            return
        for one in self._asked.values():
            if one.subject.lower() in line and not one.future.done():
                one.future.set_exception(self.unavailable(f"the user may not do what is needed: {line}"))

    def _ended(self, _: object) -> None:
        self._lose("the connection ended")

    async def _arrived(self, message: Any) -> None:
        if message.reply:  # a delivery; it keeps the subject that it was sent to
            await self._delivered(message)
            return
        one = self._asked.get(message.subject)
        if one is not None and not one.future.done():
            one.future.set_result(message)

    def _tame(self) -> None:
        """Replace hooks of the client. Raises ConfigError where it has none of that name."""
        client = self._client
        hooks = {
            "_process_op_err": self._failed,
            "_process_err": self._refused,
            "_process_headers": self._headers,
            "_process_pong": self._pong,
            "_connect_command": self._introduce,
        }
        for name, hook in hooks.items():
            if not hasattr(client, name):
                raise ConfigError(f"broker: this version of nats-py cannot be used: it has no {name}")
            self._own[name] = getattr(client, name)
            setattr(client, name, hook)

    async def _headers(self, raw: bytes) -> Any:
        try:
            return await self._own["_process_headers"](raw)
        except Exception:  # anybody may publish anything, and an error here ends the reading for good
            return None

    async def _pong(self) -> None:
        waiting = getattr(self._client, "_pongs", ())
        if waiting and waiting[0].done():  # who asked was cancelled meanwhile
            waiting.pop(0)
            self._client._pings_outstanding = 0  # noqa: SLF001
            return
        await self._own["_process_pong"]()

    def _introduce(self) -> Any:
        if self.address.tls is not None and not self._client._server_info.get("tls_required"):  # noqa: SLF001
            raise ConnectionError("it offers no TLS, so no password is sent")
        self._introduced = True
        return self._own["_connect_command"]()


def status(message: Any) -> str:
    """Return the three digits that a server's own message bears; nothing where it bears none."""
    headers: dict[str, str] = message.headers or {}
    return headers.get(STATUS, "")


def description(message: Any) -> str:
    """Return what stands behind them."""
    headers: dict[str, str] = message.headers or {}
    return headers.get(DESCRIPTION, "")
