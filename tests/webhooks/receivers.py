"""Receivers of callbacks that tests can trust to misbehave: real sockets, one behaviour each."""

import asyncio
import contextlib

from forebay.brokers.memory import MemoryBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.callback import CallbackRules
from forebay.core.delivering import DeliveryPolicy
from forebay.core.job import Job
from forebay.core.retry import RetryPolicy
from forebay.server.render import webhook_json
from forebay.webhooks.post import Poster
from forebay.webhooks.sender import Sender, Terms

KEY = b"k" * 32
INSIDE = CallbackRules(allow_private=True)
QUICK = DeliveryPolicy(retry=RetryPolicy(base_s=0.02, cap_s=0.05), tries_min=3, window_s=0.2)
WAIT_MAX_S = 45.0
OK = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


def answer(status, *headers, body=b""):
    lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Receiver:
    """Answers each request with what `behave(receiver, reader, writer, number)` does, 204 when None."""

    def __init__(self, behave=None, *, tls=None):
        self.behave = behave
        self.tls = tls
        self.requests = []  # (headers, body)
        self.connections = 0
        self.serving = set()
        self.holding = 0  # requests that are being answered
        self.holding_max = 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?token=s3cret"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        serving = list(self.serving)
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader, writer):
        self.connections += 1
        self.serving.add(asyncio.current_task())
        # Of a task that was cancelled the streams of Python 3.11 complain: it ends as if by itself.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._answer(reader, writer)
        self.serving.discard(asyncio.current_task())
        writer.transport.abort()

    async def _answer(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")[1:-2]
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((headers, body))
            self.holding += 1
            self.holding_max = max(self.holding_max, self.holding)
            try:
                if self.behave is None:
                    writer.write(OK)
                else:
                    await self.behave(self, reader, writer, len(self.requests))
                await writer.drain()
            finally:
                self.holding -= 1
            if writer.is_closing():
                return


def says(*answers):
    """Behave: answer in turn, the last one from then on."""

    async def behave(_receiver, _reader, writer, number):
        writer.write(answers[min(number, len(answers)) - 1])

    return behave


class Log:
    def __init__(self):
        self.lines = []

    def info(self, event, **fields):
        self.lines.append((event, fields))

    warning = info


class Shifted:
    """The machine's clock, some time ahead; or, where it `stands`, one that is only moved by hand."""

    def __init__(self, *, stands=False):
        self.ahead_s = 0.0
        self._clock = SystemClock()
        self._stands_at = self._clock.now() if stands else None

    def now(self):
        return (self._clock.now() if self._stands_at is None else self._stands_at) + self.ahead_s

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


class Post:
    """A store in memory, a sender, and counts of what came of it."""

    def __init__(self, *, rules=INSIDE, policy=QUICK, resolve=None, keys=(KEY,), broker=None, stands=False):
        self.clock = Shifted(stands=stands)
        self.broker = broker or MemoryBroker()
        self.outcomes = []
        self.log = Log()
        self.looked_up = []

        async def looked(host, port):
            self.looked_up.append(host)
            if resolve is None:
                raise OSError(-2, "Name or service not known")
            return await resolve(host, port)

        terms = Terms(
            keys=keys,
            rules=rules,
            agent="forebay/test",
            body_of=lambda record: webhook_json(record, now=self.clock.now()),
            count=self.outcomes.append,
            policy=policy,
        )
        poster = lambda: Poster(looked, rules, now=self.clock.now)
        self.sender = Sender(self.broker, self.clock, poster, terms, self.log)

    async def __aenter__(self):
        self.sender.start()
        return self

    async def __aexit__(self, *_):
        await self.sender.close()

    async def ended(self, url, *, output=b'"done"', **fields):
        """Bring a job with a callback to its result; return its id."""
        now = self.clock.now()
        job = Job(self.broker.new_id(now), "echo", b"1", now, now, callback_url=url, **fields)
        await self.broker.enqueue([job], now=now)
        (lease,) = await self.broker.lease("echo", limit=1, lease_s=9.0, worker="w", now=now)
        await self.broker.commit([settle.complete(lease, output=output, now=now)], now=now)
        return job.id

    async def row(self, job_id):
        return await self.broker.outbox.get(job_id, now=self.clock.now())

    async def settled(self, job_id, state=None):
        """Return the delivery once it has ended, or is in `state`."""

        async def there():
            row = await self.row(job_id)
            return row if row.state.value == state or (state is None and row.ended_at is not None) else None

        return await eventually(there, f"{job_id} {state or 'ended'}")


async def eventually(condition, what):
    """Return the first true value of an async condition; fail when there was none in time."""
    try:
        async with asyncio.timeout(WAIT_MAX_S):
            while not (value := await condition()):
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not in {WAIT_MAX_S} s: {what}") from None
    return value
