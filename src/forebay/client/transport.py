"""SyncTransport, AsyncTransport: one Call over httpx, bounded in size and time; no decisions here."""

import asyncio
import importlib.util
import ipaddress
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import httpx

from forebay.client.wire import Answer, Call, Lost
from forebay.core.units import duration_s
from forebay.errors import ConfigError, TooLargeError

TIMEOUT_S = 30.0  # of one call, from first byte out to last byte in, beside what we ask the server to hold
CONNECT_S = 5.0
ANSWER_MAX_B = 64 * 1024 * 1024
CONNECTIONS_MAX = 200
_NUMBERED = re.compile(r"^\[(Errno|SSL)\b[^\]]*\] ?")  # "[Errno 111] Connection refused"
_NOT_WHOLE = "no whole answer in time"
_PLACED = re.compile(r" \(_ssl\.c:\d+\)$")

# httpcore asks `sniffio` which event loop runs, several times a call; where it is not installed, each of
# these imports searches the whole path again, which costs more than the call. This makes it fail at once.
if "sniffio" not in sys.modules and importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]


class Link(NamedTuple):
    """Where the server is and how to speak to it."""

    url: str
    headers: dict[str, str]
    timeout_s: float
    direct: bool  # loopback: no proxy from the environment


def link(url: str, api_key: str | None, timeout: str | float, extra: dict[str, str] | None = None) -> Link:
    """Return the checked link. Raises ConfigError that names what is wrong, never the key."""
    shown = url if len(url) <= 100 else url[:97] + "..."
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        raise ConfigError("url: not a URL") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError("url: no user or password inside; give the key as api_key")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigError(f"url: {shown!r} is not like http://127.0.0.1:8080")
    headers = {
        "accept-encoding": "identity",
        "accept": "application/json",
        "user-agent": "forebay",
        **(extra or {}),
    }
    if api_key is not None:
        if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
            raise ConfigError("api_key: must be printable ASCII without spaces")
        headers["authorization"] = f"Bearer {api_key}"
    try:
        timeout_s = duration_s(timeout)
    except ValueError as error:
        raise ConfigError(f"timeout: {error}") from None
    if timeout_s <= 0:
        raise ConfigError("timeout: must be more than 0")
    return Link(url.rstrip("/"), headers, timeout_s, _loopback(host))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _timeouts(place: Link, call: Call) -> httpx.Timeout:
    total_s = place.timeout_s + call.wait_s
    if call.source is not None or call.sink is not None:  # long as a whole, and never silent for long
        total_s = place.timeout_s
    return httpx.Timeout(total_s, connect=min(CONNECT_S, place.timeout_s))


def _settings(place: Link) -> dict[str, Any]:
    return {
        "base_url": place.url,
        "headers": place.headers,
        "limits": httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
        "trust_env": not place.direct,
        # Without TLS there is nothing to verify, and reading the certificates takes longer than a call.
        "verify": place.url.startswith("https:"),
    }


def _lost(error: httpx.HTTPError | httpx.InvalidURL) -> Lost:
    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
    reason = _reason(error)
    if isinstance(error, httpx.TimeoutException):
        reason = (
            "no answer in time" if not isinstance(error, httpx.ConnectTimeout) else "no connection in time"
        )
    return Lost(reason, not isinstance(error, unsent))


def _reason(error: Exception) -> str:
    """Return why in words: without numbers of the system, and what to do where the cause is clear."""
    text = str(error).strip()
    if "WRONG_VERSION_NUMBER" in text or "UNKNOWN_PROTOCOL" in text:
        return "it speaks no TLS there: the address begins with http://"
    plain = _NUMBERED.sub("", _PLACED.sub("", text)).strip() or type(error).__name__
    refused = isinstance(error, httpx.ConnectError) and plain == "Connection refused"
    return f"{plain}: no server listens there" if refused else plain


def _checked(answer: httpx.Response, body: bytearray) -> None:
    if len(body) > ANSWER_MAX_B:
        raise TooLargeError(f"the answer is larger than {ANSWER_MAX_B} bytes", limit=ANSWER_MAX_B)
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise TooLargeError("the answer is compressed, which was not asked for")


def _answer(answer: httpx.Response, body: bytearray) -> Answer:
    return Answer(
        answer.status_code, {name.lower(): text for name, text in answer.headers.items()}, bytes(body)
    )


async def _in_threads(source: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
    """Yield what a blocking source yields; the loop goes on meanwhile."""
    pieces = await asyncio.to_thread(source)
    while (part := await asyncio.to_thread(next, pieces, None)) is not None:
        yield part


def _request(
    http: httpx.Client | httpx.AsyncClient, place: Link, call: Call, silence_s: float
) -> httpx.Request:
    timeout = httpx.Timeout(silence_s, connect=min(CONNECT_S, place.timeout_s))
    return http.build_request(
        call.method,
        call.path,
        params=call.params or None,
        headers=list(call.headers),
        content=call.body,
        timeout=timeout,
    )


def _is_stream(answer: httpx.Response) -> bool:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return answer.status_code == 200 and kind == "text/event-stream"


class SyncTransport:
    """Blocking calls over one pool of connections. Safe to share between threads."""

    def __init__(self, place: Link, now: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self._now = now
        self._http = httpx.Client(**_settings(place))

    def send(self, call: Call) -> Answer | Lost:
        """Return the answer, or Lost when none came in time."""
        end = self._now() + self.place.timeout_s + call.wait_s
        try:
            with self._http.stream(
                call.method,
                call.path,
                params=call.params or None,
                headers=list(call.headers),
                content=call.body if call.source is None else call.source(),
                timeout=_timeouts(self.place, call),
            ) as answer:
                body = bytearray()
                _checked(answer, body)
                sink = call.sink if answer.status_code < 300 else None
                for part in answer.iter_raw():
                    if sink is not None:
                        sink(part)
                        continue
                    body += part
                    _checked(answer, body)
                    if self._now() > end:
                        return Lost(_NOT_WHOLE, sent=True)
                return _answer(answer, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error)

    def open(self, call: Call, silence_s: float) -> httpx.Response | Answer | Lost:
        """Return the open answer when it is a stream of events, to be read and closed; else the answer.
        The stream breaks when nothing comes for `silence_s`."""
        request = _request(self._http, self.place, call, silence_s)
        try:
            answer = self._http.send(request, stream=True)
            if _is_stream(answer):
                return answer
            try:
                body, end = bytearray(), self._now() + self.place.timeout_s
                for part in answer.iter_raw():
                    body += part
                    _checked(answer, body)
                    if self._now() > end:
                        return Lost(_NOT_WHOLE, sent=True)
                return _answer(answer, body)
            finally:
                answer.close()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()


class AsyncTransport:
    """Awaited calls over one pool of connections, in one event loop."""

    def __init__(self, place: Link) -> None:
        self.place = place
        self._http = httpx.AsyncClient(**_settings(place))

    async def send(self, call: Call) -> Answer | Lost:
        """Return the answer, or Lost when none came in time."""
        try:
            async with (
                asyncio.timeout(self.place.timeout_s + call.wait_s),
                self._http.stream(
                    call.method,
                    call.path,
                    params=call.params or None,
                    headers=list(call.headers),
                    content=call.body if call.source is None else _in_threads(call.source),
                    timeout=_timeouts(self.place, call),
                ) as answer,
            ):
                body = bytearray()
                _checked(answer, body)
                sink = call.sink if answer.status_code < 300 else None
                async for part in answer.aiter_raw():
                    if sink is not None:
                        await asyncio.to_thread(sink, part)
                        continue
                    body += part
                    _checked(answer, body)
                return _answer(answer, body)
        except TimeoutError:
            return Lost(_NOT_WHOLE, sent=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error)

    async def open(self, call: Call, silence_s: float) -> httpx.Response | Answer | Lost:
        """Return the open answer when it is a stream of events, to be read and closed; else the answer.
        The stream breaks when nothing comes for `silence_s`."""
        request = _request(self._http, self.place, call, silence_s)
        try:
            answer = await self._http.send(request, stream=True)
            if _is_stream(answer):
                return answer
            try:
                body = bytearray()
                async with asyncio.timeout(self.place.timeout_s):
                    async for part in answer.aiter_raw():
                        body += part
                        _checked(answer, body)
                return _answer(answer, body)
            finally:
                await answer.aclose()
        except TimeoutError:
            return Lost(_NOT_WHOLE, sent=True)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _lost(error)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
