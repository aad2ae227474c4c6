"""Serving: requests that come whatever happens, one lane's basin and its replicas, in virtual time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forebay.core.actions import CancelItem, GiveBack, LeaseJobs, Outcome, RunBatch
from forebay.core.admission import Rejected
from forebay.core.dispatcher import Dispatcher
from forebay.core.entry import admit
from forebay.core.job import PRIORITY_NORMAL, Job, Lease
from forebay.core.replicas import Shut
from forebay.core.requests import End, Request, RequestPolicy
from forebay.core.serving import could_start
from forebay.core.shut import shut
from forebay.core.task import TaskSpec
from forebay.core.variants import Moved
from forebay.sim.chance import Chance
from forebay.sim.engine import Engine
from forebay.sim.invariants import BrokenError
from forebay.sim.service import Service

POLLS_MAX = 1_000  # of one turn


class Wanted(NamedTuple):
    """One request, or one frame: when it comes, what it is, and how many times the usual its item costs."""

    at: float
    task: str
    deadline_s: float
    tenant: str = ""
    priority: int = PRIORITY_NORMAL
    cost: float = 1.0
    frame: bool = False  # of a stream: others follow it


@dataclass(slots=True)
class Answer:
    """What became of one. `end` None: it was refused at the door."""

    wanted: Wanted
    at: float = 0.0
    end: End | None = None
    refused: Rejected | None = None
    level: int = 0  # of the variant that made its output

    @property
    def good(self) -> bool:
        """Whether it was answered with its output in time."""
        return self.end is End.DONE and self.at - self.wanted.at <= self.wanted.deadline_s


class _Replica:
    """One child: runs one after another, calls beside each other; a run takes fixed + each * the cost of its
    items."""

    def __init__(self, number: int, world: "ServingWorld") -> None:
        self.number = number
        self._world = world
        self._runs: deque[RunBatch] = deque()
        self._busy = False

    def run(self, action: RunBatch) -> None:
        """Take a run; of calls that run beside each other each begins now."""
        world = self._world
        if world.dispatcher.hand.tasks[action.task].spec.concurrency > 1:
            for tag, lease in action.items:
                took_s = world.service_of(action).run_s(1, world.chance, world.engine.now) * world.cost_of(
                    lease
                )
                world.engine.after(took_s, world.hear, [Outcome(tag, b"1")], took_s)
            return
        self._runs.append(action)
        if not self._busy:
            self._next()

    def give_back(self) -> list[int]:
        """Give back what has not started."""
        tags = [tag for run in self._runs for tag, _ in run.items]
        self._runs.clear()
        return tags

    def cancel(self, tag: int) -> bool:
        """Take an item out that has not started; False when it runs."""
        for run in self._runs:
            for sent in run.items:
                if sent[0] == tag:
                    run.items.remove(sent)
                    return True
        return False

    def _next(self) -> None:
        while self._runs and not self._runs[0].items:
            self._runs.popleft()
        self._busy = bool(self._runs)
        if not self._busy:
            return
        run, world = self._runs.popleft(), self._world
        service, now = world.service_of(run), world.engine.now
        one_s = service.run_s(1, world.chance, now)
        each_s = service.each_s * one_s / max(1e-9, service.fixed_s + service.each_s)
        costs = [world.cost_of(lease) for _, lease in run.items]
        fixed_s = one_s - each_s
        took_s = fixed_s + each_s * sum(costs)
        if run.singles:
            took_s = sum(fixed_s + each_s * cost for cost in costs)
        world.engine.after(took_s, self._done, run, took_s)

    def _done(self, run: RunBatch, took_s: float) -> None:
        self._busy = False
        outcomes = [Outcome(tag, b"1") for tag, _ in run.items]
        self._next()
        self._world.hear(outcomes, took_s)


class ServingWorld:
    """Plays requests against one lane. `jobs` of each task wait from the start, behind the requests; `more`
    come later: (when, task, how many). `levels` are the services of the variants of a task, best first, and
    `queue_max` is what its queue of jobs is full at. What is said between
    the lane and a child takes `way_s`. `limits` are what a node says of an upstream: (when, calls at once,
    why it takes none).
    """

    def __init__(
        self,
        specs: Sequence[TaskSpec],
        services: Mapping[str, Service],
        wanted: Sequence[Wanted],
        *,
        replicas: int = 1,
        seed: int = 1,
        jobs: Mapping[str, int] | None = None,
        policy: RequestPolicy | None = None,
        levels: Mapping[str, Sequence[Service]] | None = None,
        more: Sequence[tuple[float, str, int]] = (),
        queue_max: int | None = None,
        way_s: float = 0.0,
        limits: Sequence[tuple[float, int, Shut | None]] = (),
    ) -> None:
        self.way_s = way_s
        self.services = services
        self._levels = levels or {}
        self._queue_max = queue_max
        self.chance = Chance(seed)
        self.engine = Engine(Chance(seed).fork(1), start=0.0)
        policies = {spec.name: policy or RequestPolicy() for spec in specs}
        self.dispatcher = Dispatcher(specs, requests=policies)
        self.answers = [Answer(one) for one in wanted]
        self.jobs_left = dict(jobs or {})
        self.jobs_done: list[float] = []  # when
        self.runs: list[tuple[float, str, int, bool]] = []  # when, task, items, of requests
        self.run_levels: list[int] = []  # of the same runs
        self.moves: list[tuple[str, Moved]] = []
        self._replicas = {number: _Replica(number, self) for number in range(1, replicas + 1)}
        self._by_id: dict[str, Answer] = {}
        self._hear: dict[int, Callable[[Answer], None]] = {}
        self._alarm = 0
        self._ids = 0
        for number in self._replicas:
            self.dispatcher.replica_ready(number)
        for answer in self.answers:
            self.engine.at(answer.wanted.at, self._come, answer)
        for at, task, count in more:
            self.engine.at(at, self._jobs_come, task, count)
        for at, calls, why in limits:
            self.engine.at(at, self._limit, calls, why)
        self._turn()

    def service_of(self, run: RunBatch) -> Service:
        """Return the service of the variant that runs it."""
        return self._levels[run.task][run.level - 1] if run.level else self.services[run.task]

    def play(self, *, until: float) -> list[Answer]:
        """Play everything before `until`; return what became of each request, in order."""
        self.engine.run(until=until)
        return self.answers

    def ask(self, wanted: Wanted, hear: Callable[[Answer], None]) -> None:
        """Bring a request now; `hear` is called with what became of it."""
        answer = Answer(wanted)
        self._hear[id(answer)] = hear
        self._come(answer)

    def cost_of(self, lease: Lease) -> float:
        """Return how many times the usual an item costs."""
        answer = self._by_id.get(lease.job.id)
        return 1.0 if answer is None else answer.wanted.cost

    def hear(self, outcomes: list[Outcome], took_s: float) -> None:
        """A child says that it finished a run."""
        if self.way_s:
            self.engine.after(self.way_s, self.results, outcomes, took_s)
        else:
            self.results(outcomes, took_s)

    def results(self, outcomes: list[Outcome], took_s: float) -> None:
        """A child finished a run."""
        now, jitter = self.engine.now, self.chance.random()
        self.dispatcher.results(outcomes, now=now, jitter=jitter, busy_s=took_s)
        self._turn()

    def _come(self, answer: Answer) -> None:
        wanted, now, hand = answer.wanted, self.engine.now, self.dispatcher.hand
        self._ids += 1
        job = Job(
            f"r{self._ids}", wanted.task, b"1", now, now, wanted.priority, 2, None,
            now + wanted.deadline_s, wanted.tenant,
        )  # fmt: skip
        verdict = admit(hand, job, now=now, jitter=self.chance.random(), frame=wanted.frame)
        self._tell()
        if isinstance(verdict, Request):
            self._by_id[job.id] = answer
            wake_at = self.dispatcher.wake_at()
            if could_start(hand, wanted.task, now) or wake_at is None or wake_at > verdict.deadline_at:
                self._turn()
        else:
            answer.at, answer.refused = now, verdict
            self._told(answer)

    def _told(self, answer: Answer) -> None:
        hear = self._hear.pop(id(answer), None)
        if hear is not None:
            hear(answer)

    def _tell(self) -> None:
        for ended in self.dispatcher.hand.basin.take_ended():
            answer = self._by_id.pop(ended.request.job.id)
            answer.at, answer.end, answer.level = self.engine.now, ended.end, ended.request.level
            self._told(answer)

    def _turn(self) -> None:
        now = self.engine.now
        if self._queue_max is not None:
            for task, waiting in self.jobs_left.items():
                self.dispatcher.filled(task, waiting / self._queue_max)
        for _ in range(POLLS_MAX):
            actions = self.dispatcher.poll(now=now)
            if not actions:
                break
            for action in actions:
                self._perform(action)
        else:
            raise BrokenError("B1", "the dispatcher never comes to rest")
        self._tell()
        moved = self.dispatcher.hand.moved
        while moved:
            self.moves.append(moved.popleft())
        self._alarm += 1
        wake_at = self.dispatcher.wake_at()
        if wake_at is not None:
            if wake_at <= now:
                raise BrokenError("B1", "the dispatcher spins")
            self.engine.at(wake_at, self._ring, self._alarm)

    def _ring(self, alarm: int) -> None:
        if alarm == self._alarm:
            self._turn()

    def _perform(self, action: object) -> None:
        now = self.engine.now
        match action:
            case RunBatch():
                of_requests = action.items[0][1].request
                jobs = sum(not lease.request for _, lease in action.items)
                self.runs.append((now, action.task, len(action.items), of_requests))
                self.run_levels.append(action.level)
                self.jobs_done += [now] * jobs
                if self.way_s:
                    self.engine.after(self.way_s, self._replicas[action.replica].run, action)
                else:
                    self._replicas[action.replica].run(action)
            case LeaseJobs(task, limit):
                self.dispatcher.leased(task, self._leases(task, limit), asked=limit, now=now)
            case CancelItem(replica, tag):
                if self._replicas[replica].cancel(tag):
                    self.dispatcher.returned([tag], now=now)
            case GiveBack(replica):
                self.dispatcher.returned(self._replicas[replica].give_back(), now=now)
            case _:
                pass  # commits and renewals of jobs: there is no store here

    def _jobs_come(self, task: str, count: int) -> None:
        self.jobs_left[task] = self.jobs_left.get(task, 0) + count
        self.dispatcher.knock(task)
        self._turn()

    def _limit(self, calls: int, why: Shut | None) -> None:
        for replica in self.dispatcher.hand.replicas.values():
            replica.limit_calls(calls)
            shut(self.dispatcher.hand, replica, why, now=self.engine.now)
        self._turn()

    def _leases(self, task: str, limit: int) -> list[Lease]:
        count = min(limit, self.jobs_left.get(task, 0))
        self.jobs_left[task] = self.jobs_left.get(task, 0) - count
        now, leases = self.engine.now, list[Lease]()
        for _ in range(count):
            self._ids += 1
            job = Job(f"j{self._ids}", task, b"1", now, now)
            leases.append(Lease(job, 1, 1, now + 30.0, "sim", now, now))
        return leases
