"""Hosts: the pipelines of an application under a server: a process each, whose frames go into the basin."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.core.admission import Reason as Why
from forebay.core.admission import Rejected
from forebay.core.buffer import Reason
from forebay.core.job import PRIORITY_NORMAL, Job
from forebay.core.requests import End as Ending
from forebay.core.requests import Ended, Request
from forebay.core.restart import RestartPolicy
from forebay.core.task import TaskSpec
from forebay.errors import (
    InvalidError,
    NotFoundError,
    QueueFullError,
    QuotaExceededError,
    StreamEndedError,
)
from forebay.node.frames import FrameError, Splitter
from forebay.node.process import ChildProcess
from forebay.node.spawn import child_environment
from forebay.pipeline.talk import ASKS_MAX, Ask, End, Push, Taken, Takes, Told, decode, encoded
from forebay.ports.clock import Clock
from forebay.ports.requests import Requests

ATTEMPTS_MAX: Final = 2
PUSHES_MAX: Final = 64  # frames on their way to one pipeline that others sent
PUSH_BYTES_MAX: Final = 64 * 1024 * 1024  # written to it and not read
PUSH_WAIT_S: Final = 10.0
END_SLACK_S: Final = 2.0  # beyond its grace, for a process to end by itself

_REASONS: Final[Mapping[Ending, Reason]] = {
    Ending.FAILED: Reason.FAILED,
    Ending.LATE: Reason.LATE,
    Ending.BARRED: Reason.BREAKER,
    Ending.LOST: Reason.LOST,
    Ending.GONE: Reason.ENDED,
    Ending.CLOSED: Reason.ENDED,
}
_ERRORS: Final = {
    error.code: error
    for error in (InvalidError, NotFoundError, QueueFullError, QuotaExceededError, StreamEndedError)
}
_REFUSED: Final[Mapping[Why, Reason]] = {Why.TOO_LATE: Reason.LATE, Why.BREAKER_OPEN: Reason.BREAKER}


class Terms:
    """What all pipelines of a server share."""

    def __init__(
        self,
        *,
        app: str,
        data: Path,
        env: Mapping[str, str],
        tasks: Mapping[str, TaskSpec],
        requests: Requests | None,
        new_id: Callable[[float], str],
        clock: Clock,
        log: Any,
        on_output: Callable[[str, str], None] | None = None,
    ) -> None:
        self.app, self.data, self.env, self.tasks = app, data, env, tasks
        self.requests, self.new_id, self.clock, self.log = requests, new_id, clock, log
        self.on_output = on_output


class Host(asyncio.Protocol):
    """One pipeline: the process it has now, and its frames that are with tasks."""

    def __init__(self, name: str, terms: Terms, requests: Requests) -> None:
        self._requests = requests
        self.name = name
        self.state = "starting"  # starting, running, backoff, ended, stopped
        self.restarts = 0
        self.open: dict[int, Request] = {}
        self.takes: list[Takes] = []
        self._pushed: dict[int, asyncio.Future[Taken]] = {}
        self._number = 0
        self._terms = terms
        self._policy = RestartPolicy()
        self._quick = 0
        self._splitter = Splitter()
        self._transport: asyncio.WriteTransport | None = None
        self._process: ChildProcess | None = None
        self._started_at = 0.0
        self._stopping = False
        self._gone = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Future[None] | None = None

    # -- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start its process."""
        self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        terms, loop = self._terms, asyncio.get_running_loop()
        self._gone.clear()
        command = [sys.executable, "-P", "-u", "-m", "forebay.pipeline.hosted", terms.app, self.name]
        command += ["--parent", str(os.getpid()), "--data", str(terms.data)]
        env = child_environment(terms.env, threads=1, slot=None, on_cpu=False)
        process, self._splitter = ChildProcess(), Splitter()
        try:
            self._transport = await process.connect(command, env, None, lambda: self)
        except OSError as error:  # no process can be had now; try again later
            terms.log.warning("pipeline_not_started", pipeline=self.name, error=str(error))
            self._again()
            return
        self._process, self._started_at = process, terms.clock.now()
        on_output = terms.on_output
        if on_output is not None:
            process.log.sink = lambda line: on_output(self.name, line)
        self.state = "running"
        process.watch(loop, self._died)

    def _died(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.forget_page()
        self._let_go()
        code = process.returncode
        self._gone.set()
        if self._stopping or code == 0:
            self.state = "stopped" if self._stopping else "ended"
            return
        last = next((line for line in reversed(process.log.lines()) if line.strip()), "")
        self._terms.log.warning("pipeline_restarted", pipeline=self.name, code=code, last=last)
        self.restarts += 1
        self._again()

    def _again(self) -> None:
        lived_s = self._terms.clock.now() - self._started_at if self._started_at else None
        self._quick = self._quick + 1 if self._policy.quick(lived_s=lived_s) else 1
        self.state = "backoff"
        if not self._stopping:
            delay_s = self._policy.delay_s(quick_deaths=self._quick)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.start)

    def _let_go(self) -> None:
        """Nobody waits for its frames any more."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.takes.clear()
        for told in self._pushed.values():
            if not told.done():
                told.set_result(Taken(0, code=StreamEndedError.code, text="the pipeline has ended"))
        left, self.open = self.open, {}
        for request in left.values():
            self._requests.withdraw(request)

    async def close(self, grace_s: float) -> None:
        """End it: its sources at once, what waits within `grace_s`."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._starting is not None:
            await self._starting
        if self._process is None:
            return
        self._say(End(grace_s))
        try:
            await asyncio.wait_for(self._gone.wait(), grace_s + END_SLACK_S)
        except TimeoutError:
            self._kill()
            await self._gone.wait()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill_group()

    # -- frames --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what its process asks."""
        try:
            asks = [decode(one) for one in self._splitter.feed(data)]
        except (FrameError, msgspec.DecodeError):
            self._kill()  # user code wrote to our descriptor
            return
        for ask in asks:
            if isinstance(ask, Ask):
                self._take(ask)
            elif isinstance(ask, Takes):
                self.takes.append(ask)
            elif isinstance(ask, Taken):
                told = self._pushed.pop(ask.number, None)
                if told is not None and not told.done():
                    told.set_result(ask)

    def bytes_max(self, stream: str) -> int | None:
        """Return how large a frame of a stream may be that is sent here, None where none is taken."""
        fits = (one for one in self.takes if one.streams is None or stream in one.streams)
        return next((one.bytes_max for one in fits), None)

    async def push(self, stream: str, header: bytes, pixels: bytes, kind: str | None) -> Taken | None:
        """Hand a frame to the process and return what it says; None where too much is on its way to it, or
        it does not answer."""
        transport = self._transport
        if transport is None or len(self._pushed) >= PUSHES_MAX:
            return None
        if transport.get_write_buffer_size() > PUSH_BYTES_MAX:
            return None
        self._number += 1
        number, told = self._number, asyncio.get_running_loop().create_future()
        self._pushed[number] = told
        try:
            transport.write(encoded(Push(number, stream, header, pixels, kind)))
            return await asyncio.wait_for(told, PUSH_WAIT_S)
        except TimeoutError:
            return None
        finally:
            self._pushed.pop(number, None)

    def _take(self, ask: Ask) -> None:
        terms, now = self._terms, self._terms.clock.now()
        spec = terms.tasks.get(ask.task)
        if spec is None or len(self.open) >= ASKS_MAX:
            self._say(Told(ask.number, reason=Reason.REFUSED.value))
            return
        if ask.deadline_at <= now:
            self._say(Told(ask.number, reason=Reason.LATE.value))
            return
        job = Job(
            terms.new_id(now), ask.task, ask.payload, now, now, PRIORITY_NORMAL, ATTEMPTS_MAX,
            deadline_at=ask.deadline_at, version=spec.version,
        )  # fmt: skip
        taken = self._requests.offer(job, lambda ended: self._ended(ask.number, ended), frame=True)
        if isinstance(taken, Rejected):
            self._say(Told(ask.number, reason=_REFUSED.get(taken.reason, Reason.REFUSED).value))
        else:
            self.open[ask.number] = taken

    def _ended(self, number: int, ended: Ended) -> None:
        self.open.pop(number, None)
        if ended.end is Ending.DONE:
            self._say(Told(number, ended.output or b"null"))
            return
        error = ended.error
        reason = _REASONS.get(ended.end, Reason.REFUSED)
        if error is None:
            self._say(Told(number, reason=reason.value))
        else:
            self._say(Told(number, None, reason.value, error.type or error.code, error.message))

    def _say(self, message: Told | End) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encoded(message))


class Hosts:
    """All pipelines of a server; none where it lets in no requests."""

    def __init__(self, names: Iterable[str], terms: Terms) -> None:
        requests = terms.requests
        self.hosts = [] if requests is None else [Host(name, terms, requests) for name in names]

    def start(self) -> None:
        """Begin to start every process; returns at once."""
        for host in self.hosts:
            host.start()

    def bytes_max(self, stream: str) -> int | None:
        """Return how large a frame of a stream may be that is sent here, None where none is taken."""
        host = self._host(stream)
        return None if host is None else host.bytes_max(stream)

    async def push(self, stream: str, header: bytes, pixels: bytes, kind: str | None) -> Mapping[str, Any]:
        """Hand a frame to the pipeline that takes its stream, and return what that says of it. Raises
        NotFoundError, StreamEndedError, InvalidError, QuotaExceededError, QueueFullError."""
        host = self._host(stream)
        if host is None:
            raise NotFoundError("no pipeline takes such a stream")
        taken = await host.push(stream, header, pixels, kind)
        if taken is None:
            raise QueueFullError(f"too much is on its way to {host.name}", retry_after_s=1.0)
        if taken.code:
            raise _ERRORS.get(taken.code, InvalidError)(taken.text, retry_after_s=taken.retry_after_s)
        verdict: Mapping[str, Any] = msgspec.json.decode(taken.verdict)
        return verdict

    def _host(self, stream: str) -> Host | None:
        return next((host for host in self.hosts if host.bytes_max(stream) is not None), None)

    async def close(self, grace_s: float) -> None:
        """End them all: sources at once, what waits within `grace_s`."""
        await asyncio.gather(*(host.close(grace_s) for host in self.hosts))
