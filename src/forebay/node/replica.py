"""Replica: the parent's side of one child. Starts it, talks to it, sees it die, and names the death.

All methods and callbacks run on the event loop. Nothing here blocks on the child: writes go to a
bounded buffer, deaths are seen through a process descriptor.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from forebay.core.blobs import BlobTerms
from forebay.node.death import Death, OomCounter, name_death
from forebay.node.frames import (
    MARK_COMPANY,
    MARK_NOTHING,
    PAGE_ARRIVED,
    PAGE_MARK,
    PAGE_SENT,
    Breakers,
    Cancel,
    Checkpoints,
    GiveBack,
    LoadFailed,
    Parts,
    Pass,
    Ping,
    Pong,
    Progress,
    Ready,
    Results,
    Returned,
    Run,
    RunItem,
    Start,
    Stop,
    ToChild,
    ToldBreaker,
    encode_frame,
)
from forebay.node.link import Link, left_behind
from forebay.node.log_tail import LogTail
from forebay.node.owner import ReplicaOwner
from forebay.node.process import ChildProcess
from forebay.node.spawn import child_command, child_environment
from forebay.ports.clock import Clock

PING_EVERY_S: Final = 0.5
UNRESPONSIVE_S: Final = 1.0  # without an answer a child is shown as unresponsive; nothing is killed for it
WRITE_BUFFER_MAX: Final = 64 * 1024 * 1024  # bytes on their way to one child; above it `run` refuses
LAST_WORDS_S: Final = 0.2  # after a death, for what is still in the socket


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What one child is to serve, and where."""

    app: str  # FILE_OR_MODULE[:app]
    tasks: tuple[str, ...] = ()  # one class task, or functions; empty: all plain functions
    device: str = "cpu"  # "cpu" or "cuda"
    slot: int | None = None  # which GPU of those visible here
    threads: int = 1  # cap for maths libraries
    result_bytes_max: int = 256 * 1024
    blobs: BlobTerms | None = None
    load_timeout_s: float = 600.0
    env: Mapping[str, str]  # what the child inherits; caps and devices are added
    cwd: str | None = None


class Replica:
    """One child process. Make it with `await Replica.start(...)`."""

    def __init__(
        self, spec: ReplicaSpec, owner: ReplicaOwner["Replica"], clock: Clock, oom: OomCounter
    ) -> None:
        self.spec = spec
        self.pid = 0
        self.ready: Ready | None = None
        self.death: Death | None = None
        self.last_heard_at = self.started_at = clock.now()
        self._owner = owner
        self._clock = clock
        self._oom = oom
        self._killed_for = ""
        self._stopping = False
        self._load_failure: tuple[str, str] | None = None
        self._asked_at: float | None = None  # an unanswered ping
        self._pings = 0
        self._results_heard = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._gone = asyncio.Event()
        self._process = ChildProcess()
        self._link_lost = False

    @classmethod
    async def start(
        cls, spec: ReplicaSpec, owner: ReplicaOwner["Replica"], *, clock: Clock, oom: OomCounter | None = None
    ) -> "Replica":
        """Return a started child; `on_ready` tells when it is loaded, `on_death` when it could not.

        Blocks the loop for the few milliseconds of a spawn: the kernel ties a child's life to the thread
        that starts it. Raises OSError when no process can be started.
        """
        replica = cls(spec, owner, clock, oom or OomCounter())
        await replica._start(asyncio.get_running_loop())
        return replica

    # What the owner asks for.

    def run(self, run: int, task: str, items: Sequence[RunItem], *, singles: bool, level: int = 0) -> bool:
        """Send items to run; False when too much is on its way already and nothing was sent.

        Raises FrameError when the items together are longer than a frame may be.
        """
        if self._transport.get_write_buffer_size() > WRITE_BUFFER_MAX:
            return False
        self._send(Run(run, task, list(items), singles, level))
        return True

    def cancel(self, tag: int) -> None:
        """Have the handler's Context say cancelled; an item that has not started comes back."""
        self._send(Cancel(tag))

    def give_back(self) -> None:
        """Ask for everything that has not started; `on_returned` answers, at least once, maybe empty."""
        self._send(GiveBack())

    def tell(self, told: ToldBreaker) -> None:
        """Tell how a shared breaker stands; left out when too much is on its way: it finds out by itself."""
        if self.death is None and self._transport.get_write_buffer_size() <= WRITE_BUFFER_MAX:
            self._send(told)

    async def stop(self, grace_s: float) -> Death:
        """Let it finish what runs, end it, kill it after `grace_s`; returns how it ended."""
        if self.death is None:
            self._stopping = True
            self._send(Stop())
            try:
                await asyncio.wait_for(self._gone.wait(), grace_s)
            except TimeoutError:
                self.kill("the grace to stop ended")
        return await self.wait()

    def kill(self, reason: str) -> None:
        """Kill the child and its process group now; `on_death` follows within milliseconds."""
        if self.death is None:
            self._killed_for = self._killed_for or reason
            self._process.kill_group()

    async def wait(self) -> Death:
        """Return how it ended, when it has."""
        await self._gone.wait()
        assert self.death is not None
        return self.death

    @property
    def unresponsive(self) -> bool:
        """Whether its reader has not answered for a second: user code holds the GIL, or it is stopped."""
        return self._asked_at is not None and self._clock.now() - self._asked_at > UNRESPONSIVE_S

    @property
    def current_tag(self) -> int | None:
        """The item that runs alone in it right now, read from memory shared with it; None in a batch."""
        if self.death is not None:
            return self.death.tag
        mark = self._process.word(PAGE_MARK)
        return mark - 1 if 0 < mark < MARK_COMPANY else None

    @property
    def log(self) -> LogTail:
        """What it printed last."""
        return self._process.log

    def memory_b(self) -> int:
        """Return its resident bytes, 0 when it is gone. Reads /proc; call it now and then."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    # Life.

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        spec, self._loop = self.spec, loop
        env = child_environment(spec.env, threads=spec.threads, slot=spec.slot, on_cpu=spec.device == "cpu")
        command = child_command("run", spec.app, {"parent": os.getpid()})
        self._transport = await self._process.connect(
            command,
            env,
            spec.cwd,
            lambda: Link(on_message=self._hear, on_garbage=self._garbage, on_lost=self._lost_link),
        )
        self.pid = self._process.pid
        # Only now, and without another await: the owner hears nothing before it has the replica.
        self._process.watch(loop, self._died)
        self._send(Start(spec.app, spec.tasks, spec.device, spec.slot, spec.result_bytes_max, spec.blobs))
        late = f"load_timeout: not ready after {spec.load_timeout_s:g} s"
        self._timers = [loop.call_later(spec.load_timeout_s, self._kill_unready, late)]
        self._ping()

    def _kill_unready(self, reason: str) -> None:
        if self.ready is None:
            self.kill(reason)

    def _ping(self) -> None:
        if self.death is not None:
            return
        if self._asked_at is None:
            self._pings += 1
            self._asked_at = self._clock.now()
            self._send(Ping(self._pings))
        del self._timers[1:]
        self._timers.append(self._loop.call_later(PING_EVERY_S, self._ping))

    def _send(self, message: ToChild) -> None:
        if self.death is None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    # What comes from the child.

    def _garbage(self) -> None:
        self.kill("it sent what is no message: user code wrote to our descriptor")

    def _hear(self, message: object) -> None:
        if self.death is not None:
            return
        self.last_heard_at = self._clock.now()
        match message:
            case Results(items=items, busy_s=busy_s):
                self._results_heard += len(items)
                self._owner.on_results(self, items, busy_s)
            case Pong():
                self._asked_at = None
            case Progress(items=reports):
                self._owner.on_progress(self, reports)
            case Checkpoints() | Parts() | Breakers():
                self._owner.on_news(self, message)
            case Pass(run=run, size=size):
                self._owner.on_pass(self, run, size)
            case Returned(tags=tags):
                self._owner.on_returned(self, tags)
            case Ready():
                self.ready = message
                self._owner.on_ready(self, message)
            case LoadFailed(code=code, message=text, where=where):
                self._load_failure = (code, f"{text} ({where})" if where else text)
            case _:
                self._garbage()

    def _died(self) -> None:
        # What it wrote is in our socket buffer; the link ends when that is read. The timer is for a link
        # that a process outside the group still holds open.
        for timer in self._timers:
            timer.cancel()
        self._timers = [self._loop.call_later(LAST_WORDS_S, self._bury)]
        if self._link_lost:
            self._bury()

    def _lost_link(self) -> None:
        self._link_lost = True
        if self._process.returncode is not None:
            self._bury()
        elif self.death is None:
            reason = "it closed the descriptor of its connection"
            self._timers.append(self._loop.call_later(LAST_WORDS_S, self.kill, reason))

    def _bury(self) -> None:
        returncode = self._process.returncode
        if self.death is not None or returncode is None:
            return
        heard = max(0, self._results_heard - self._process.word(PAGE_SENT))
        if left := left_behind(self._process.kept(), heard):
            self._owner.on_results(self, left, 0.0)
        code, message, name = name_death(
            returncode,
            killed_for=self._killed_for,
            stopping=self._stopping,
            oom_kills=self._oom.new_kills(),
            load_failure=self._load_failure,
        )
        self.death = Death(
            code=code,
            message=message,
            exit_code=returncode if returncode >= 0 else None,
            signal_name=name,
            killed_for=self._killed_for,
            tag=self.current_tag,
            idle=self._process.word(PAGE_MARK) == MARK_NOTHING,
            arrived=self._process.word(PAGE_ARRIVED),
            was_ready=self.ready is not None,
            log_tail=self.log.lines(),
        )
        for timer in self._timers:
            timer.cancel()
        self._transport.abort()
        self._process.forget_page()
        self._gone.set()
        self._owner.on_death(self, self.death)
