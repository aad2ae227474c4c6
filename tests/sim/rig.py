"""One Dispatcher driven by hand: leases made from nothing, actions sorted into lists, no world around it."""

import itertools

from forebay.core.actions import (
    CancelItem,
    ChargeInputs,
    Commit,
    GiveBack,
    KillReplica,
    LeaseJobs,
    Outcome,
    Renew,
    RunBatch,
    StopReplica,
)
from forebay.core.dispatcher import Dispatcher
from forebay.core.job import Hold, Job, JobError, Lease
from forebay.core.task import TaskSpec

CRASH = JobError("crashed", "killed by signal 11")
BAD = JobError("failed", "bad value", "ValueError")


def a_spec(name="t", **fields):
    return TaskSpec(name=name, **fields)


class Rig:
    """`rig.lease("t", 3)` answers the Dispatcher's last request with three jobs, and so on."""

    def __init__(self, *specs, now=100.0, replicas=1, lease_s=30.0, guards=None):
        self.specs = specs or (a_spec(),)
        self.d = Dispatcher(self.specs, lease_s=lease_s, guards=guards)
        self.now = now
        self.asked = {}  # task -> limit of the request that is out
        self.ran = []  # every RunBatch
        self.ended = []  # every Transition
        self.charged = []  # (job, charge, when) of requests
        self.renews = []
        self.kills = []
        self.stops = []
        self.cancels = []  # (replica, tag)
        self.backs = []  # replicas asked to give back
        self.tags = {}  # job id -> tag
        self._ids = itertools.count(1)
        for replica in range(1, replicas + 1):
            self.d.replica_ready(replica)
        self.poll()

    def poll(self, after=0.0):
        """Poll until nothing is wanted; return the runs that were started."""
        self.now += after
        runs_before = len(self.ran)
        for _ in range(100):
            actions = self.d.poll(now=self.now)
            if not actions:
                break
            for action in actions:
                self._take(action)
        else:
            raise AssertionError("the dispatcher never comes to rest")
        wake_at = self.d.wake_at()
        assert wake_at is None or wake_at > self.now, "it would spin"
        return self.ran[runs_before:]

    def _take(self, action):
        match action:
            case LeaseJobs(task, limit):
                assert limit > 0 and task not in self.asked
                self.asked[task] = limit
            case RunBatch():
                self.ran.append(action)
                self.tags.update({lease.job.id: tag for tag, lease in action.items})
            case Commit(transitions, leases):
                assert [t.job_id for t in transitions] == [one.job.id for one in leases]
                self.ended += transitions
            case ChargeInputs(charges):
                self.charged += charges
            case Renew():
                self.renews.append(action)
            case KillReplica(replica, reason):
                self.kills.append((replica, reason))
            case StopReplica(replica):
                self.stops.append(replica)
            case CancelItem(replica, tag):
                self.cancels.append((replica, tag))
            case GiveBack(replica):
                self.backs.append(replica)

    def jobs(self, count, task="t", *, suspect=False, deadline_at=None, deaths=0, attempt=1, releases=0):
        """Return leases for so many new jobs."""
        leases = []
        for _ in range(count):
            number = next(self._ids)
            job = Job(f"j{number}", task, b"{}", self.now, self.now, deadline_at=deadline_at)
            until = self.now + self.d.lease_s
            leases.append(
                Lease(
                    job, 1, attempt, until, "w", self.now, suspect=suspect, deaths=deaths, releases=releases
                )
            )
        return leases

    def give(self, leases, task=None):
        """Answer the request that is out; return the runs that start."""
        task = task or (leases[0].job.task if leases else "t")
        asked = self.asked.pop(task)
        assert len(leases) <= asked, f"only {asked} were asked for"
        self.d.leased(task, leases, asked=asked, now=self.now)
        return self.poll()

    def lease(self, task="t", count=1, **fields):
        return self.give(self.jobs(count, task, **fields), task)

    def ring(self, task="t"):
        self.d.knock(task)
        return self.poll()

    def done(self, *tags, after=0.0, error=None, **fields):
        """The child answers for these."""
        self.now += after
        output = None if error else b"1"
        outcomes = [Outcome(tag, output, error, **fields) for tag in tags]
        self.d.results(outcomes, now=self.now, jitter=0.5)
        return self.poll()

    def died(self, replica, after=0.0, error=CRASH):
        self.now += after
        self.d.replica_died(replica, error=error, now=self.now, jitter=0.5)
        return self.poll()

    def returned(self, *tags):
        self.d.returned(tags, now=self.now)
        return self.poll()

    def answer(self, *answers):
        """The engine's answer to the last renewal."""
        self.d.renewed(self.renews[-1].tags, answers, now=self.now)
        return self.poll()

    def cancel(self, tag):
        """Somebody wants this one cancelled: the next renewal says so."""
        self.d.renew_now()
        self.poll()
        answers = [Hold.CANCEL if one == tag else Hold.HELD for one in self.renews[-1].tags]
        return self.answer(*answers)

    def learn(self, took_s, items=1, runs=5, task="t"):
        """Teach it what a run takes."""
        for _ in range(runs):
            self.d.hand.tasks[task].fit.observe(items, took_s)

    def events(self):
        return [(t.job_id, t.event.value) for t in self.ended]
