"""The Dispatcher over any order of events: every item is settled once, the counts are true, nothing is missed."""

import copy
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import answering
from forebay.core.actions import (
    CancelItem,
    Commit,
    GiveBack,
    KillReplica,
    LeaseJobs,
    RunBatch,
    StopReplica,
)
from forebay.core.batching import Trigger
from forebay.core.breaker import BreakerPolicy, CircuitBreaker
from forebay.core.codel import Discipline
from forebay.core.guard import guards_of
from forebay.core.job import Hold, JobError
from forebay.core.lifecycle import FINAL
from forebay.core.replicas import Traces
from forebay.core.requests import Request
from forebay.core.serving import RUNS_AHEAD_MAX
from forebay.core.variants import LadderPolicy, Rung
from tests.core.serving import RequestRig
from tests.sim.rig import BAD, CRASH, a_spec

SIDE = 3  # calls beside each other
REPLICAS_MAX = 3
TIMES = (0.0, 0.0004, 0.004, 0.012, 0.06, 0.3, 1.1, 6.0)  # that pass before a step
BREAKER = BreakerPolicy(failures=2, rate=None, window_s=5.0, open_s=2.0, slow_s=0.5)
BATCHES = dict(kind="class", batch_max=4, batch_wait_s=0.01, timeout_s=5.0)
LANES = {
    "functions": (a_spec("a", timeout_s=5.0), a_spec("b", timeout_s=2.0)),
    "batches": (a_spec("a", **BATCHES),),
    "calls": (a_spec("a", concurrency=SIDE, timeout_s=5.0), a_spec("b", timeout_s=2.0)),
    "guarded": (a_spec("a", breaker=BREAKER, **BATCHES),),
    "guarded functions": (a_spec("a", breaker=BREAKER, timeout_s=5.0), a_spec("b", timeout_s=2.0)),
    "variants": (
        a_spec("a", ladder=LadderPolicy(rungs=(Rung(name="small"),)), discipline=Discipline.CODEL, **BATCHES),
    ),
    "newest": (a_spec("a", discipline=Discipline.NEWEST, recycle_after=7, **BATCHES),),
}


class BookRig(RequestRig):
    """A Dispatcher, children that do what they are told in time, and a store that gives again what comes back."""

    def __init__(self, *specs, replicas=1):
        self.children = {}  # replica -> runs: [singles, parallel, tags]
        self.owed = []  # answers that children owe
        self.back = {spec.name: deque() for spec in specs}  # leases to be given again
        self.leased, self.lost = set(), set()  # (job, fence)
        self.settled = Counter()
        self.numbers = 0
        breakers = {spec.name: CircuitBreaker(spec.breaker) for spec in specs if spec.breaker}
        super().__init__(*specs, replicas=0, guards=guards_of(specs, (), breakers))
        for _ in range(replicas):
            self.start()

    def start(self):
        self.numbers += 1
        self.children[self.numbers] = []
        self.d.replica_ready(self.numbers)
        self.poll()

    def _take(self, action):
        super()._take(action)
        match action:
            case RunBatch(replica=replica):
                parallel = self.d.hand.tasks[action.task].spec.concurrency > 1
                tags = [tag for tag, _ in action.items]
                self.children[replica].append([action.singles, parallel, tags])
            case GiveBack(replica):
                self.owed.append(("back", replica, 0))
            case CancelItem(replica, tag):
                self.owed.append(("cancel", replica, tag))
            case KillReplica(replica) | StopReplica(replica):
                self.owed.append(("dead", replica, 0))
            case Commit(transitions, leases):
                for step, lease in zip(transitions, leases, strict=True):
                    self.settled[step.job_id, step.fence] += 1
                    if step.state not in FINAL:
                        again = lease._replace(
                            fence=lease.fence + 1,
                            attempt=step.attempt + 1,
                            releases=step.releases,
                            deaths=step.deaths,
                            suspect=step.suspect,
                        )
                        self.back[lease.job.task].append(again)

    # -- what happens ------------------------------------------------------------------------------

    def give_some(self, task, count, **fields):
        again = [self.back[task].popleft() for _ in range(min(count, len(self.back[task])))]
        again = [one._replace(until=self.now + 30.0, leased_at=self.now) for one in again]
        leases = again + self.jobs(count - len(again), task, **fields)
        self.leased.update((lease.job.id, lease.fence) for lease in leases)
        self.give(leases, task)

    def running(self, replica):
        """What a child works on now: a call of its own, or one of those that run beside each other."""
        runs = self.children[replica]
        found = [tags for _, parallel, tags in runs if parallel and tags]
        for singles, parallel, tags in runs:
            if not parallel and tags:
                found.append(tags[:1] if singles else list(tags))
                break
        return found

    def finish(self, replica, which, **fields):
        if not (found := self.running(replica)):
            return
        tags = found[which % len(found)]
        self.forget(replica, tags)
        self.done(*tags, **fields)

    def forget(self, replica, tags):
        for run in self.children[replica]:
            run[2] = [tag for tag in run[2] if tag not in tags]
        self.children[replica] = [run for run in self.children[replica] if run[2]]

    def answer_owed(self, which):
        if not self.owed:
            return
        kind, replica, tag = self.owed.pop(which % len(self.owed))
        if replica not in self.children:
            return
        started = [one for tags in self.running(replica) for one in tags]
        if kind == "dead":
            self.end(replica, CRASH, Traces())
            return
        unstarted = [one for _, _, tags in self.children[replica] for one in tags if one not in started]
        if kind == "cancel":
            unstarted = [one for one in unstarted if one == tag]
        self.forget(replica, unstarted)
        self.returned(*unstarted)

    def end(self, replica, error, traces):
        del self.children[replica]
        self.owed = [one for one in self.owed if one[1] != replica]
        self.d.replica_died(replica, error=error, now=self.now, jitter=0.5, traces=traces)
        self.poll()

    def renew(self, tag, hold):
        self.d.renew_now()
        self.poll()
        if not self.renews:
            return
        answers = [hold if one == tag else Hold.HELD for one in self.renews[-1].tags]
        if hold is Hold.LOST and (item := self.d.hand.items.get(tag)) is not None:
            self.lost.add((item.lease.job.id, item.lease.fence))
        self.answer(*answers)

    # -- what must hold ----------------------------------------------------------------------------

    def pass_time(self, after):
        """Let time pass as an event loop does: poll when it wants to be woken."""
        until = self.now + after
        while (wake_at := self.d.wake_at()) is not None and wake_at <= until:
            self.now = wake_at
            self.poll()
        self.now = until
        self.poll()

    def check_sleep(self, share):
        """Whoever is not polled before it wants to be has missed nothing."""
        wake_at = self.d.wake_at()
        until = self.now + 1_000.0 if wake_at is None else wake_at
        at = self.now + (until - self.now) * share
        if not self.now < at < until:
            return
        twin = copy.deepcopy(self.d)
        actions = [one for one in twin.poll(now=at) if not self.can_wait(one)]
        assert actions == [], f"after {at - self.now:.6f} s, of {until - self.now:.6f}: {actions}"
        busy = all(one.runs or not one.open for one in self.d.hand.replicas.values())
        assert busy or twin.hand.basin.ended == []  # else its turn came, a little ahead of time

    def can_wait(self, action):
        """What is sent ahead to a busy replica, or would be leased ahead, may leave a little later; and a
        batch that waits for company does so for its whole wait."""
        if isinstance(action, RunBatch):
            replica = self.d.hand.replicas[action.replica]
            waits = self.d.hand.tasks[action.task].spec.batch_wait_s > 0 and action.trigger is Trigger.IDLE
            return bool(replica.runs) or waits
        return isinstance(action, LeaseJobs) and all(
            one.runs or not one.open for one in self.d.hand.replicas.values()
        )

    def check(self):
        hand = self.d.hand
        held = [item for task in hand.tasks.values() for item in task.held]
        sent = [
            (run, item) for replica in hand.replicas.values() for run in replica.runs
            for item in run.items.values()
        ]  # fmt: skip
        assert not any(item.lease.request for item in held), "a request waits in its reservoir"
        places = Counter(item.tag for item in [*held, *hand.suspects])
        places.update(item.tag for _, item in sent if not item.dropped)
        assert set(places) == set(hand.items), "an item is in no line, or none is known of it"
        assert all(count == 1 for count in places.values())
        assert all(hand.items[tag].run is None for tag in [item.tag for item in [*held, *hand.suspects]])
        assert all(item.run is run for run, item in sent)
        for name, task in hand.tasks.items():
            runs = [run for replica in hand.replicas.values() for run in replica.runs if run.task == name]
            assert task.runs_out == len(runs)
            assert all(run.items for run in runs), "a run with nothing in it"
        for replica in hand.replicas.values():
            sequential = [run for run in replica.runs if not run.parallel]
            assert len(sequential) <= RUNS_AHEAD_MAX
            assert not any(run.alone for run in replica.runs) or len(replica.runs) == 1
            for name, task in hand.tasks.items():
                if task.spec.concurrency > 1:
                    assert sum(len(run.items) for run in replica.runs if run.task == name) <= SIDE
        basin = hand.basin
        assert basin.waiting == sum(len(one) for one in basin.reservoirs.values())
        waiting = {request.job.id for one in basin.reservoirs.values() for request in one}
        for request in basin.open.values():
            assert request.end is None
            assert (request.job.id in waiting) != (request.tag in hand.items)
        assert waiting <= set(basin.open)
        assert all(count == 1 for count in self.settled.values()), "a lease was settled twice"
        jobs = {(i.lease.job.id, i.lease.fence) for i in hand.items.values() if not i.lease.request}
        assert jobs == self.leased - set(self.settled) - self.lost
        assert len(hand.deadlines) <= 2 * len(hand.items) + 64 + len(self.leased)
        probes = [
            item for item in hand.items.values()
            if item.permit is not None and item.permit.probe
            and item.permit.number == hand.tasks[item.lease.job.task].guard.breaker._number
        ]  # fmt: skip
        assert len(probes) <= 1


def step(rig, what, which):
    hand = rig.d.hand
    live, replicas = sorted(hand.items), sorted(rig.children)
    tag = live[which % len(live)] if live else 999
    replica = replicas[which % len(replicas)] if replicas else None
    tasks = sorted(hand.tasks)
    match what:
        case "lease" if rig.asked:
            task = sorted(rig.asked)[which % len(rig.asked)]
            count = min((0, 1, 2, 5, 40, 400, 1, 3)[which % 8], rig.asked[task])
            deadline_at = rig.now + 0.5 if which == 3 else None
            rig.give_some(task, count, suspect=which == 6, deadline_at=deadline_at)
        case "done" if replica:
            rig.finish(replica, which)
        case "is slow" if replica:
            for _ in range(6):
                rig.pass_time(0.06)
                if replica in rig.children:
                    rig.finish(replica, which)
            rig.answer_owed(-1)
        case "bad" if replica:
            fields = ({}, {"permanent": True}, {"alone": True}, {"uncharged": True, "after_s": 1.0})[
                which % 4
            ]
            rig.finish(replica, which, error=BAD, **fields)
        case "owed":
            rig.answer_owed(which)
        case "dies" if replica:
            running = [one for tags in rig.running(replica) for one in tags]
            known = (Traces(), Traces(idle=True), Traces(tag=running[0]) if len(running) == 1 else Traces())
            rig.end(replica, JobError("crashed", "signal 9"), known[which % 3])
        case "starts" if len(rig.children) < REPLICAS_MAX:
            rig.start()
        case "cancel":
            rig.renew(tag, Hold.CANCEL)
        case "lost" if tag in hand.items and not hand.items[tag].lease.request:
            rig.renew(tag, Hold.LOST)
        case "rings":
            rig.ring(tasks[which % len(tasks)])
        case "asks":
            deadline_s = (0.005, 0.05, 0.2, 1.0, 20.0)[which % 5]
            priority = (5, 5, 2, 7)[which % 4]
            rig.ask(
                tasks[which % len(tasks)], deadline_s=deadline_s, priority=priority, tenant="xyz"[which % 3]
            )
        case "many ask":
            for number in range(which):
                rig.offer(tasks[0], deadline_s=(0.05, 0.2, 1.0)[number % 3])
            rig.poll()
        case "hangs up" if hand.basin.open:
            rig.gone(list(hand.basin.open.values())[which % len(hand.basin.open)])
        case "passes" if replica:
            rig.d.passed(replica, now=rig.now)
            rig.poll()
        case "reports":
            rig.d.progressed(tag, b"1")
            rig.d.checkpointed(tag, b"2")
            rig.poll()
        case "retires" if replica:
            rig.d.retire(replica)
            rig.poll()
        case "fills":
            rig.d.filled(tasks[0], (0.0, 0.8, 1.0)[which % 3])
            rig.poll()
        case "drains" if which == 7:
            rig.d.drain(now=rig.now)
            rig.poll()


STEPS = (
    *("lease",) * 5, *("done",) * 7, "bad", "is slow", *("owed",) * 5, "dies", "starts", "cancel", "lost", "rings", "rings",
    *("asks",) * 3, "many ask", "hangs up", "passes", "reports", "retires", "fills", "drains",
)  # fmt: skip


def play(lane, steps, replicas, each_s):
    rig = BookRig(*LANES[lane], replicas=replicas)
    if each_s:
        for task in rig.d.hand.tasks.values():
            for size in (1, 2, 4, 4, 4):
                task.fit.observe(size, each_s * size)
    for number, (what, which, after) in enumerate(steps):
        rig.pass_time(after)
        step(rig, what, which)
        rig.check()
        if number % 3 == 0:
            rig.check_sleep((0.5, 0.1, 0.999)[which % 3])
    rig.d.drain(now=rig.now)
    rig.poll()
    rig.d.abandon()
    answering.close(rig.d.hand)
    rig.poll()
    for replica in list(rig.children):
        rig.end(replica, CRASH, Traces())
    answering.close(rig.d.hand)
    rig.poll()
    rig.check()
    assert rig.d.idle and not rig.d.hand.cancelling and not rig.d.hand.basin.open
    assert rig.leased == set(rig.settled) | rig.lost
    admitted = [request for request in rig.told if isinstance(request, Request)]
    assert not admitted
    return rig


EVENTS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 39), st.sampled_from(TIMES)), min_size=1, max_size=70
)


@pytest.mark.parametrize("lane", LANES)
@settings(max_examples=40, deadline=None)
@given(steps=EVENTS, replicas=st.integers(1, 3), each_s=st.sampled_from([None, 0.0001, 0.01, 0.2]))
def test_over_any_order_of_events_every_item_is_settled_once_and_nothing_is_missed(
    lane, steps, replicas, each_s
):
    play(lane, steps, replicas, each_s)
