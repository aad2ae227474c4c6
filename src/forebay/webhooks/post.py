"""Poster: one POST to a receiver that nobody trusts: bounded in time and bytes, no redirects, no proxies."""

import asyncio
import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from forebay.core.callback import Callback, CallbackRules
from forebay.webhooks.address import AddressError, Resolve, Resolver, checked
from forebay.webhooks.connection import Answer, BrokenAnswerError, Connection

TOTAL_S = 15.0  # from the look-up of the name to the last byte of the answer that is read
CONNECT_S = 5.0  # for one address, with the handshake of TLS
KEPT_ALIVE_MAX = 64  # idle connections
KEPT_ALIVE_S = 5.0
DETAIL_LENGTH_MAX = 200  # characters of a reason
RETRY_AFTER_LENGTH_MAX = 64

Origin = tuple[str, str, int]


class Posted(NamedTuple):
    """What came of it. `status` is None when there was no answer; then `detail` says why."""

    status: int | None
    detail: str = ""
    retry_after_s: float | None = None


class Poster:
    """Sends. Nothing of an answer but its status and Retry-After is kept: a callback reads no one's pages.

    A connection is kept alive for the same scheme, host and port alone, and stays with the address that was
    checked when it was made.
    """

    def __init__(self, resolve: Resolve, rules: CallbackRules, *, now: Callable[[], float]) -> None:
        self._resolve = resolve
        self._rules = rules
        self._now = now
        self._context: ssl.SSLContext | None = None
        self._idle: dict[Origin, list[Connection]] = {}
        self._idle_count = 0

    async def post(self, callback: Callback, headers: list[tuple[bytes, bytes]], body: bytes) -> Posted:
        """Post once and return what came of it. Raises nothing that a receiver could cause."""
        try:
            async with asyncio.timeout(TOTAL_S):
                return self._read(await self._exchange(callback, _request(callback, headers, body)))
        except TimeoutError:
            return Posted(None, f"no whole answer within {TOTAL_S:g} s")
        except (AddressError, BrokenAnswerError) as error:
            return Posted(None, _told(str(error)))
        except OSError as error:  # of TLS too
            return Posted(None, _told(f"no connection: {error.strerror or error}"))

    async def close(self) -> None:
        """Close every connection."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        if isinstance(self._resolve, Resolver):
            self._resolve.close()

    async def _exchange(self, callback: Callback, request: bytes) -> Answer:
        origin = (callback.scheme, callback.host, callback.port)
        kept = self._taken(origin)
        if kept is not None:
            try:
                return await self._asked(origin, kept, request)
            except BrokenAnswerError as error:
                if not error.silent:
                    raise
                # The receiver let go of it while it was idle: that says nothing about the receiver.
        return await self._asked(origin, await self._connected(callback), request)

    async def _asked(self, origin: Origin, connection: Connection, request: bytes) -> Answer:
        answer = await connection.ask(request)
        if connection.open and self._idle_count < KEPT_ALIVE_MAX:
            self._idle.setdefault(origin, []).append(connection)
            self._idle_count += 1
            asyncio.get_running_loop().call_later(KEPT_ALIVE_S, self._forget, origin, connection)
        else:
            connection.close()
        return answer

    def _taken(self, origin: Origin) -> Connection | None:
        waiting = self._idle.get(origin)
        while waiting:
            connection = waiting.pop()
            self._idle_count -= 1
            if connection.open:
                return connection
        self._idle.pop(origin, None)
        return None

    def _forget(self, origin: Origin, connection: Connection) -> None:
        waiting = self._idle.get(origin, [])
        if connection in waiting:
            waiting.remove(connection)
            self._idle_count -= 1
            connection.close()
            if not waiting:
                del self._idle[origin]

    async def _connected(self, callback: Callback) -> Connection:
        """Connect to an address that was checked; TLS keeps the name."""
        context = None
        if callback.scheme == "https":
            context = self._context = self._context or await asyncio.to_thread(_tls)
        loop = asyncio.get_running_loop()
        problem: OSError | None = None
        for address in await checked(callback, self._resolve, self._rules):
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, connection = await loop.create_connection(
                        Connection,
                        str(address),
                        callback.port,
                        ssl=context,
                        server_hostname=None if context is None else callback.host,
                    )
            except TimeoutError:
                problem = OSError(f"not within {CONNECT_S:g} s")
            except OSError as error:
                problem = error
            else:
                return connection
        assert problem is not None
        raise problem

    def _read(self, answer: Answer) -> Posted:
        if 200 <= answer.status < 300:
            return Posted(answer.status)
        told = "redirects are not followed" if 300 <= answer.status < 400 else f"answered {answer.status}"
        asked = answer.retry_after
        return Posted(answer.status, told, None if asked is None else self._seconds(asked))

    def _seconds(self, asked: bytes) -> float | None:
        """Return the wait that a Retry-After asks for; None when it says nothing."""
        text = asked[:RETRY_AFTER_LENGTH_MAX].decode("latin-1").strip()
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            return parsedate_to_datetime(text).timestamp() - self._now()
        except (ValueError, OverflowError):
            return None


def _request(callback: Callback, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    # Nothing in here can hold a line break: the URL was read strictly, the rest is ours.
    lines = [
        b"POST %b HTTP/1.1" % callback.target.encode(),
        b"host: %b" % callback.authority.encode(),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"accept: */*",
        *(b"%b: %b" % header for header in headers),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _tls() -> ssl.SSLContext:
    """Return the trust of the HTTP client: its certificates, or those that SSL_CERT_FILE names."""
    import httpx

    return httpx.create_ssl_context()


def _told(text: str) -> str:
    """Return one printable line, bounded."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line[:DETAIL_LENGTH_MAX]
