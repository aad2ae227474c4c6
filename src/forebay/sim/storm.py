"""Storm: callers who try again until they are answered, before a service that a trigger has put behind.

What they ask for is less than the service can do. Whether it gets out of the overload once the trigger has
gone is decided by who stops: callers by a budget for retries, the service by refusing what would be late.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from forebay.core.retry_budget import RetryBudget
from forebay.core.task import TaskSpec
from forebay.sim.chance import Chance
from forebay.sim.engine import Engine
from forebay.sim.service import Service
from forebay.sim.serving import Answer, ServingWorld, Wanted

BACKOFF_S, BACKOFF_MAX_S = 0.1, 2.0  # as the client's: doubles, less up to a quarter
NAME = "M"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """One scenario: callers come at `rate_per_s`; each has `patience_s` for a try and `gives_up_s` in all.
    Those of a burst come at its moment all at once, and never give up."""

    service: Service  # its regimes are the trigger
    rate_per_s: float
    batch_max: int = 16
    patience_s: float = 1.0
    gives_up_s: float = 60.0
    until: float = 120.0
    bursts: tuple[tuple[float, int], ...] = ()  # when, and how many callers
    budget: bool = True  # callers share a RetryBudget
    refusal: bool = True  # the service is Forebay's; False: a plain queue without an end
    seed: int = 1


@dataclass(slots=True)
class Told:
    """What is known of one caller."""

    at: float
    burst: bool = False
    tries: int = 0
    good_at: float | None = None


class _Server(Protocol):
    """What callers speak to: `hear` gets whether it was good, and when to come back where that was said."""

    engine: Engine

    def ask(self, hear: Callable[[bool, float | None], None]) -> None: ...


class _Plain:
    """One replica with a queue in the order of arrival. It runs everything, also for callers that left."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._chance = Chance(storm.seed)
        self.engine = Engine(self._chance.fork(1), start=0.0)
        self._line: deque[Callable[[bool, float | None], None]] = deque()
        self._busy = False

    def ask(self, hear: Callable[[bool, float | None], None]) -> None:
        self._line.append(hear)
        self._next()

    def _next(self) -> None:
        if self._busy or not self._line:
            return
        batch = [self._line.popleft() for _ in range(min(len(self._line), self._storm.batch_max))]
        self._busy = True
        run_s = self._storm.service.run_s(len(batch), self._chance, self.engine.now)
        self.engine.after(run_s, self._done, batch)

    def _done(self, batch: list[Callable[[bool, float | None], None]]) -> None:
        self._busy = False
        for hear in batch:
            hear(True, None)
        self._next()


class _Forebay:
    """Forebay's own lane, by its own decisions."""

    def __init__(self, storm: Storm) -> None:
        spec = TaskSpec(name=NAME, kind="class", batch_max=storm.batch_max)
        self._world = ServingWorld([spec], {NAME: storm.service}, [], seed=storm.seed)
        self._patience_s = storm.patience_s
        self.engine = self._world.engine

    def ask(self, hear: Callable[[bool, float | None], None]) -> None:
        def heard(answer: Answer) -> None:
            hear(answer.good, None if answer.refused is None else answer.refused.retry_after_s)

        self._world.ask(Wanted(self.engine.now, NAME, self._patience_s), heard)


class _Caller:
    """Tries until one try is good or its time is over."""

    def __init__(
        self, told: Told, storm: Storm, server: _Server, chance: Chance, budget: RetryBudget | None
    ) -> None:
        self.told = told
        self._storm = storm
        self._server = server
        self._chance = chance
        self._budget = budget

    def send(self) -> None:
        """Make one try."""
        told, number = self.told, self.told.tries + 1
        told.tries = number
        self._server.engine.after(self._storm.patience_s, self._again, number, None)
        self._server.ask(lambda good, after_s: self._heard(number, good, after_s))

    def _heard(self, number: int, good: bool, after_s: float | None) -> None:
        if number != self.told.tries or self.told.good_at is not None:
            return  # nobody waits for this one any more
        if good:
            self.told.good_at = self._server.engine.now
            if self._budget is not None:
                self._budget.succeeded()
        else:
            self._again(number, after_s)

    def _again(self, number: int, after_s: float | None) -> None:
        now = self._server.engine.now
        told = self.told
        if number != told.tries or told.good_at is not None:
            return
        told.tries = number + 1  # what comes of the last try is for nobody
        full_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(number // 2, 10))
        wait_s = full_s * (0.75 + 0.25 * self._chance.random())
        if after_s is not None:
            wait_s = max(wait_s, after_s)
        elif self._budget is not None:
            wait_s = max(wait_s, self._budget.take(now=now))
        if told.burst or now + wait_s < told.at + self._storm.gives_up_s:
            self._server.engine.after(wait_s, self.send)
        elif self._budget is not None and after_s is None:
            self._budget.put_back()


def play(storm: Storm) -> list[Told]:
    """Play it; return what is known of each caller, in the order in which they came."""
    server: _Server = _Forebay(storm) if storm.refusal else _Plain(storm)
    chance = Chance(storm.seed).fork(2)
    budget = RetryBudget() if storm.budget else None
    callers: list[Told] = []
    at = chance.exponential(1.0 / storm.rate_per_s)
    while at < storm.until:
        told = Told(at)
        callers.append(told)
        server.engine.at(at, _Caller(told, storm, server, chance, budget).send)
        at += chance.exponential(1.0 / storm.rate_per_s)
    for at, count in storm.bursts:
        for _ in range(count):
            callers.append(told := Told(at, burst=True))
            server.engine.at(at, _Caller(told, storm, server, chance, budget).send)
    server.engine.run(until=storm.until)
    return callers


def good_at_once(callers: list[Told], storm: Storm, start: float, end: float) -> float:
    """Return the share of those who came between two instants and were answered within their patience."""
    came = [one for one in callers if start <= one.at < end]
    good = sum(one.good_at is not None and one.good_at - one.at <= storm.patience_s for one in came)
    return good / max(1, len(came))
