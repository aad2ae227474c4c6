"""A front door for tests: memory broker, two tasks, a node that can be told what to say."""

import asyncio
import contextlib
import json
import re
import socket
from collections import Counter
from dataclasses import dataclass, field

import httpx
import msgspec

from forebay.blobs.keeper import Keeper
from forebay.blobs.local import LocalBlobs
from forebay.brokers.memory import MemoryBroker
from forebay.clock import SystemClock
from forebay.config import Settings
from forebay.core import settle
from forebay.core.admission import AdmissionPolicy, Gate
from forebay.core.estimator import Estimator
from forebay.core.job import JobError
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.crons.runner import CronTerms, Runner
from forebay.keys import read_ring
from forebay.observe.metrics import Exposition, Recent
from forebay.server.access import Watchman
from forebay.server.asgi import make_app
from forebay.server.front import Front
from forebay.server.serve import Server

WAIT_MAX_S = 30.0  # for what a test waits for; how long it takes is the machine's affair
NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}
CLIP = {
    "type": "object",
    "properties": {"url": {"type": "string", "minLength": 1}, "pages": {"type": "integer", "minimum": 1}},
    "required": ["url"],
    "additionalProperties": False,
}


class HandClock(SystemClock):
    """Stands still until it is moved: what a stall of the machine cannot do. Sleeps all the same."""

    def __init__(self):
        super().__init__()
        self.at = super().now()

    def now(self):
        return self.at


class Node:
    """What the node would say."""

    def __init__(self):
        self.why = None
        self.replicas = []
        self.breakers = {}
        self.levels = {}

    def workers(self):
        return self.replicas

    def breakers_inside(self):
        return self.replicas

    def breaker(self, task):
        return self.breakers.get(task)

    def level(self, task):
        return self.levels.get(task, 0)

    def unready_reason(self):
        return self.why


@dataclass
class Log:
    lines: list = field(default_factory=list)

    def info(self, event, **fields):
        self.lines.append((event, fields))

    warning = exception = error = info


def a_front(
    *,
    broker=None,
    jobs_max=100_000,
    bytes_max=1 << 30,
    tasks=None,
    clock=None,
    keys=None,
    blobs=None,
    reserve_b=0,
    board=None,
    frames=None,
    **settings,
):
    """`blobs` is a directory for them; without it there are none."""
    tasks = tasks or {
        "Clip": TaskSpec(name="Clip", kind="class", input_schema=CLIP, doc="Cuts clips."),
        "echo": TaskSpec(name="echo"),
    }
    broker = broker or MemoryBroker()
    clock = clock or SystemClock()
    node = Node()
    recent = Recent.of(tasks)
    meters = Exposition(
        tasks,
        now=clock.now,
        depths=lambda: {task: broker.depth_now(task, now=clock.now()) for task in tasks},
        recent=recent,
        bounds_of={task: (jobs_max, bytes_max) for task in tasks},
        workers=node.workers,
        quarantined=lambda: broker.quarantine.counts(),
    )
    keeper = blobs and Keeper(
        LocalBlobs(str(blobs), reserve_b=reserve_b),
        held=lambda ids: broker.held(ids, now=clock.now()),
        clock=clock,
        grace_s=3600.0,
    )
    return Front(
        blobs=keeper,
        broker=broker,
        tasks=tasks,
        estimators={task: Estimator() for task in tasks},
        arrivals=recent.arrivals,
        peaks=recent.peaks,
        gates={task: Gate(AdmissionPolicy(jobs_max=jobs_max, bytes_max=bytes_max)) for task in tasks},
        settings=msgspec.structs.replace(Settings(), **settings),
        clock=clock,
        meters=meters,
        log=Log(),
        node=node,
        board=board,
        frames=frames,
        version="test",
        watchman=Watchman(None if keys is None else read_ring(keys, None)),
    )


def crons_of(front, *entries):
    """A runner of these entries; it looks when it is told to."""
    bounds = dict.fromkeys(front.tasks, (100, 1 << 20))
    terms = CronTerms(tasks=front.tasks, bounds=bounds, meters=front.meters, log=front.log)
    return Runner(entries, front.broker, front.clock, terms)


class Caller(httpx.AsyncClient):
    """A client of the application in this process."""

    def __init__(self, front, **kwargs):
        self.front = front
        self.door = make_app(front)
        super().__init__(
            transport=httpx.ASGITransport(self.door),
            base_url="http://127.0.0.1:8080",
            timeout=WAIT_MAX_S,
            **kwargs,
        )

    async def aclose(self):
        await super().aclose()
        if self.front.blobs is not None:
            await self.front.blobs.close()

    async def __aexit__(self, *details):
        await super().__aexit__(*details)
        await self.aclose()

    async def put_blob(self, data=b"hello world", **headers):
        """Store bytes and return their id."""
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        answer = await self.put("/v1/blobs", content=data, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def submit(self, task="echo", payload=1, headers=None, **options):
        return await self.post(
            "/v1/jobs", json={"task": task, "payload": payload, **options}, headers=headers or {}
        )

    async def raw(self, body, headers=None):
        return await self.post("/v1/jobs", content=body, headers=JSON | (headers or {}))

    async def bulk(self, *lines, headers=None):
        body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
        answer = await self.post("/v1/jobs", content=body, headers=NDJSON | (headers or {}))
        return answer, [json.loads(line) for line in answer.text.splitlines()] if answer.is_success else []

    async def one(self, task="echo", payload=1, headers=None, **options):
        """Submit and return the job."""
        answer = await self.submit(task, payload, headers=headers, **options)
        assert answer.status_code == 202, answer.text
        return answer.json()

    async def depth(self):
        return (await self.get("/v1/queues/echo")).json()["open"] + (
            await self.get("/v1/queues/Clip")
        ).json()["open"]


def call(test, **kwargs):
    """Run `test(caller)` against a fresh front door."""

    async def run():
        async with asyncio.timeout(50):
            async with Caller(a_front(**kwargs)) as caller:
                return await test(caller)

    return asyncio.run(run())


async def lease(front, task="echo", limit=1):
    return await front.broker.lease(task, limit=limit, lease_s=30, worker="w", now=front.clock.now())


async def finish(front, task="echo", output=b'"done"'):
    """Run and complete one job."""
    (held,) = await lease(front, task)
    now = front.clock.now()
    assert await front.broker.commit([settle.complete(held, output=output, now=now)], now=now) == [True]
    return held.job.id


async def kill(front, task="echo", code="boom"):
    """Run one job to its dead letter."""
    (held,) = await lease(front, task)
    now = front.clock.now()
    error = JobError(code, "it <b>broke</b>\r\nbadly", "ValueError", held.attempt)
    dead = settle.fail(held, error=error, policy=SettlePolicy(), now=now, jitter=0.5, permanent=True)
    assert await front.broker.commit([dead], now=now) == [True]
    return held.job.id


async def condemn(front, task="echo"):
    """Have one job kill its worker, and its input go into quarantine; return its fingerprint."""
    (held,) = await lease(front, task)
    now = front.clock.now()
    policy = SettlePolicy(quarantine_deaths=1, deaths_max=1)
    lost = JobError("worker_lost", "SIGSEGV", "signal", held.attempt)
    death = settle.die(held, error=lost, policy=policy, now=now, jitter=0.5)
    assert await front.broker.commit([death], now=now) == [True]
    return front.broker.quarantine.held(held.job, now=now).fingerprint.hex()


async def admissions(caller):
    """Return how many submissions were decided how, by (decision, reason)."""
    found = Counter()
    for line in (await caller.get("/metrics")).text.splitlines():
        match = re.match(r'inference_admission_total\{decision="(\w+)",reason="(\w*)",.*\} (.*)', line)
        if match:
            found[match[1], match[2]] += float(match[3])
    return found


_writers = []  # of the connections of the running test


async def connected(port, **options):
    """Open a connection that ends with the server, in whatever state it is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    _writers.append(writer)
    return reader, writer


@contextlib.asynccontextmanager
async def serving(front):
    """A real server on a free port; yields the port. Connections are gone when this ends."""
    server = Server(make_app(front), host="127.0.0.1", port=0)
    port = await server.start()
    try:
        yield port, server
    finally:
        await server.stop()
        for writer in _writers:
            writer.transport.abort()
        for writer in _writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        _writers.clear()


async def exchange(port, *pieces, until=None, wait_s=WAIT_MAX_S):
    """Send raw bytes, return everything that comes back until the server closes, or `until` has come, or
    `wait_s` is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(wait_s):
                while (until is None or until not in answer) and (part := await reader.read(65536)):
                    answer += part
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, socket.error):
            await writer.wait_closed()
    return answer


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
