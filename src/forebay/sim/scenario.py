"""Scenario: a load, a model and the policies to compare; played in virtual time, policy by policy."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from forebay.core.codel import Discipline
from forebay.core.job import PRIORITY_NORMAL
from forebay.core.task import TaskSpec
from forebay.sim.arrivals import poisson, steady
from forebay.sim.chance import Chance
from forebay.sim.engine import Engine
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted

TASK: Final = "model"
REQUESTS_MAX: Final = 200_000
GOOD, LATE, REFUSED, DROPPED = "good", "late", "refused", "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Who comes: at a rate from one instant to another, or so many at once."""

    name: str
    rate_per_s: float = 0.0
    burst: int = 0
    from_s: float = 0.0
    until_s: float = 0.0
    priority: int = PRIORITY_NORMAL
    even: bool = False  # at equal distances, as of a camera


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to serve them. `plain` is a queue in the order of arrival that runs everything, whoever still
    waits for it; at `queue_max` the newest or the oldest goes. Else the decisions are Forebay's own."""

    name: str
    plain: bool = False
    queue_max: int | None = None
    drops_oldest: bool = False
    replicas: int = 1
    batch_max: int = 1
    service: Service
    discipline: Discipline = Discipline.DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is compared."""

    title: str
    for_s: float
    deadline_s: float
    arrivals: tuple[Arrivals, ...]
    policies: tuple[Policy, ...]
    seed: int = 1


class Ended(NamedTuple):
    """What became of one: whose it was, when it came and when it was answered, and how."""

    of: str
    at: float
    done_at: float
    how: str


def come(scenario: Scenario) -> list[tuple[float, Arrivals]]:
    """Return who comes when, in order: the same for every policy. Raises ValueError for too many."""
    chance, found = Chance(scenario.seed), list[tuple[float, Arrivals]]()
    for number, one in enumerate(scenario.arrivals):
        if one.rate_per_s * (one.until_s - one.from_s) + one.burst > REQUESTS_MAX:
            raise ValueError(f"{one.name}: more than {REQUESTS_MAX:,} arrivals")
        times = [one.from_s] * one.burst
        if one.rate_per_s > 0 and one.even:
            times += steady(one.rate_per_s, start=one.from_s, until=one.until_s)
        elif one.rate_per_s > 0:
            times += poisson(chance.fork(number), one.rate_per_s, start=one.from_s, until=one.until_s)
        found += [(at, one) for at in times]
    if len(found) > REQUESTS_MAX:
        raise ValueError(f"more than {REQUESTS_MAX:,} arrivals")
    return sorted(found, key=lambda pair: pair[0])


def play(scenario: Scenario, policy: Policy) -> list[Ended]:
    """Return what became of each who came, in order."""
    coming = come(scenario)
    return _plain(scenario, policy, coming) if policy.plain else _forebay(scenario, policy, coming)


def _forebay(scenario: Scenario, policy: Policy, coming: Sequence[tuple[float, Arrivals]]) -> list[Ended]:
    spec = TaskSpec(name=TASK, kind="class", batch_max=policy.batch_max, discipline=policy.discipline)
    wanted = [Wanted(at, TASK, scenario.deadline_s, priority=one.priority) for at, one in coming]
    world = ServingWorld([spec], {TASK: policy.service}, wanted, replicas=policy.replicas, seed=scenario.seed)
    ended: list[Ended] = []
    for (at, one), answer in zip(
        coming, world.play(until=scenario.for_s + scenario.deadline_s + 1.0), strict=True
    ):
        refused = answer.refused is not None or answer.end is None
        how = GOOD if answer.good else REFUSED if refused else DROPPED
        ended.append(Ended(one.name, at, max(at, answer.at), how))
    return ended


class _Line:
    """A plain queue before its replicas."""

    def __init__(self, scenario: Scenario, policy: Policy, count: int) -> None:
        self._scenario, self._policy = scenario, policy
        self._chance = Chance(scenario.seed)
        self.engine = Engine(self._chance.fork(1), start=0.0)
        self._line: deque[int] = deque()
        self._idle = policy.replicas
        self.how = [DROPPED] * count
        self.done_at = [0.0] * count
        self._at = [0.0] * count

    def come(self, number: int) -> None:
        """Take one in, or drop one."""
        now, policy = self.engine.now, self._policy
        self._at[number] = self.done_at[number] = now
        if policy.queue_max is not None and len(self._line) >= policy.queue_max:
            if not policy.drops_oldest or not self._line:
                return
            self.done_at[self._line.popleft()] = now
        self._line.append(number)
        self._next()

    def _next(self) -> None:
        while self._idle and self._line:
            batch = [self._line.popleft() for _ in range(min(len(self._line), self._policy.batch_max))]
            self._idle -= 1
            took_s = self._policy.service.run_s(len(batch), self._chance, self.engine.now)
            self.engine.after(took_s, self._done, batch)

    def _done(self, batch: list[int]) -> None:
        self._idle += 1
        now = self.engine.now
        for number in batch:
            self.done_at[number] = now
            self.how[number] = GOOD if now - self._at[number] <= self._scenario.deadline_s else LATE
        self._next()


def _plain(scenario: Scenario, policy: Policy, coming: Sequence[tuple[float, Arrivals]]) -> list[Ended]:
    line = _Line(scenario, policy, len(coming))
    for number, (at, _) in enumerate(coming):
        line.engine.at(at, line.come, number)
    line.engine.run(until=float("inf"))
    return [
        Ended(one.name, at, line.done_at[number], line.how[number]) for number, (at, one) in enumerate(coming)
    ]


class Second(NamedTuple):
    """One second: who came in it, what was answered well, and how many were inside at its end."""

    second: int
    came: int
    good: int
    inside: int


def seconds(ended: Sequence[Ended], for_s: float) -> list[Second]:
    """Return the story of one policy, second by second."""
    last = max([for_s, *(one.done_at for one in ended)])
    size = min(int(last) + 1, 100_000)
    came, good, change = [0] * size, [0] * size, [0] * (size + 1)
    for one in ended:
        first, end = min(int(one.at), size - 1), min(int(one.done_at), size - 1)
        came[first] += 1
        good[end] += one.how == GOOD
        change[first] += 1
        change[end] -= 1
    story, inside = list[Second](), 0
    for number in range(size):
        inside += change[number]
        story.append(Second(number, came[number], good[number], inside))
    return story
