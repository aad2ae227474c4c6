"""LaneRequests, Desk: requests on their way into a lane's basin, and their answers on the way out."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from forebay.core import answering, serving
from forebay.core.admission import Rejected
from forebay.core.basin import Asked
from forebay.core.degraded import FALLBACK
from forebay.core.dispatcher import Dispatcher
from forebay.core.entry import admit, expected_wait_s, look
from forebay.core.job import Job
from forebay.core.knocks import Knocks
from forebay.core.requests import End, Ended, Request
from forebay.core.tenant import Held as HeldBy
from forebay.node.facts import LaneFacts
from forebay.ports.clock import Clock
from forebay.ports.requests import Held, OnEnd

LAG_KEPT = 0.8  # of the greatest lag, from one alarm to the next
LAG_MAX_S = 1.0
NOT_IN_LINE = -1  # the sequence of a request that never waits


class LaneRequests:
    """The requests of one lane. `turn` polls its Dispatcher, `alarm_at` says when that happens by itself."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        facts: LaneFacts,
        *,
        turn: Callable[[], None],
        alarm_at: Callable[[], float | None],
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._facts = facts
        self._turn = turn
        self._alarm_at = alarm_at
        self._on_end: dict[int, OnEnd] = {}  # by sequence
        self._turn_comes = False

    def look(self, asked: Asked) -> Rejected | None:
        """Return why this request would be refused, None when it would be let in."""
        return look(self._dispatcher.hand, asked, now=self._clock.now(), jitter=self._clock.random())

    def offer(self, job: Job, on_end: OnEnd, *, frame: bool = False) -> Request | Rejected:
        """Let a request in or refuse it. `frame`: it is one of a stream."""
        now, hand = self._clock.now(), self._dispatcher.hand
        verdict = admit(hand, job, now=now, jitter=self._clock.random(), frame=frame)
        if isinstance(verdict, Request):
            self._on_end[verdict.seq] = on_end
            alarm_at = self._alarm_at()
            late = alarm_at is None or verdict.deadline_at < alarm_at
            if not self._turn_comes and (late or serving.could_start(hand, job.task, now)):
                self._turn_soon()
        if hand.basin.ended:  # they made room
            self.tell()
        return verdict

    def ring(self) -> None:
        """The alarm of the lane: poll. How late it is says how busy this process is."""
        basin, at = self._dispatcher.hand.basin, self._alarm_at()
        late_s = 0.0 if at is None else self._clock.now() - at
        basin.lag_s = max(min(late_s, LAG_MAX_S), LAG_KEPT * basin.lag_s)
        self._turn()

    def withdraw(self, request: Request) -> None:
        """Whoever waited has gone."""
        if self._on_end.pop(request.seq, None) is not None and request.end is None:
            answering.withdraw(self._dispatcher.hand, request)
            self._turn_soon()

    def tell(self) -> None:
        """Answer what has ended."""
        basin = self._dispatcher.hand.basin
        while basin.ended:
            now = self._clock.now()
            for ended in basin.take_ended():
                self._facts.answered(ended, now)
                on_end = self._on_end.pop(ended.request.seq, None)
                if on_end is not None:
                    on_end(ended)

    def note(self, ended: Ended) -> None:
        """Count a request that was answered without a replica."""
        self._facts.answered(ended, self._clock.now())

    def held(self, task: str) -> Held:
        """Return what a task holds."""
        hand = self._dispatcher.hand
        reservoir = hand.basin.reservoirs[task]
        open_now = sum(request.job.task == task for request in hand.basin.open.values())
        wait_s = expected_wait_s(hand, task, now=self._clock.now())
        return Held(len(reservoir), open_now - len(reservoir), reservoir.bytes, wait_s)

    def held_by(self, tenant: str) -> HeldBy:
        """Return the open requests of a tenant in this lane."""
        return self._dispatcher.hand.basin.held_by(tenant)

    def close(self) -> None:
        """Answer all that still waits: the grace is over."""
        answering.close(self._dispatcher.hand)
        self.tell()

    def _turn_soon(self) -> None:
        """Poll once for all that came in this step of the loop: they start together."""
        if not self._turn_comes:
            self._turn_comes = True
            asyncio.get_running_loop().call_soon(self._turn_now)

    def _turn_now(self) -> None:
        self._turn_comes = False
        self._turn()


class HasRequests(Protocol):
    """A lane, as far as requests go."""

    requests: LaneRequests


class Desk:
    """All lanes of a node behind one counter (ports.requests.Requests).

    A request that the breaker of its task lets through nowhere, now or when its turn comes, goes to what
    stands in for the task: `instead` tells the JSON text of a canned answer, a lane, or None.
    """

    def __init__(
        self, lanes: Mapping[str, HasRequests], instead: Callable[[str], bytes | HasRequests | None]
    ) -> None:
        self._lanes = lanes  # by task
        self._instead = instead
        self.knocks = Knocks()  # of all lanes
        self._away: dict[str, tuple[LaneRequests, Request]] = {}  # by id, with what stands in

    def look(self, asked: Asked) -> Rejected | None:
        """Return why this request would be refused, None when it would be let in."""
        instead = self._instead(asked.task)
        if isinstance(instead, bytes):
            return None
        return (instead or self._lanes[asked.task]).requests.look(asked)

    def offer(self, job: Job, on_end: OnEnd, *, frame: bool = False) -> Request | Rejected:
        """Let a request in or refuse it. `frame`: it is one of a stream."""
        return self._stand_in(job, on_end) or self._lanes[job.task].requests.offer(
            job, lambda ended: self._ended(ended, on_end), frame=frame
        )

    def withdraw(self, request: Request) -> None:
        """Whoever waited has gone."""
        lane, taken = self._away.pop(request.job.id, (self._lanes[request.job.task].requests, request))
        lane.withdraw(taken)

    def held(self, task: str) -> Held:
        """Return what a task holds."""
        return self._lanes[task].requests.held(task)

    def held_by(self, tenant: str) -> HeldBy:
        """Return the open requests of a tenant, over all lanes."""
        lanes = {id(lane): lane.requests for lane in self._lanes.values()}
        held = [lane.held_by(tenant) for lane in lanes.values()]
        return HeldBy(sum(one.jobs for one in held), sum(one.bytes for one in held))

    def _ended(self, ended: Ended, on_end: OnEnd) -> None:
        """Tell how a request ended, unless what stands in can still answer it."""
        barred = ended.end is End.BARRED
        if not barred or not isinstance(self._stand_in(ended.request.job, on_end), Request):
            on_end(ended)

    def _stand_in(self, job: Job, on_end: OnEnd) -> Request | Rejected | None:
        """Have what stands in answer, where anything has to."""
        instead = self._instead(job.task)
        if isinstance(instead, bytes):
            request = Request(job, NOT_IN_LINE)
            request.level, request.end = FALLBACK, End.DONE
            ended = Ended(request, End.DONE, instead)
            self._lanes[job.task].requests.note(ended)
            asyncio.get_running_loop().call_soon(on_end, ended)
            return request
        if instead is None:
            return None
        taken = instead.requests.offer(job, lambda ended: self._back(ended, on_end))
        if isinstance(taken, Request):
            self._away[job.id] = (instead.requests, taken)
        return taken

    def _back(self, ended: Ended, on_end: OnEnd) -> None:
        self._away.pop(ended.request.job.id, None)
        on_end(ended)
