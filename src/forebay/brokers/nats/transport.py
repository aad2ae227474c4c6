"""NatsTransport: the verbs of a Transport by JetStream: published and acknowledged, pulled on demand."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.brokers.nats import streams
from forebay.brokers.nats.address import Address
from forebay.brokers.nats.link import NO_RESPONDERS, Asked, Link, Unanswered, description, status
from forebay.brokers.nats.streams import Names, Refused, token
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX, Hint, Traits

PULL_MAX_S: Final = 4.0  # for one request; one that a dying server forgot is asked again after that
PULL_MIN_S: Final = 0.02  # what "at once" means to the server: without an end a request would wait for good
SILENCE_S: Final = 1.0  # after its end a request without an answer is lost
GATHER_S: Final = 0.2  # for what comes behind the first hint
TRIES_MAX: Final = 4  # of one verb, when what it needs was removed or moves
PAUSE_S: Final = 0.1  # between two of them
SEND_MAX: Final = 500  # hints on their way at a time
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 2.0  # between two tries to connect
CLOSED: Final = "the transport is closed"
ACKNOWLEDGED, GIVEN_BACK, DONE_FOR = b"+ACK", b"-NAK", b"+TERM"
NOTE: Final = (
    "JetStream acknowledges a hint before it is synced to the disk (sync_interval: two minutes, unless set):"
    " a loss of power may lose hints, which the store announces again"
)
TRAITS: Final = Traits(name="NATS JetStream", counted=True, each=True, delays=True, durable=True, note=NOTE)


class _Line:
    """Hints of one task that arrived, and who waits for them."""

    def __init__(self) -> None:
        self.arrived: deque[Hint] = deque()
        self.bells: set[asyncio.Event] = set()


class NatsTransport:
    """Opened by `NatsTransport.open`. Streams are made then, a task's consumer when it is first used."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.traits = TRAITS
        self._names = Names(address.prefix)
        self._lines: dict[str, _Line] = {}  # by the subject of their hints
        self._held: dict[str, float] = {}  # replies of what the caller holds, and until when
        self._ready: set[str] = set()  # tasks whose consumer was seen on this link
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._away = ""  # why the last try to connect failed
        self._retry_at = 0.0
        self._backoff_s = BACKOFF_MIN_S

    @classmethod
    async def open(cls, url: str) -> "NatsTransport":
        """Connect, see that the server can be used, and make the streams.

        Raises ConfigError or DeliveryUnavailableError with one line; nothing was made then.
        """
        transport = cls(Address.of(url))
        try:
            await transport._connected()
        except BaseException:
            await transport.close()
            raise
        return transport

    async def send(self, task: str, bodies: Sequence[bytes]) -> None:
        """Publish hints; the server acknowledged each. See Transport."""
        await self._publish(self._names.hint(token(task)), bodies)

    async def bury(self, task: str, bodies: Sequence[bytes]) -> None:
        """Put hints into the stream of dead letters. See Transport."""
        await self._publish(self._names.letter(token(task)), bodies)

    async def receive(self, task: str, *, limit: int, wait_s: float) -> list[Hint]:
        """Return hints that were pulled. See Transport."""
        loop, name = asyncio.get_running_loop(), token(task)
        until, tries, alone = loop.time() + wait_s, 0, False
        while True:
            link = await self._prepared(name)
            asked_s = min(PULL_MAX_S, max(PULL_MIN_S, until - loop.time()))
            hints, why = await self._pull(link, name, limit, asked_s, alone=alone)
            if hints:
                return hints
            if why:
                tries += 1
                await self._unprepare(link, name, why, tries)
            elif until - loop.time() < PULL_MIN_S:
                return []
            # Others wait already for what is there, says the server; then as one of them.
            alone = why == ""

    async def ack(self, task: str, hints: Sequence[Hint]) -> None:
        """Acknowledge hints, without waiting for the server. See Transport."""
        await self._tell(hints, ACKNOWLEDGED)

    async def give_back(self, task: str, hints: Sequence[Hint], *, delay_s: float) -> None:
        """Let hints come again. See Transport."""
        delay_ns = int(max(0.0, delay_s) * 1e9)
        await self._tell(hints, GIVEN_BACK + (b' {"delay": %d}' % delay_ns if delay_ns else b""))

    async def depth(self, task: str) -> int | None:
        """Return how many hints wait or are held, as the consumer counts them. See Transport."""
        name = token(task)
        for tries in range(1, TRIES_MAX + 1):
            link = await self._prepared(name)
            try:
                return await streams.depth(link, self.address, name)
            except (Refused, Unanswered) as error:
                await self._unprepare(link, name, str(error), tries)
        raise AssertionError  # the last try raised

    async def forget(self, task: str) -> None:
        """Remove the consumer of a task, its hints and its dead letters. See Transport.

        With the last task the streams go too, unless somebody gave them limits of their own."""
        name = token(task)
        link = await self._connected()
        self._ready.discard(name)
        await streams.remove(link, self.address, name)

    async def remove(self) -> None:
        """Remove everything under the prefix. For checks."""
        await streams.remove_streams(await self._connected(), self.address, idle=False)

    async def close(self) -> None:
        """Give back what is held, and go. See Transport."""
        self._closed = True
        link = self._link
        if link is None:
            return
        await link.hush()  # else what is given back comes to who asked here before, and is lost with it
        held, self._held = self._held, {}
        with contextlib.suppress(DeliveryUnavailableError):
            for reply in held:
                await link.put(reply, GIVEN_BACK)
        for line in self._lines.values():
            await self._let_go(link, line)
        await link.close()

    # ---- connections ------------------------------------------------------------------------------------

    async def _connected(self) -> Link:
        """Return a link that is not lost. Raises DeliveryUnavailableError, at once while one is not due."""
        async with self._connecting:
            if self._closed:
                raise DeliveryUnavailableError(f"broker: {self.address.label}: {CLOSED}")
            if self._link is not None and not self._link.lost.is_set():
                return self._link
            now = asyncio.get_running_loop().time
            if self._away and now() < self._retry_at:
                raise DeliveryUnavailableError(self._away, retry_after_s=max(1.0, self._backoff_s))
            try:
                self._link = await self._connect()
            except DeliveryUnavailableError as error:
                self._away = str(error)
                self._retry_at = now() + self._backoff_s
                self._backoff_s = min(BACKOFF_MAX_S, self._backoff_s * 2)
                raise
            self._away, self._backoff_s = "", BACKOFF_MIN_S
            return self._link

    async def _connect(self) -> Link:
        if self._link is not None:
            old, self._link = self._link, None
            await old.drop("")
        self._ready.clear()
        link = await Link.to(self.address, self._arrived)
        try:
            await streams.check_server(link)
            await streams.make_streams(link, self.address)
            if self._closed:
                raise link.unavailable(CLOSED)
        except BaseException:
            await link.close()
            raise
        return link

    async def _prepared(self, name: str) -> Link:
        """Return a link on which the consumer of a task was seen."""
        link = await self._connected()
        if name not in self._ready:
            await streams.make_consumer(link, self.address, name)
            if link is self._link:
                self._ready.add(name)
        return link

    async def _unprepare(self, link: Link, name: str, why: str, tries: int) -> None:
        """Look again for what a verb needs, a moment later. Raises after some tries."""
        self._ready.discard(name)
        if tries >= TRIES_MAX:
            raise link.unavailable(why or "JetStream does not answer there")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S * (tries - 1)):
                await link.lost.wait()

    # ---- there ------------------------------------------------------------------------------------------

    async def _publish(self, subject: str, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), SEND_MAX):
            left = list(bodies[first : first + SEND_MAX])
            for tries in range(1, TRIES_MAX + 1):
                link = await self._connected()
                left, why = _left(left, await link.ask_all(subject, left), link)
                if not left:
                    break
                if tries == TRIES_MAX:
                    raise link.unavailable(why)
                await streams.make_streams(link, self.address)

    async def _tell(self, hints: Sequence[Hint], word: bytes) -> None:
        if not hints:
            return
        link = await self._connected()
        for hint in hints:
            reply = str(hint.token)
            if self._held.pop(reply, None) is not None:
                await link.put(reply, word)

    # ---- here -------------------------------------------------------------------------------------------

    async def _pull(
        self, link: Link, name: str, limit: int, wait_s: float, *, alone: bool
    ) -> tuple[list[Hint], str | None]:
        """Return what came of one request; else what was wrong: None when there is just nothing to have, ""
        when others wait already."""
        subject = self._names.hint(name)
        line = self._lines.setdefault(subject, _Line())
        bell = asyncio.Event()
        line.bells.add(bell)
        asked: dict[str, Any] = {"batch": 1 if alone else max(1, limit), "expires": int(wait_s * 1e9)}
        if not alone:
            asked["no_wait"] = True  # with an end: as soon as there is something, what there is
        one: Asked | None = None
        try:
            one = await link.begin(self._names.next(name), msgspec.json.encode(asked))
            one.future.add_done_callback(lambda _: bell.set())
            why = await self._heard(link, line, bell, one.future, limit, wait_s)
            return self._take(line, limit), why
        finally:
            if one is not None:
                link.end(one)
            line.bells.discard(bell)
            if not line.bells:
                await self._let_go(link, line)

    async def _heard(
        self,
        link: Link,
        line: _Line,
        bell: asyncio.Event,
        answer: "asyncio.Future[Any]",
        limit: int,
        wait_s: float,
    ) -> str | None:
        """Wait until a request is over, one way or the other."""
        until_s = wait_s + SILENCE_S
        while len(line.arrived) < limit and not answer.done():
            bell.clear()
            try:
                async with asyncio.timeout(GATHER_S if line.arrived else until_s):
                    await bell.wait()
            except TimeoutError:
                if line.arrived:
                    return None
                await link.prove_alive()
                return "JetStream does not answer there"
        if line.arrived or not answer.done():
            return None
        return _verdict(answer.result())

    def _take(self, line: _Line, limit: int) -> list[Hint]:
        taken = [line.arrived.popleft() for _ in range(min(limit, len(line.arrived)))]
        now = asyncio.get_running_loop().time()
        for reply, until in list(self._held.items()) if len(self._held) > streams.HELD_MAX else ():
            if until < now:
                del self._held[reply]
        for hint in taken:
            self._held[str(hint.token)] = now + streams.ACK_WAIT_S
        return taken

    async def _arrived(self, message: Any) -> None:
        line = self._lines.get(message.subject)
        link = self._link
        if link is None:
            return
        if len(message.data) > BODY_MAX:  # no hint of ours; it would come again for ever
            await link.put(message.reply, DONE_FOR)
        elif line is None or not line.bells or self._closed:  # who asked for it has gone
            await link.put(message.reply, GIVEN_BACK)
        else:
            line.arrived.append(Hint(bytes(message.data), message.reply))
            for bell in line.bells:
                bell.set()

    async def _let_go(self, link: Link, line: _Line) -> None:
        with contextlib.suppress(DeliveryUnavailableError):  # then they come again by themselves
            while line.arrived:
                await link.put(str(line.arrived.popleft().token), GIVEN_BACK)


def _left(bodies: list[bytes], answers: list[Any], link: Link) -> tuple[list[bytes], str]:
    """Return the bodies that no stream took because there was none, and why. Raises for what was refused."""
    left: list[bytes] = []
    for body, answer in zip(bodies, answers, strict=True):
        if isinstance(answer, Exception):
            raise answer
        if status(answer) == NO_RESPONDERS:
            left.append(body)
            continue
        try:
            streams.read(answer.data)
        except Refused as error:
            raise link.unavailable(f"a hint was refused: {error}") from None
    return left, "no stream takes it"


def _verdict(answer: Any) -> str | None:
    """Return what a server's word on a request means; see `_pull`."""
    code, text = status(answer), description(answer)
    if code == "404" or (code == "408" and text == "Request Timeout"):
        return None
    if code == "408":
        return ""
    return f"{code} {text}".strip() if code != NO_RESPONDERS else "there is no consumer"
