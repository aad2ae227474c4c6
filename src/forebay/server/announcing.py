"""POST .../announce: what to expect of a burst; GET .../headroom: wait until a queue has so much room."""

import msgspec
from fastapi import Request, Response

from forebay.core.announcing import Outlook, outlook
from forebay.core.estimator import Eta
from forebay.core.units import print_duration, size_b
from forebay.errors import InvalidError
from forebay.server.asked import asked
from forebay.server.asking import integer_of, query_of, unknown_task, wait_s
from forebay.server.budgets import budget_named, name_budget
from forebay.server.caller import caller
from forebay.server.eta_views import EtaView
from forebay.server.front import Front
from forebay.server.holding import held_s
from forebay.server.pressure import NOTHING, Pressure
from forebay.server.routing import Param, Route, json_response
from forebay.server.times import stamp

HEADROOM_WAITS_MAX = 1_000  # held at once; who comes beyond is answered at once
LOOK_MIN_S, LOOK_MAX_S = 0.02, 0.5  # between two looks at a queue that is waited for
JOBS_MAX = 1_000_000_000
_ASK_BYTES_MAX = 4096
_NAMES = frozenset({"jobs", "wait"})


class AnnounceAsk(msgspec.Struct, forbid_unknown_fields=True):
    """So many jobs are about to come, of so many bytes each ("2KB"; left out: small)."""

    jobs: int
    size: int | str | None = None


class AnnouncementView(msgspec.Struct):
    """What to expect. `rate_per_s` null: as fast as one likes where they fit, else nothing is known. `eta` is
    of the last job. `room` is null for a tenant: others' jobs are in the queue too."""

    task: str
    jobs: int
    fits: bool
    room: int | None
    rate_per_s: float | None
    takes_s: float | None
    eta: EtaView | None
    reserved: int
    message: str


class HeadroomView(msgspec.Struct):
    """Whether a queue has room for so many jobs now; where not, when to ask again."""

    task: str
    jobs: int
    has_room: bool
    retry_after_s: float | None


VIEWS = (AnnounceAsk, AnnouncementView, HeadroomView)


class Announcer:
    """Tells producers what to expect before they send."""

    def __init__(self, front: Front, pressure: Pressure) -> None:
        self._front = front
        self._pressure = pressure
        self._waits = 0

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        announce, headroom = "/v1/queues/{task}/announce", "/v1/queues/{task}/headroom"
        return (
            Route("POST", announce, self.announce, "Announce a burst: does it fit, at which rate, until when",
                  "queues", "AnnouncementView", (400, 404, 415, 422), body="AnnounceAsk"),
            Route("GET", headroom, self.headroom, "Wait until a queue has room", "queues", "HeadroomView",
                  (404, 422), (Param("jobs", "places that are wanted, 1 by default", "integer"),
                               Param("wait", "long poll: seconds or a duration, clamped to 60 s"))),
        )  # fmt: skip

    async def announce(self, request: Request) -> Response:
        """Answer what to expect; nothing is reserved."""
        task, front = self._named(request), self._front
        name_budget(front, dict(request.scope["headers"]))
        ask = await asked(request, AnnounceAsk, rule="what is announced", bytes_max=_ASK_BYTES_MAX)
        each_b = _checked(ask)
        await self._pressure.refresh((task,), now=front.clock.now())
        now = front.clock.now()
        load, policy = self._pressure.load(task, now=now), front.gates[task].policy
        snapshot = self._pressure.snapshot(task, now=now)
        room = self._room(task, each_b=each_b, now=now)
        told = outlook(
            jobs=ask.jobs,
            room=room,
            spare=policy.soft_share * policy.jobs_max - snapshot.jobs,
            drain_per_s=None if load.paused or snapshot.draining else snapshot.drain_per_s,
            limits_per_s=self._rates(task),
        )
        last = None
        if not (load.paused or snapshot.draining or held_s(front, task) is not None):
            place, urgency = load.queued + ask.jobs, front.tasks[task].priority
            eta = front.estimators[task].eta(position=place, now=now, running=load.running, priority=urgency)
            last = None if eta is None else _of_last(eta, told, now)
        seen = room if caller().own is None else None
        front.log.info("burst_announced", task=task, jobs=ask.jobs, fits=told.fits)
        message = _message(ask.jobs, told, seen, last, load.paused, snapshot.draining)
        rate = None if told.rate_per_s is None else round(told.rate_per_s, 3)
        takes = None if told.takes_s is None else round(told.takes_s, 3)
        return json_response(AnnouncementView(task, ask.jobs, told.fits, seen, rate, takes, last, 0, message))

    async def headroom(self, request: Request) -> Response:
        """Answer whether there is room, at once, or as soon as there is, or after `wait`."""
        task, front, query = self._named(request), self._front, query_of(request.scope, _NAMES)
        jobs = integer_of(query, "jobs", default=1, low=1, high=JOBS_MAX)
        self._check_possible(task, jobs)
        until = front.clock.now() + (wait_s(query["wait"]) if "wait" in query else 0.0)
        held = self._waits < HEADROOM_WAITS_MAX
        if not held:
            front.meters.bound_reached("headroom_waits")
        self._waits += held
        try:
            while True:
                await self._pressure.refresh((task,), now=front.clock.now())
                now = front.clock.now()
                has_room = self._room(task, now=now) >= jobs
                pause_s = self._pause_s(task, jobs, now=now)
                if has_room or now >= until or not held or front.lifecycle.draining:
                    after_s = None if has_room else pause_s
                    return json_response(HeadroomView(task, jobs, has_room, after_s))
                await front.clock.sleep(min(pause_s, until - now))
        finally:
            self._waits -= held

    def _check_possible(self, task: str, jobs: int) -> None:
        """Raise InvalidError for more jobs than there can ever be room for."""
        quota = self._pressure.quota()
        own_max = None if quota is None else quota.limits.jobs_max
        limit, whose = self._front.gates[task].policy.jobs_max, f"the queue of {task} can hold"
        if own_max is not None and own_max < limit:
            limit, whose = own_max, "this tenant may hold"
        if jobs > limit:
            rule = f"must be at most {limit}, what {whose}"
            raise InvalidError(f"jobs {rule}", limit=limit, errors=(("jobs", rule),))

    def _rates(self, task: str) -> list[float | None]:
        """Return the rates that hold for this producer whatever the queue does."""
        quota, budget = self._pressure.quota(), budget_named()
        bucket = self._front.gates[task].bucket
        return [
            None if budget is None else budget.rate_per_s,
            None if quota is None else quota.limits.rate_per_s,
            None if bucket is None else bucket.rate_per_s,
        ]

    def _room(self, task: str, *, now: float, each_b: int = 0) -> int:
        """Return how many jobs would be let in together now."""
        front, policy = self._front, self._front.gates[task].policy
        snapshot = self._pressure.snapshot(task, now=now)
        if snapshot.draining:
            return 0
        rooms, bytes_left = [policy.jobs_max - snapshot.jobs], policy.bytes_max - snapshot.bytes
        quota = self._pressure.quota()
        if quota is not None:
            own = front.broker.holding_now(caller().tenant, now=now) or NOTHING
            if quota.limits.jobs_max is not None:
                rooms.append(quota.limits.jobs_max - own.jobs)
            if quota.limits.bytes_max is not None:
                bytes_left = min(bytes_left, quota.limits.bytes_max - own.bytes)
        rooms.append(bytes_left // max(1, each_b))
        return max(0, min(rooms))

    def _pause_s(self, task: str, jobs: int, *, now: float) -> float:
        """Return when to look again: when so many places are expected to be free."""
        drain_per_s = self._pressure.snapshot(task, now=now).drain_per_s
        if not drain_per_s:
            return LOOK_MAX_S
        short = jobs - self._room(task, now=now)
        return round(min(LOOK_MAX_S, max(LOOK_MIN_S, short / drain_per_s)), 3)

    def _named(self, request: Request) -> str:
        task: str = request.path_params["task"]
        if task not in self._front.tasks:
            raise unknown_task(task, self._front.tasks)
        return task


def _checked(ask: AnnounceAsk) -> int:
    """Return the bytes of one job. Raises InvalidError."""
    if not 1 <= ask.jobs <= JOBS_MAX:
        rule = f"must be from 1 to {JOBS_MAX}, not {ask.jobs}"
        raise InvalidError(f"jobs {rule}", errors=(("jobs", rule),))
    try:
        return 0 if ask.size is None else size_b(ask.size)
    except ValueError as error:
        raise InvalidError(f"size: {error}", errors=(("size", str(error)),)) from None


def _of_last(eta: Eta, told: Outlook, now: float) -> EtaView:
    """Return when the last job is expected to end: not before it was sent."""
    sent_s = told.takes_s or 0.0
    p50_s, p90_s = max(eta.p50_s, sent_s), max(eta.p90_s, sent_s)
    message = f"The last is expected to end in about {print_duration(p50_s)}."
    return EtaView(round(p50_s, 3), round(p90_s, 3), stamp(now + p50_s), stamp(now + p90_s), message)


def _message(
    jobs: int, told: Outlook, room: int | None, last: EtaView | None, paused: bool, draining: bool
) -> str:
    if draining:
        return "The queue is draining: it takes nothing until it is resumed."
    free = "" if room is None else f" ({room} places are free)"
    if told.fits:
        text = f"{jobs} jobs fit at once{free}"
        text += "." if told.rate_per_s is None else f"; the rate to keep is {told.rate_per_s:.4g}/s."
    elif told.rate_per_s is None:
        why = "it is paused" if paused else "nothing was measured yet"
        text = f"{jobs} jobs do not fit at once{free}, and as {why} no rate is known: keep to Retry-After."
    else:
        text = f"{jobs} jobs do not fit at once{free}; at {told.rate_per_s:.4g}/s they do."
    said = "" if last is None else f" {last.message}"
    return f"{text}{said} Nothing is reserved."
