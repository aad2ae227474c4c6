"""Calls: signed calls to the service, tried again within bounds, held off while it is away, and counted."""

import asyncio
import email.utils
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from forebay.brokers.sqs.account import Account, http_module, line
from forebay.brokers.sqs.refusals import EXPIRED, RefusedError, meaning, passes, reason_of
from forebay.errors import DeliveryUnavailableError
from forebay.ports.clock import Clock

CONNECTIONS_MAX: Final = 256  # of one process: a long poll for each task, and what is written
CALLS_MAX: Final = 16  # that are not long polls, at once
ANSWER_B_MAX: Final = 16 * 1024 * 1024  # ten messages of the largest size, which no hint of ours is


class Bounds(NamedTuple):
    """How long things may take, in seconds, and how often they are tried."""

    answer_max_s: float = 4.0  # for one call, besides the wait of a long poll
    call_max_s: float = 8.0  # for a call and its repetitions
    tries_max: int = 4
    pause_min_s: float = 0.1  # before the second try; doubles, and half of it is drawn
    away_min_s: float = 0.5  # how long nothing is tried after all tries failed; doubles
    away_max_s: float = 5.0
    hold_s: int = 30  # how long a hint is ours until it is acknowledged
    close_max_s: float = 5.0  # to give back what is held
    idle_s: float = 1.0  # how long one waits here for a receiver, when the one that asked is gone


class Calls:
    """The service at one endpoint. Every failure is a DeliveryUnavailableError with one line."""

    def __init__(self, account: Account, label: str, clock: Clock, bounds: Bounds) -> None:
        self.label = label
        self.bounds = bounds
        self.requests: Counter[str] = Counter()  # sent, by verb: what the service bills
        self._account = account
        self._clock = clock
        http = self._http = http_module()
        self._session = http.ClientSession(
            connector=http.TCPConnector(limit=CONNECTIONS_MAX, ssl=_trusted(account.verify)),
            timeout=http.ClientTimeout(total=None),  # one bound is around the whole call
            trust_env=True,  # proxies, as AWS's own tools take them
            auto_decompress=False,
        )
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._polls = asyncio.Semaphore(CONNECTIONS_MAX - CALLS_MAX)  # a poll keeps no other call waiting
        self._closed = False
        self._away: str | None = None  # why all tries of the last call failed
        self._away_s = bounds.away_min_s
        self._retry_at = 0.0

    async def ask(self, verb: str, what: Mapping[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        """Return the answer to one call; `wait_s` is how long a long poll waits by itself.

        Raises RefusedError, with the code, for what another try would not mend.
        """
        async with self._polls if wait_s else self._slots:
            return await self._tried(verb, what, wait_s)

    async def pause(self, attempt: int) -> None:
        """Wait before try number `attempt` + 2."""
        most_s = self.bounds.pause_min_s * 2**attempt
        await self._clock.sleep(most_s * (1 + self._clock.random()) / 2)

    def unavailable(self, why: str, retry_after_s: float = 1.0) -> DeliveryUnavailableError:
        """Return the error to raise."""
        return DeliveryUnavailableError(f"broker: {self.label}: {why}", retry_after_s=retry_after_s)

    async def close(self) -> None:
        """Let go of all connections; calls are refused from now on."""
        self._closed = True
        await self._session.close()

    async def _tried(self, verb: str, what: Mapping[str, Any], wait_s: float) -> dict[str, Any]:
        bounds = self.bounds
        probing = self._may_try()
        until = self._clock.now() + bounds.call_max_s + wait_s
        why = ""
        for attempt in range(1 if probing else bounds.tries_max):
            if attempt:
                await self.pause(attempt - 1)
            left_s = until - self._clock.now()
            if left_s <= 0:
                break
            if self._closed:
                raise self.unavailable("the connection is closed")
            try:
                async with asyncio.timeout(min(left_s, wait_s + bounds.answer_max_s)):
                    answer = await self._once(verb, what)
            except TimeoutError:
                why = "it did not answer in time"
            except (self._http.ClientError, OSError) as error:
                why = f"it cannot be reached: {line(error) or type(error).__name__}"
            except _PassingError as error:
                why = str(error)
            except RefusedError:
                self._works()  # who says no is there
                raise
            else:
                self._works()
                return answer
        raise self._failed(why)

    def _may_try(self) -> bool:
        """Return whether this is the call that looks whether the service is back. Raises while it is away."""
        if self._closed:
            raise self.unavailable("the connection is closed")
        if self._away is None:
            return False
        now = self._clock.now()
        if now < self._retry_at:
            raise self.unavailable(self._away, max(1.0, self._retry_at - now))
        self._retry_at = now + self.bounds.answer_max_s
        return True

    def _works(self) -> None:
        self._away, self._away_s = None, self.bounds.away_min_s

    def _failed(self, why: str) -> DeliveryUnavailableError:
        self._away = why
        self._retry_at = self._clock.now() + self._away_s * (1 + self._clock.random()) / 2
        error = self.unavailable(why, max(1.0, self._away_s))
        self._away_s = min(self.bounds.away_max_s, self._away_s * 2)
        return error

    async def _once(self, verb: str, what: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(what).encode()
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{verb}"}
        signed = self._account.signed(await self._account.keys(), headers, body)
        self.requests[verb] += 1
        url = self._account.endpoint
        async with self._session.post(url, data=body, headers=signed, allow_redirects=False) as response:
            data = bytearray()
            async for piece in response.content.iter_any():
                data += piece
                if len(data) > ANSWER_B_MAX:
                    raise self.unavailable(f"{verb}: an answer of more than {ANSWER_B_MAX} bytes")
        answer = _read(bytes(data))
        if response.status == 200 and answer is not None:
            return answer
        raise self._refusal(verb, response.status, response.headers, answer or {})

    def _refusal(
        self, verb: str, status: int, headers: Mapping[str, str], answer: dict[str, Any]
    ) -> Exception:
        reason = reason_of(answer, headers)
        if not reason and status < 500:
            reason = f"HTTP status {status}"
        told = str(answer.get("message") or answer.get("Message") or "")
        if reason in EXPIRED:
            self._account.forget_keys()
        if passes(status, reason) or reason in EXPIRED or status == 200:
            return _PassingError(f"{verb} failed: {reason or status} {line(Exception(told))}".strip())
        text = meaning(verb, reason, told, self._skew_s(headers.get("Date")))
        return RefusedError(f"broker: {self.label}: {text}", reason)

    def _skew_s(self, date: str | None) -> float | None:
        try:
            return self._clock.now() - email.utils.parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError):
            return None


class _PassingError(Exception):
    """The service failed in a way that may pass."""


def _trusted(verify: str | bool) -> Any:
    if isinstance(verify, str):
        import ssl

        return ssl.create_default_context(cafile=verify)
    return verify


def _read(data: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(data or b"{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else None
