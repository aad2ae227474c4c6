"""Dispatcher: the brain of one set of replicas; inputs in, actions out.

After every input call `poll(now=...)`, perform all it returns, then sleep until `wake_at()`. The node
performs the actions with real children and a real engine, the simulator in virtual time.

One Dispatcher serves the replicas of one class task, or the pool that all plain functions share.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from forebay.core import answering, breaking, serving, settle, stopping
from forebay.core.actions import Action, Commit, GiveBack, KillReason, LeaseJobs, Outcome, Ran
from forebay.core.blame import by_death, by_outcome, left_by, with_replica, witness
from forebay.core.guard import Guard
from forebay.core.hand import Hand, TaskHand, keep_checkpoint
from forebay.core.job import Hold, JobError, Lease
from forebay.core.lateness import note_late, surplus
from forebay.core.lifecycle import State
from forebay.core.planning import room
from forebay.core.renewing import Renewals
from forebay.core.replicas import UNKNOWN, Item, Replica, Run, Traces
from forebay.core.requests import RequestPolicy
from forebay.core.task import TaskSpec
from forebay.core.waking import next_wake

POLL_S = 1.0  # the backstop for a doorbell that did not ring
CANCEL_GRACE_S = 5.0  # a handler has this long to notice that it is cancelled
GOLDEN = 0.6180339887498949  # spreads one drawn number over the failures of one message


class Dispatcher:
    """Decides what to lease, run, renew, kill and settle. Performs nothing, knows no clock."""

    def __init__(
        self,
        specs: Iterable[TaskSpec],
        *,
        lease_s: float = 30.0,
        cancel_grace_s: float = CANCEL_GRACE_S,
        guards: Mapping[str, Guard] | None = None,
        requests: Mapping[str, RequestPolicy] | None = None,
    ) -> None:
        self.hand = Hand(specs, guards, requests)
        self.lease_s = lease_s
        self.cancel_grace_s = cancel_grace_s
        self.draining = False
        self._renewals = Renewals(lease_s)
        self._polled_at = 0.0
        self._rotation = list(self.hand.tasks)

    # -- inputs ------------------------------------------------------------------------------------

    def knock(self, task: str) -> bool:
        """There may be work for `task`. Returns whether polling now could lead to a lease: while a request
        is out its answer polls anyway, and a burst rings for every submission."""
        entry = self.hand.tasks[task]
        entry.knocks += 1
        return entry.asked == 0

    def leased(self, task: str, leases: Sequence[Lease], *, asked: int, now: float) -> None:
        """The engine's answer to LeaseJobs."""
        entry = self.hand.tasks[task]
        entry.asked = 0
        if leases:
            self.hand.ahead.took(now - entry.asked_at)
        if len(leases) < asked:
            entry.dry_at = now
        else:
            entry.knocks += 1  # it gave all we asked for: there may be more
        hand = self.hand
        if entry.spec.on_version != "run":
            leases = stopping.other_versions(hand, entry.spec, leases, now)
        if entry.spec.upstream is not None:
            leases = [lease._replace(suspect=False) for lease in leases]  # it has no process to kill
        if entry.guard is not None:
            leases = breaking.admit(hand, entry.guard, leases, now)
        for lease in leases:
            item = hand.take_in(lease, now)
            if entry.guard is not None:
                entry.guard.take(item)
            (hand.suspects if lease.suspect else entry.held).append(item)
            if lease.job.deadline_at is not None:
                heapq.heappush(hand.deadlines, (lease.job.deadline_at, item.tag))

    def replica_ready(self, replica: int, name: str = "", calls_max: int | None = None) -> None:
        """A child has loaded and can run. What it ends is stored under `name`."""
        self.hand.replicas[replica] = Replica(replica, name, calls_max)

    def replica_died(
        self,
        replica: int,
        *,
        error: JobError,
        now: float,
        jitter: float,
        traces: Traces = UNKNOWN,
        log: str = "",
    ) -> None:
        """A child is gone; `error` names how, `traces` what it ran, `log` is what it printed since its last
        results. Settles or takes back everything it had.
        """
        gone = self.hand.replicas.pop(replica, None)
        if gone is None:
            return
        for run in gone.runs:
            self.hand.tasks[run.task].runs_out -= 1
        head, started, unstarted = gone.head(), *left_by(gone, traces)
        # What nobody waits for any more ran there too, and may be what killed it.
        ran = [run for run in gone.runs if run is head or run.parallel or traces.tag in run.items]
        alone = sum(len(run.items) for run in ran) == 1
        tenants = {lease.job.tenant for lease in with_replica(gone)}
        for item, run in started:
            jitter = (jitter + GOLDEN) % 1.0
            spec = self.hand.tasks[run.task].spec
            end = by_death(item, run, spec, alone=alone, error=error, now=now, jitter=jitter)
            breaking.died(self.hand, item, end, now)
            self.hand.settle(item, witness(end, item, run, log, tenants))
        stopping.unstarted(self.hand, unstarted, now)

    def results(
        self,
        outcomes: Sequence[Outcome],
        *,
        now: float,
        jitter: float,
        busy_s: float = 0.0,
        log: str = "",
    ) -> None:
        """A child finished items of one run. Answers for items that were settled before are dropped.

        `busy_s` is the time it spent inside handlers for them, 0 when that is not known; `log` what it
        printed since its last results, asked for where one of these failed.
        """
        hand = self.hand
        tenants = stopping.tenants_of(hand, outcomes) if log else set[str]()
        first = hand.items.get(outcomes[0].tag) if busy_s and outcomes else None
        if first is not None and first.run is not None and not first.run.parallel:
            first.run.busy_s += busy_s
        restarted: Run | None = None
        for outcome in outcomes:
            item = hand.items.pop(outcome.tag, None)
            if item is None:
                stopping.late(hand, outcome.tag, now)
                continue
            run = item.run
            if run is None:  # taken back from a child that had run it after all
                hand.take_out(item)
            if hand.cancelling:
                hand.cancelling.pop(outcome.tag, None)
            lease = item.lease
            if outcome.output is not None and lease.job.deadline_at is None and item.cancel_by is None:
                transition = settle.complete(
                    lease, output=outcome.output, now=now, worker="" if run is None else run.replica.name
                )
                worked = True
            else:
                jitter = (jitter + GOLDEN) % 1.0
                spec = hand.tasks[lease.job.task].spec
                transition = by_outcome(item, outcome, spec, now=now, jitter=jitter)
                transition = witness(transition, item, run, log, tenants)
                worked = transition.state is State.SUCCEEDED
                if item.checkpoint is not None:
                    transition = keep_checkpoint(item, transition)
            if item.level and worked:
                transition = transition._replace(degraded=item.level)
            if hand.guarded:
                each_s = busy_s / len(outcomes)
                transition = breaking.heard(hand, item, outcome, transition, each_s, now)
            hand.transitions.append(transition)
            hand.settled.append(lease)
            if run is not None:
                run.replica.count(worked=worked, unsure=not worked and outcome.unsure)
                if run is not restarted and run.singles and run is run.replica.head():
                    run.replica.restart(now)
                    restarted = run
                hand.finished(item, run, now)

    def passed(self, replica: int, *, now: float) -> None:
        """The child began another pass over a batch that failed: its time starts anew."""
        entry = self.hand.replicas.get(replica)
        if entry is not None:
            entry.restart(now)

    def progressed(self, tag: int, progress: bytes) -> None:
        """The handler reported progress."""
        item = self.hand.items.get(tag)
        if item is not None:
            self._renewals.progressed(item, progress)

    def checkpointed(self, tag: int, checkpoint: bytes) -> None:
        """The handler stored a checkpoint."""
        item = self.hand.items.get(tag)
        if item is not None:
            self._renewals.checkpointed(item, checkpoint)

    def returned(self, tags: Sequence[int], *, now: float) -> None:
        """The child gave back items it had not started."""
        back: list[Item] = []
        for tag in tags:
            item = self.hand.items.get(tag)
            if item is None:
                stopping.late(self.hand, tag, now)
            elif item.run is not None:
                self.hand.unsent(item, now)
                back.append(item)
        stopping.unstarted(self.hand, back, now)

    def renewed(self, tags: Sequence[int], answers: Sequence[Hold], *, now: float) -> None:
        """The engine's answer to Renew."""
        for tag, answer in zip(tags, answers, strict=True):
            item = self.hand.items.get(tag)
            if item is None:
                continue
            if answer is Hold.LOST:
                stopping.lost(self.hand, item)
                continue
            item.until = now + self.lease_s
            if answer is Hold.CANCEL and item.cancel_by is None:
                stopping.cancel(self.hand, item, now=now, grace_s=self.cancel_grace_s)

    def renew_now(self) -> None:
        """Ask about every lease at the next poll: somebody may want one cancelled."""
        self._renewals.all_now()

    def retire(self, replica: int) -> None:
        """Give this replica nothing more and stop it when it is empty (recycling)."""
        entry = self.hand.replicas.get(replica)
        if entry is not None:
            entry.retiring = True

    def filled(self, task: str, share: float) -> None:
        """So full is the queue of a task; 1 is full. What it makes of that is decided at the next poll."""
        self.hand.tasks[task].filled = share

    def drain(self, *, now: float) -> None:
        """Lease nothing more, hand back what has not started, let the rest finish."""
        if self.draining:
            return
        self.draining = True
        stopping.release_waiting(self.hand, now)
        self.hand.actions.extend(
            GiveBack(replica.id) for replica in self.hand.replicas.values() if replica.has_unstarted()
        )

    def abandon(self) -> None:
        """The grace is over: kill everything; what was running is handed back without a charge."""
        for replica in self.hand.replicas.values():
            if replica.runs:
                stopping.kill(self.hand, replica, KillReason.STOP, None, replica.since)

    # -- outputs -----------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and nothing waits to be stored."""
        hand = self.hand
        return not (hand.items or hand.transitions or hand.actions or hand.basin.open)

    def take_ran(self) -> list[Ran]:
        """Return and forget the runs that ended since the last call."""
        ran, self.hand.ran = self.hand.ran, []
        return ran

    def wake_at(self) -> float | None:
        """Return when to poll next if nothing happens before; None when only an input matters.

        Ask after `poll`; the instant lies behind the one of that poll.
        """
        return self._next_wake(self._polled_at)

    def poll(self, *, now: float) -> list[Action]:
        """Return everything to do now, in order. Empty when there is nothing."""
        hand = self.hand
        answering.pass_deadlines(hand, now)
        stopping.watch(hand, now)
        breaking.tend(hand, now)
        answering.settle_all(hand)
        stopping.retire_empty(hand, draining=self.draining)
        note_late(hand, now)
        if self.draining or not any(one.open for one in hand.replicas.values()):
            stopping.release_waiting(hand, now)
        serving.start(hand, now=now)
        if all(one.late for one in hand.replicas.values() if one.open):
            stopping.release_waiting(hand, now)  # nobody here will run it soon: another node may
        else:
            stopping.release(hand, surplus(hand), now)
        if not self.draining:
            self._ask(now)
        renew = self._renewals.due(hand, now)
        if renew is not None:
            hand.actions.append(renew)
        actions, hand.actions = hand.actions, []
        if hand.transitions:
            actions.insert(0, Commit(hand.transitions, hand.settled))
            hand.transitions, hand.settled = [], []
        self._polled_at = now
        return actions

    # -- leasing -----------------------------------------------------------------------------------

    def _ask(self, now: float) -> None:
        asked: list[str] = []
        for name in self._rotation:
            entry = self.hand.tasks[name]
            if entry.asked or not self._wet(entry, now):
                continue
            limit = room(self.hand, entry, now)
            if entry.guard is not None:
                limit = entry.guard.limit(limit, now)
            if limit <= 0:
                continue
            entry.asked, entry.asked_at = limit, now
            entry.knocks = 0
            entry.dry_at = None
            self.hand.actions.append(LeaseJobs(name, limit))
            asked.append(name)
        if asked and len(self._rotation) > 1:  # plain functions share replicas: who asked is last in turn
            self._rotation = [name for name in self._rotation if name not in asked] + asked

    @staticmethod
    def _wet(entry: TaskHand, now: float) -> bool:
        return entry.knocks > 0 or entry.dry_at is None or now >= entry.dry_at + POLL_S

    def _next_wake(self, now: float) -> float | None:
        renew_at = self._renewals.wake_at(self.hand)
        return next_wake(self.hand, renew_at, dry_s=None if self.draining else POLL_S, now=now)
