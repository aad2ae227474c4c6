"""Caller: a call to an upstream: sent, read within its bounds, judged."""

import asyncio
import math
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import unquote

import httpx

from forebay.core.upstream import (
    Judgement,
    UpstreamSpec,
    away,
    broken,
    judged,
    late,
    status_of,
    too_large,
    unreadable,
)
from forebay.node.answers import Stream, TooLongError, UnreadableError, Whole, reader_for, words_of

PROBLEM_BYTES_MAX: Final = 8 * 1024  # read of the body of an answer that is no good one
PROBLEM_S: Final = 5.0  # for that body
KEPT_ALIVE_S: Final = 2.0  # shorter than what common servers allow, so that none closes while we send
NO_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"))  # ours bound whole steps

Parts = Callable[[list[bytes]], None]


class Called(NamedTuple):
    """What came of a call: `output` is the result as JSON text when it was good."""

    judgement: Judgement
    output: bytes | None = None


class Caller:
    """Calls one upstream over a pool of connections. Follows no redirect, uses no proxy, keeps no cookie."""

    def __init__(self, spec: UpstreamSpec, *, now: Callable[[], float], agent: str) -> None:
        self._spec = spec
        self._now = now
        self._agent = agent
        self._transport = httpx.AsyncHTTPTransport(
            verify=spec.url.startswith("https:"),
            trust_env=False,
            limits=httpx.Limits(
                max_connections=spec.limit.most,
                max_keepalive_connections=spec.limit.most,
                keepalive_expiry=KEPT_ALIVE_S,
            ),
        )

    async def call(self, job_id: str, payload: bytes, *, total_s: float, on_parts: Parts) -> Called:
        """Send the payload and return what came of it. Raises nothing that an upstream could cause."""
        try:
            async with asyncio.timeout(total_s):
                return await self._exchange(self._request(job_id, payload, total_s), on_parts)
        except TimeoutError:
            return Called(late("the call", total_s))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Called(away(_told(error)))
        except httpx.TransportError as error:
            return Called(broken(_told(error)))
        except TooLongError:
            return Called(too_large(self._spec.answer_bytes_max))
        except UnreadableError as error:
            return Called(unreadable(str(error)))

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    def _request(self, job_id: str, payload: bytes, total_s: float) -> httpx.Request:
        headers = [
            ("accept", "application/json, text/event-stream, */*;q=0.1"),
            ("accept-encoding", "identity"),  # what is counted is what is kept
            ("content-type", "application/json"),
            ("user-agent", self._agent),
            ("idempotency-key", job_id),
            ("x-request-timeout", f"{total_s:.3f}"),
        ]
        given = {name.lower() for name, _ in self._spec.headers}
        headers = [header for header in headers if header[0] not in given]
        return httpx.Request(
            self._spec.method,
            self._spec.url,
            headers=[*headers, *self._spec.headers],
            content=payload,
            extensions={"timeout": NO_TIMEOUTS | {"connect": self._spec.connect_s}},
        )

    async def _exchange(self, request: httpx.Request, on_parts: Parts) -> Called:
        spec = self._spec
        try:
            async with asyncio.timeout(spec.connect_s + spec.first_byte_s):
                response = await self._transport.handle_async_request(request)
        except TimeoutError:
            return Called(late("the head of the answer", spec.first_byte_s))
        try:
            status = status_of(response.status_code, response.headers.get("grpc-status", ""))
            if 200 <= status < 300:
                return await self._read(response, on_parts)
            words = words_of(await self._problem(response)) or unquote(
                response.headers.get("grpc-message", "")
            )
            return Called(
                judged(
                    status,
                    words=words,
                    after_s=retry_after_s(response.headers, now=self._now()),
                )
            )
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response, on_parts: Parts) -> Called:
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity":
            raise UnreadableError(f"it is encoded ({coding}), which was not asked for")
        reader = reader_for(response.headers.get("content-type", ""), self._spec.answer_bytes_max)
        pieces = response.aiter_raw()
        try:
            while True:
                async with asyncio.timeout(self._spec.idle_s):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                if parts := reader.feed(piece):
                    on_parts(parts)
                if isinstance(reader, Stream) and reader.ended:
                    break
        except TimeoutError:
            return Called(late("the next piece of the answer", self._spec.idle_s))
        return _finished(reader, on_parts)

    async def _problem(self, response: httpx.Response) -> bytes:
        """Return the begin of a body; what is slow, endless or broken ends it."""
        body = bytearray()
        try:
            async with asyncio.timeout(PROBLEM_S):
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) >= PROBLEM_BYTES_MAX:
                        break
        except (TimeoutError, httpx.TransportError):
            pass
        return bytes(body[:PROBLEM_BYTES_MAX])


def _finished(reader: Whole | Stream, on_parts: Parts) -> Called:
    parts, output = reader.end()
    if parts:
        on_parts(parts)
    if isinstance(reader, Stream) and reader.problem:
        return Called(judged(500, words=reader.problem))
    return Called(judged(200), output)


def retry_after_s(headers: httpx.Headers, *, now: float) -> float | None:
    """Return the wait that an answer asks for, in seconds or until a date; None when it says nothing."""
    exact = headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit() and len(exact) <= 12:
        return float(exact) / 1000
    text = headers.get("retry-after", "").strip()[:64]
    try:
        wait_s = float(text)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError, TypeError):
            return None
    return wait_s if math.isfinite(wait_s) and wait_s >= 0 else None


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
