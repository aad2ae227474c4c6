"""Upstream: the one replica of an upstream task: its runs are calls, made from the node's own loop."""

import asyncio
from collections.abc import Sequence
from functools import partial

from forebay.core.actions import Outcome
from forebay.core.breaker import Ending
from forebay.core.job import JobError, Lease
from forebay.core.limiter import ConcurrencyLimit
from forebay.core.replicas import Shut
from forebay.core.saturation import Change, SaturationGate
from forebay.core.shut import shut
from forebay.core.task import TaskSpec
from forebay.core.upstream import Judgement, Kind, broken
from forebay.node.caller import Caller
from forebay.node.identity import package_version
from forebay.node.lane import Lane
from forebay.node.saturation import Watch
from forebay.node.slot import Slot
from forebay.ports.clock import Clock

PART_BYTES_MAX = 64 * 1024  # a larger part is in the result alone, and does not travel before it


class Upstream:
    """A Supervisor's counterpart without a process, and the Child it gives to the lane.

    No user code runs here: the application says where, the payload is the body, and that is all.
    """

    def __init__(self, lane: Lane, slot: Slot, spec: TaskSpec, *, clock: Clock) -> None:
        assert spec.upstream is not None
        self.lane = lane
        self.slots = [slot]
        self._slot = slot
        self._spec = spec
        self._clock = clock
        self._limit = ConcurrencyLimit(spec.upstream.limit)
        agent = f"forebay/{package_version()}"
        self._caller = Caller(spec.upstream, now=clock.now, agent=agent)
        self._calls: dict[int, asyncio.Task[None]] = {}  # by tag
        self._ending: set[asyncio.Task[None]] = set()  # cancelled with the replica; nobody waits for them
        self._resumes_at = 0.0  # after an answer that said "not now"
        self._paused_at, self._paused_for = 0.0, ""  # when it said so, and its words
        self._closed_at = 0.0  # when its gate closed
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._watch: Watch | None = None
        if (gate := spec.upstream.gate) is not None:
            self._watch = Watch(
                gate, clock=clock, agent=agent, working=lambda: bool(self._calls), on_look=self._looked
            )

    # -- as the node sees it -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: there is nothing to load."""
        self._slot.state = "ready"
        self._slot.ready_at = self._clock.now()
        limit = self._allowed()
        self.lane.facts.limited(self._spec.name, limit)
        if self._watch is not None:
            self._looked(self._watch.gate, None)
        self.lane.child_ready(self._slot.number, self, self._slot.name, limit)
        self._tell_limit()

    def drain(self) -> None:
        """Nothing to do: the lane leases no more, and calls that are out end by themselves."""

    async def close(self, grace_s: float) -> None:
        """End the calls that are still out, and close the connections. Twice is harmless."""
        self._closed = True
        self._slot.state = "stopped"
        if self._timer is not None:
            self._timer.cancel()
        left = [*self._calls.values(), *self._ending]
        for call in left:
            call.cancel()
        if left:
            await asyncio.wait(left, timeout=grace_s)
        if self._watch is not None:
            await self._watch.close()
        await self._caller.close()

    # -- as the lane sees it -------------------------------------------------------------------------

    def run(
        self, run: int, task: str, items: Sequence[tuple[int, Lease]], *, singles: bool, level: int = 0
    ) -> None:
        """Begin a call for each."""
        for tag, lease in items:
            call = self._calls[tag] = asyncio.ensure_future(self._call(tag, lease))
            call.add_done_callback(partial(self._unbegun, tag))
        if self._watch is not None:
            self._watch.work()

    def cancel(self, tag: int) -> None:
        """Let go of one call."""
        call = self._calls.get(tag)
        if call is not None:
            call.cancel()

    def give_back(self) -> None:
        """Nothing waits here: what was given is out."""

    def stop(self) -> None:
        """It was retired, and is as good as new at once."""
        self._begin_anew("stopped")

    def kill(self, reason: str) -> None:
        """Let go of every call, now."""
        self._begin_anew(reason)

    def _unbegun(self, tag: int, call: "asyncio.Task[None]") -> None:
        """Report a call that was cancelled before its first step: nothing of it ran to say so."""
        if call.cancelled() and self._calls.get(tag) is call:
            self._report(tag, _outcome(tag, None, None))

    def _begin_anew(self, reason: str) -> None:
        for call in self._calls.values():
            self._ending.add(call)
            call.add_done_callback(self._ending.discard)
            call.cancel()
        self._calls.clear()
        asyncio.get_running_loop().call_soon(self._again, reason)

    def _again(self, reason: str) -> None:
        error = JobError("worker_lost", f"the call was ended: {reason}")
        self.lane.child_died(self._slot.number, error)
        if not self._closed and not self.lane.dispatcher.draining:
            self.start()

    # -- one call ------------------------------------------------------------------------------------

    async def _call(self, tag: int, lease: Lease) -> None:
        me = asyncio.current_task()
        out = self._limit.begun(now=self._clock.now())
        load, outcome = Ending.IGNORED, _outcome(tag, None, None)
        try:
            numbers = iter(range(1_000_000_000))
            called = await self._caller.call(
                lease.job.id,
                lease.job.payload,
                total_s=self._total_s(lease),
                on_parts=lambda parts: self.lane.parts(
                    [(tag, next(numbers), part if len(part) <= PART_BYTES_MAX else b"") for part in parts]
                ),
            )
            load, outcome = called.judgement.load, _outcome(tag, called.judgement, called.output)
            if called.judgement.kind is Kind.BUSY:
                self._pause(called.judgement.after_s or 0.0, called.judgement.message)
        except asyncio.CancelledError:
            if self._calls.get(tag) is not me:
                raise
        except Exception as error:  # a fault of ours must not leave the job without an end
            outcome = _outcome(tag, broken(f"{type(error).__name__}: {error}"), None)
        finally:
            self._limit.ended(out, load, now=self._clock.now())
        if self._calls.get(tag) is me:
            self._report(tag, outcome)

    def _report(self, tag: int, outcome: Outcome) -> None:
        del self._calls[tag]
        if not self._closed:
            self._tell_limit()
            self.lane.results([outcome], 0.0)

    def _total_s(self, lease: Lease) -> float:
        assert self._spec.upstream is not None
        deadline_at = lease.job.deadline_at
        limit_s = self._spec.timeout_s
        return limit_s if deadline_at is None else max(0.0, min(limit_s, deadline_at - self._clock.now()))

    def _pause(self, seconds: float, words: str) -> None:
        """Begin no call for so long: the upstream said "not now"."""
        now = self._clock.now()
        if now >= self._resumes_at:
            self._paused_at = now
        self._resumes_at, self._paused_for = max(self._resumes_at, now + seconds), words

    def _allowed(self) -> int:
        """Return how many calls may be out now: none while it said "not now" or its gate is closed."""
        gated = self._watch is not None and self._watch.gate.closed
        return 0 if gated or self._clock.now() < self._resumes_at else self._limit.limit

    def _shut(self) -> Shut | None:
        """Return why no call may begin now, and when one may again."""
        now, watch = self._clock.now(), self._watch
        if watch is not None and watch.gate.closed:
            why = f"its gate is closed: {watch.gate.value:g} (opens at {watch.gate.policy.open_at:g})"
            return Shut(self._closed_at, max(watch.next_at, self._resumes_at), why)
        if now < self._resumes_at:
            return Shut(
                self._paused_at, self._resumes_at, f'it said "not now": {self._paused_for}', sure=True
            )
        return None

    def _tell_limit(self) -> None:
        wait_s = self._resumes_at - self._clock.now()
        self.lane.limit_calls(self._slot.number, self._allowed())
        hand = self.lane.dispatcher.hand
        if (replica := hand.replicas.get(self._slot.number)) is not None:
            shut(hand, replica, self._shut(), now=self._clock.now())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s > 0 and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(max(0.001, wait_s), self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._tell_limit()
        self.lane.turn()

    def _looked(self, gate: SaturationGate, change: Change | None) -> None:
        reason = "" if change is None else change.reason
        self.lane.facts.gated(self._spec.name, gate.stand.value, gate.value, reason)
        if change is not None and gate.closed:
            self._closed_at = self._clock.now()
        if (change is not None or gate.closed) and not self._closed:
            self._tell_limit()
            self.lane.turn()


def _outcome(tag: int, judgement: Judgement | None, output: bytes | None) -> Outcome:
    """Return how the call for one item ended; without a judgement it was cancelled."""
    if judgement is None:
        return Outcome(tag, None, JobError("cancelled", "the call was cancelled"), ignored=True)
    if output is not None:
        return Outcome(tag, output)
    return Outcome(
        tag,
        None,
        JobError(judgement.code, f"the upstream failed: {judgement.message}"),
        permanent=judgement.kind is Kind.REFUSED,
        after_s=judgement.after_s,
        ignored=judgement.health is not Ending.BAD,
        uncharged=judgement.kind is Kind.BUSY,
    )
