"""Several nodes on one queue in virtual time: what jobs of any durations cost in leases and hand-backs."""

import heapq
from collections import Counter, deque

from forebay.core.actions import (
    CancelItem,
    Commit,
    GiveBack,
    KillReplica,
    LeaseJobs,
    Outcome,
    Renew,
    RunBatch,
    StopReplica,
)
from forebay.core.admission import Rejected
from forebay.core.dispatcher import Dispatcher
from forebay.core.entry import admit
from forebay.core.guard import guards_of
from forebay.core.job import Hold, Job, JobError, Lease
from forebay.core.lifecycle import Event, State
from forebay.sim.chance import Chance
from forebay.sim.engine import Engine

STORE_S = 0.001  # there and back
FLUSH_S = 0.005  # a child sends what is done at least so often
WAY_S = 0.0002  # from a node to its child
BAD = JobError("failed", "bad", "ValueError")


class Queue:
    """The store: what waits, the first that came first, and what became of each job."""

    def __init__(self, lasts):
        self.lasts = lasts  # by number: the task, and the seconds its handler takes
        self.waiting = {}
        for number, (task, _) in enumerate(lasts):
            self.waiting.setdefault(task, []).append(number)
        self.releases = Counter()
        self.suspects = set()
        self.deaths = Counter()
        self.fences = Counter()
        self.attempts = Counter()
        self.asked = {}  # of requests, by number: the same
        self.out = {}  # number -> fence, of what is leased
        self.ended = {}  # number -> (event, when)
        self.leases = 0

    def ask(self, task, took_s):
        """Return the number of a new request."""
        number = len(self.lasts) + len(self.asked)
        self.asked[number] = (task, took_s)
        return number

    def last_s(self, job_id):
        number = int(job_id)
        return (self.asked[number] if number in self.asked else self.lasts[number])[1]

    def lease(self, task, limit, now):
        line, found = self.waiting.get(task, []), []
        while line and len(found) < limit:
            number = heapq.heappop(line)
            self.fences[number] += 1
            self.attempts[number] += 1
            self.leases += 1
            self.out[number] = self.fences[number]
            job = Job(str(number), task, b"{}", 0.0, 0.0)
            found.append(
                Lease(
                    job,
                    self.fences[number],
                    self.attempts[number],
                    now + 30.0,
                    "w",
                    now,
                    releases=self.releases[number],
                    suspect=number in self.suspects,
                    deaths=self.deaths[number],
                )
            )
        return found

    def commit(self, transitions, now):
        """Store these; return the tasks that have something to do now."""
        rung = set()
        for step in transitions:
            number = int(step.job_id)
            assert self.out.pop(number, None) == step.fence, "it was settled twice"
            self.releases[number] = step.releases
            self.attempts[number] = step.attempt
            self.deaths[number] = step.deaths
            (self.suspects.add if step.suspect else self.suspects.discard)(number)
            if step.state in (State.SUCCEEDED, State.DEAD):
                assert number not in self.ended
                self.ended[number] = (step.event, now)
            else:
                task = self.lasts[number][0]
                heapq.heappush(self.waiting[task], number)
                rung.add(task)
        return rung


class Child:
    """One process: takes runs in order, does one item after the other, sends what is done every FLUSH_S."""

    def __init__(self, number, node):
        self.number, self.node, self.shop = number, node, node.shop
        self.runs = deque()  # of (singles, deque of (tag, lease))
        self.busy = False
        self.done, self.busy_s, self.began_at, self.flushed_at = [], 0.0, 0.0, 0.0
        self.alive = True

    def run(self, action):
        self.runs.append((action.singles, deque(action.items)))
        self._next()

    def give_back(self):
        tags = [tag for _, items in self.runs for tag, _ in items]
        for _, items in self.runs:
            items.clear()
        self.shop.after(WAY_S, self._say, lambda: self.node.d.returned(tags, now=self.shop.now))

    def die(self):
        self.alive = False
        self.shop.after(0.005, self.node.died, self.number)

    def _next(self):
        while self.runs and not self.runs[0][1]:
            self.runs.popleft()
            self._flush()
        if self.busy or not self.runs:
            return
        singles, items = self.runs[0]
        taken = [items.popleft()] if singles else [items.popleft() for _ in range(len(items))]
        self.busy = True
        took_s = max(self.shop.queue.last_s(lease.job.id) for _, lease in taken)
        self.shop.after(took_s, self._ended, taken, took_s)

    def _ended(self, taken, took_s):
        if not self.alive:
            return
        self.busy = False
        self.busy_s += took_s
        self.done += [Outcome(tag, b"1") for tag, _ in taken]
        if self.shop.now - self.flushed_at > FLUSH_S:
            self._flush()
        self._next()

    def _flush(self):
        if self.done:
            done, self.done, busy_s, self.busy_s = self.done, [], self.busy_s, 0.0
            self.flushed_at = self.shop.now
            self.shop.after(WAY_S, self._say, lambda: self.node.results(done, busy_s))

    def _say(self, what):
        if self.alive:
            what()
            self.node.turn()


class Node:
    """One Dispatcher, its children, and the way to the store."""

    def __init__(self, shop, specs, replicas, breakers):
        self.shop = shop
        self.d = Dispatcher(specs, guards=guards_of(specs, (), breakers))
        self.children = {}
        self.alarm = 0
        self.numbers = 0
        for _ in range(replicas):
            self.ready()

    def ready(self):
        self.numbers += 1
        self.children[self.numbers] = Child(self.numbers, self)
        self.d.replica_ready(self.numbers)

    def died(self, number):
        if self.children.pop(number, None) is not None:
            error = JobError("crashed", "signal 11")
            self.d.replica_died(number, error=error, now=self.shop.now, jitter=0.5)
            self.ready()
            self.turn()

    def results(self, outcomes, busy_s):
        self.d.results(outcomes, now=self.shop.now, jitter=0.5, busy_s=busy_s)

    def knock(self, task):
        self.d.knock(task)
        self.turn()

    def ask(self, task, took_s, deadline_s):
        """A request comes here."""
        number, now = self.shop.queue.ask(task, took_s), self.shop.now
        job = Job(str(number), task, b"{}", now, now, deadline_at=now + deadline_s)
        if isinstance(admit(self.d.hand, job, now=now, jitter=0.5), Rejected):
            self.shop.answers["refused"] += 1
        self.turn()

    def turn(self):
        for _ in range(1_000):
            actions = self.d.poll(now=self.shop.now)
            if not actions:
                break
            for action in actions:
                self._perform(action)
        else:
            raise AssertionError("it never comes to rest")
        self.shop.answers.update(ended.end.value for ended in self.d.hand.basin.take_ended())
        self.alarm += 1
        wake_at = self.d.wake_at()
        if wake_at is not None:
            assert wake_at > self.shop.now
            self.shop.engine.at(wake_at, self._ring, self.alarm)

    def _ring(self, alarm):
        if alarm == self.alarm:
            self.turn()

    def _perform(self, action):
        shop, now = self.shop, self.shop.now
        match action:
            case LeaseJobs(task, limit):
                shop.after(STORE_S / 2, self._lease, task, limit)
            case Commit(transitions):
                shop.after(STORE_S, shop.commit, transitions)
            case RunBatch(replica=replica):
                child = self.children[replica]
                shop.after(WAY_S, lambda: child.alive and child.run(action))
            case GiveBack(replica):
                shop.backs += 1
                child = self.children[replica]
                shop.after(WAY_S, lambda: child.alive and child.give_back())
            case Renew(tags=tags):
                self.d.renewed(tags, [Hold.HELD] * len(tags), now=now)
            case KillReplica(replica) | StopReplica(replica):
                self.children[replica].die()
            case CancelItem():
                pass

    def _lease(self, task, limit):
        leases = self.shop.queue.lease(task, limit, self.shop.now)
        self.shop.after(STORE_S / 2, self._leased, task, leases, limit)

    def _leased(self, task, leases, limit):
        self.d.leased(task, leases, asked=limit, now=self.shop.now)
        self.turn()


class Shop:
    """`lasts`: of each job its task and how long it takes. `play` returns when the last one ended."""

    def __init__(self, specs, lasts, *, nodes=2, replicas=1, breakers=None):
        self.engine = Engine(Chance(1))
        self.began_at = self.engine.now
        self.queue = Queue(lasts)
        self.backs = 0
        self.answers = Counter()  # of requests, by how they ended
        self.nodes = [Node(self, specs, replicas, breakers or {}) for _ in range(nodes)]

    @property
    def now(self):
        return self.engine.now

    def after(self, wait_s, what, *args):
        self.engine.after(wait_s, what, *args)

    def commit(self, transitions):
        for task in self.queue.commit(transitions, self.now):
            for node in self.nodes:
                self.after(WAY_S, node.knock, task)

    def play(self, until=600.0):
        for node in self.nodes:
            node.turn()
        count = len(self.queue.lasts)
        self.engine.run(until=self.began_at + until, stop=lambda: len(self.queue.ended) == count)
        return self.now - self.began_at

    @property
    def dead(self):
        return sum(event is not Event.COMPLETED for event, _ in self.queue.ended.values())

    @property
    def ideal_s(self):
        """All of the work, shared out over all replicas."""
        replicas = sum(len(node.children) for node in self.nodes)
        return sum(took_s for _, took_s in self.queue.lasts) / replicas

    def told(self):
        releases = self.queue.releases.values()
        return {
            "jobs": len(self.queue.lasts),
            "ended": len(self.queue.ended),
            "dead": self.dead,
            "took_s": round(self.now - self.began_at, 3),
            "ideal_s": round(self.ideal_s, 3),
            "leases": self.queue.leases,
            "backs": self.backs,
            "releases_max": max(releases, default=0),
            "releases_mean": round(sum(releases) / max(1, len(self.queue.lasts)), 2),
        }
