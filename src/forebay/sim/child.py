"""SimChild: a process that runs scripted handlers; crashes, hangs, pauses and answers as real ones do."""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from forebay.core.actions import Outcome, RunBatch
from forebay.core.job import JobError, Lease
from forebay.core.task import TaskSpec
from forebay.sim.checker import LATER_S
from forebay.sim.plan import Script
from forebay.sim.stage import Act, Stage

Sent = tuple[int, Lease]  # tag and lease

NOTICE_S = 0.02  # a kind handler ends this soon after a cancel
DIES_S = 0.005  # from the kill to the death being seen
ENDLESS = (Script.HANG, Script.HELD)


class Parent(Protocol):
    """What a child needs of the node that started it."""

    specs: Mapping[str, TaskSpec]

    @property
    def name(self) -> str:
        """The node's name."""
        ...

    @property
    def misled(self) -> bool:
        """Whether the node was paused, cut off or misled about the time."""
        ...

    @property
    def paused_until(self) -> float:
        """Until when the whole node is paused."""
        ...

    def results(self, outcomes: list[Outcome]) -> None:
        """Items ended."""
        ...

    def returned(self, tags: list[int]) -> None:
        """Items are given back."""
        ...

    def died(self, child: int, error: JobError) -> None:
        """The death of this child is seen."""
        ...


class SimChild:
    """One replica. Sequential runs go one after another; items of parallel tasks begin when they come."""

    def __init__(self, number: int, lane: Parent, world: Stage) -> None:
        self.number = number
        self.lane = lane
        self.world = world
        self.paused_until = 0.0
        self.alive = True
        self.busy: list[Sent] = []  # what the sequential run works on now
        self.parallel: dict[int, Sent] = {}
        self._works: deque[tuple[RunBatch, deque[Sent]]] = deque()
        self._stopping = False

    def running(self) -> list[Sent]:
        """Return what runs now."""
        return [*self.busy, *self.parallel.values()]

    # -- what the node asks ------------------------------------------------------------------------

    def run(self, action: RunBatch) -> None:
        """Take a run."""
        spec = self.lane.specs[action.task]
        if spec.concurrency > 1:
            for sent in action.items:
                self._begin_parallel(sent, action)
            return
        self._works.append((action, deque(action.items)))
        self._later(0.0, self._next)

    def cancel(self, tag: int) -> None:
        """Give an unstarted item back; a kind handler ends soon."""
        for _, pending in self._works:
            for sent in pending:
                if sent[0] == tag:
                    pending.remove(sent)
                    self._later(0.0, lambda: self.lane.returned([tag]))
                    return
        for sent in self.running():
            if sent[0] == tag and self._script(sent[1]) is Script.KIND and len(self.busy) <= 1:
                self._later(NOTICE_S, partial(self._answer, sent, JobError("cancelled", "asked to stop")))

    def give_back(self) -> None:
        """Give back what has not started, unless the process answers nothing."""
        if any(self._script(lease) is Script.HELD for _, lease in self.running()):
            return
        tags = [sent[0] for _, pending in self._works for sent in pending]
        for _, pending in self._works:
            pending.clear()
        self._later(0.0, lambda: self.lane.returned(tags))

    def kill(self) -> None:
        """End it now."""
        self._halt()
        self.world.engine.after(DIES_S, self.lane.died, self.number, JobError("killed", "killed by the node"))

    def stop(self) -> None:
        """End it when it is empty, which it is."""
        self._stopping = True
        self._halt()
        self.world.engine.after(DIES_S, self.lane.died, self.number, JobError("stopped", "stopped"))

    def crash(self) -> None:
        """Something kills it."""
        if self.alive:
            self._halt()
            self.world.engine.after(DIES_S, self._buried)

    def _buried(self) -> None:
        # What was sent to a process that was dead already looks to the node as if it had run there.
        inside = self.running() or [sent for _, pending in self._works for sent in pending]
        self.world.checker.crashed([lease.job.id for _, lease in inside])
        self.lane.died(self.number, JobError("crashed", "signal 11"))

    def _halt(self) -> None:
        self.alive = False

    # -- inside ------------------------------------------------------------------------------------

    def _later(self, wait_s: float, act: Act) -> None:
        self.world.engine.after(wait_s, self._act, act)

    def _act(self, act: Act) -> None:
        """Do it unless the process is dead; when it is paused, do it when it goes on."""
        until = max(self.paused_until, self.lane.paused_until)
        if until > self.world.engine.now:
            self.world.engine.at(until, self._act, act)
        elif self.alive:
            act()

    def _script(self, lease: Lease) -> Script:
        return self.world.scripts[lease.job.id].script

    def _next(self) -> None:
        if self.busy:
            return
        while self._works and not self._works[0][1]:
            self._works.popleft()
        if not self._works:
            return
        action, pending = self._works[0]
        taken = [pending.popleft()] if action.singles else list(pending)
        if not action.singles:
            pending.clear()
        self.busy = taken
        self._began(taken, action, beside=len(self.parallel))
        self._run_on(taken, action, lambda: self._end_busy(taken))

    def _begin_parallel(self, sent: Sent, action: RunBatch) -> None:
        self.parallel[sent[0]] = sent
        self._began([sent], action, beside=len(self.running()) - 1)
        self._run_on([sent], action, lambda: self._answer(sent, None))

    def _began(self, taken: list[Sent], action: RunBatch, *, beside: int) -> None:
        world = self.world
        leases = [lease for _, lease in taken]
        world.note("start", self.lane.name, self.number, action.task, [x.job.id for x in leases])
        world.checker.started(leases, beside=beside, now=world.engine.now, strict=not self.lane.misled)

    def _run_on(self, taken: list[Sent], action: RunBatch, done: Act) -> None:
        world = self.world
        scripts = [self._script(lease) for _, lease in taken]
        weight = max(world.scripts[lease.job.id].weight for _, lease in taken)
        level, task = action.level, action.task
        service = world.levels[task][level - 1] if level else world.services[task]
        took_s = service.run_s(len(taken), world.chance, world.engine.now) * weight
        if Script.KIND in scripts:
            took_s += 3.0
        if Script.POISON in scripts:
            self._later(took_s / 2, self.crash)
        elif not any(script in ENDLESS for script in scripts):
            self._later(took_s, done)

    def _end_busy(self, taken: list[Sent]) -> None:
        if self.busy is not taken:
            return
        self.busy = []
        outcomes = [self._outcome(sent) for sent in taken]
        self._next()
        self.lane.results(outcomes)

    def _answer(self, sent: Sent, error: JobError | None) -> None:
        """One item ended, by itself or because it was asked to."""
        if sent in self.busy:
            self.busy = []
            self._next()
        elif self.parallel.pop(sent[0], None) is None:
            return
        outcome = self._outcome(sent) if error is None else Outcome(sent[0], None, error)
        self.lane.results([outcome])

    def _outcome(self, sent: Sent) -> Outcome:
        tag, lease = sent
        script = self._script(lease)
        bad = JobError("failed", f"{script.value}, try {lease.attempt}", "ValueError")
        if script is Script.BAD or (script is Script.FLAKY and lease.attempt < 3):
            return Outcome(tag, None, bad)
        if script is Script.PERMANENT:
            return Outcome(tag, None, bad, permanent=True)
        if script is Script.LATER and lease.attempt < 2:
            return Outcome(tag, None, JobError("later", "busy upstream"), after_s=LATER_S)
        output = b'{"fence":%d}' % lease.fence
        self.world.checker.produced(lease.job.id, lease.fence, output)
        return Outcome(tag, output)
