"""Hand: everything one Dispatcher has leased and where it is; the books, no decisions."""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from forebay.core.actions import Action, Ran
from forebay.core.ahead import Ahead
from forebay.core.basin import Basin
from forebay.core.codel import Codel, Discipline
from forebay.core.guard import Guard
from forebay.core.job import PRIORITY_NORMAL, Lease, Transition
from forebay.core.lifecycle import FINAL
from forebay.core.live_fit import LiveFit
from forebay.core.replicas import Item, Replica, Run
from forebay.core.requests import RequestPolicy
from forebay.core.task import TaskSpec
from forebay.core.variants import Ladder, Moved

MOVED_MAX = 64
FRAME_MAX = 256  # single items in one run


class TaskHand:
    """One task of the set: what waits in hand for a replica, and what we know of its service."""

    __slots__ = (
        "ahead", "asked", "asked_at", "codel", "dry_at", "filled", "fit", "fits", "frame_max",
        "gathers_since", "guard", "held", "knocks", "ladder", "last_run_at", "runs_out", "spec", "wait_pays",
    )  # fmt: skip

    def __init__(self, spec: TaskSpec, guard: Guard | None = None, ahead: Ahead | None = None) -> None:
        self.spec = spec
        self.ahead = ahead or Ahead()
        self.guard = guard
        self.codel = None if spec.discipline is Discipline.DEADLINE else Codel()
        self.held: deque[Item] = deque()
        self.ladder = None if spec.ladder is None else Ladder(spec.ladder)
        self.fits = [LiveFit() for _ in range(1 if spec.ladder is None else len(spec.ladder.rungs) + 1)]
        self.fit = self.fits[0]  # the law of ordinary work, at the level where it runs now
        self.frame_max = FRAME_MAX  # of single items, that are sent and leased as one piece
        self.filled = 0.0  # the share of its queue that waits there, as far as we were told
        self.asked = 0  # the limit of the lease request that is out, 0 when none is
        self.asked_at = 0.0  # when it went out
        self.knocks = 1  # rings since the last request was sent; 0 = nothing new is known of
        self.dry_at: float | None = None  # when a request last came back short
        self.runs_out = 0
        self.gathers_since: float | None = None  # a run of requests could start and waits for newcomers
        self.wait_pays = True  # whether the last wait for a fuller batch brought anything
        self.last_run_at = float("-inf")  # when a run last ended

    def level_of(self, priority: int) -> int:
        """Return the level at which work of this priority starts now; 0 is the task itself."""
        return 0 if self.ladder is None else self.ladder.level(priority)

    def fit_at(self, level: int) -> LiveFit:
        """Return the law of a level; of one that never ran, that of the next better one: nobody counts on a
        speed that was not seen."""
        while level and not self.fits[level].runs:
            level -= 1
        return self.fits[level]

    def fit_of(self, priority: int) -> LiveFit:
        """Return the law of work of this priority."""
        return self.fit if self.ladder is None else self.fit_at(self.ladder.level(priority))

    def refit(self) -> None:
        """The level is another, or more is known of it."""
        self.fit = self.fit_of(PRIORITY_NORMAL)

    def ran(self, run: Run, took_s: float) -> None:
        """Take in a run that ended."""
        self.fits[run.level].observe(run.size, took_s)
        if run.singles and not run.overran:
            self.frame_max = min(FRAME_MAX, max(self.frame_max, 2 * run.size))
        if self.ladder is not None:
            self.ladder.ran(run.sent_at)
            self.refit()


class Hand:
    """Items by tag, replicas, tasks, and the transitions that wait to be stored."""

    def __init__(
        self,
        specs: Iterable[TaskSpec],
        guards: Mapping[str, Guard] | None = None,
        requests: Mapping[str, RequestPolicy] | None = None,
    ) -> None:
        guards = guards or {}
        self.ahead = Ahead()
        self.tasks: Mapping[str, TaskHand] = {
            spec.name: TaskHand(spec, guards.get(spec.name), self.ahead) for spec in specs
        }
        self.basin = Basin(self.tasks, requests)
        self.guarded = [(guard, self.tasks[name]) for name, guard in guards.items()]
        self.laddered = [task for task in self.tasks.values() if task.ladder is not None]
        self.moved: deque[tuple[str, Moved]] = deque(maxlen=MOVED_MAX)  # steps, until somebody takes them
        self.replicas: dict[int, Replica] = {}
        self.items: dict[int, Item] = {}
        self.suspects: deque[Item] = deque()
        self.deadlines: list[tuple[float, int]] = []  # heap of (deadline_at, tag)
        self.cancelling: dict[int, Item] = {}
        self.transitions: list[Transition] = []
        self.settled: list[Lease] = []  # of the transitions, in the same order
        self.actions: list[Action] = []
        self.ran: list[Ran] = []
        self._tag = 0
        self._run = 0

    def take_in(self, lease: Lease, now: float) -> Item:
        """Book a new lease and return its item."""
        self._tag += 1
        item = Item(self._tag, lease, now)
        self.items[self._tag] = item
        return item

    def waiting(self) -> Iterable[Item]:
        """Yield what is in hand and with no replica."""
        for task in self.tasks.values():
            yield from task.held
        yield from self.suspects

    def new_run(self, task: str, replica: Replica, *, singles: bool, alone: bool) -> Run:
        """Return an empty run for the replica, with a new number."""
        self._run += 1
        parallel = self.tasks[task].spec.concurrency > 1
        return Run(self._run, task, replica, singles=singles, parallel=parallel, alone=alone)

    def drop_waiting(self, item: Item) -> None:
        """Take an item that is with no replica out of the books."""
        del self.items[item.tag]
        self.take_out(item)

    def take_out(self, item: Item) -> None:
        """Take an item that is with no replica out of its line."""
        self.cancelling.pop(item.tag, None)
        queue = self.suspects if item.lease.suspect else self.tasks[item.lease.job.task].held
        queue.remove(item)

    def decide(self, item: Item, transition: Transition) -> None:
        """Take in what was decided for an item, to be stored."""
        self.transitions.append(keep_checkpoint(item, transition))
        self.settled.append(item.lease)

    def settle(self, item: Item, transition: Transition | None) -> None:
        """Take a sent item out of the books of settlement; its run keeps it until the child answers."""
        item.dropped = True
        self.items.pop(item.tag, None)
        self.cancelling.pop(item.tag, None)
        if transition is not None:
            self.decide(item, transition)

    def finished(self, item: Item, run: Run, now: float) -> None:
        """The child is done with this item: book the run, its time and what is left for the replica."""
        run.items.pop(item.tag, None)
        run.replica.items_done += 1
        if not run.items:
            took_s = run.busy_s or (0.0 if run.started_at is None else now - run.started_at)
            if took_s > 0:  # else the clock was set back meanwhile, and the run says nothing of the service
                self.tasks[run.task].ran(run, took_s)
                run.replica.heard(run, now)
                if run.sent and run.sent[0][1].request:
                    beside = run.replica.beside(self.tasks[run.task].spec.concurrency)
                    self.basin.ran(took_s / beside, now=now)
                self.ran.append(Ran(run.task, run.size, took_s, run.size_b, run.level))
            self._close(run, now)

    def unsent(self, item: Item, now: float) -> None:
        """The child gave this item back unstarted: its run goes on without it."""
        run = item.run
        assert run is not None
        del run.items[item.tag]
        run.size -= 1
        if not run.items:
            self._close(run, now)

    def wait_again(self, items: Sequence[Item]) -> None:
        """Put items that no replica has any more back in hand, first in line, in their old order."""
        for item in reversed(items):
            item.run = None
            if item.lease.request and not item.lease.suspect:  # its reservoir knows its place
                del self.items[item.tag]
                self.basin.put_back(item.lease)
                continue
            task = self.tasks[item.lease.job.task]
            (self.suspects if item.lease.suspect else task.held).appendleft(item)

    def foresee(self, replica: Replica, now: float) -> None:
        """Estimate anew when the replica will have done its sequential runs."""
        left_s = 0.0
        for run in replica.runs:
            if not run.parallel:
                run_s = self.tasks[run.task].fit_at(run.level).run_s(run.size)
                left_s += float("inf") if run_s is None else run_s
        replica.busy_until = now + left_s

    def due_deadlines(self, now: float) -> list[Item]:
        """Return the items whose deadline has come; forgets those that ended before it."""
        due: list[Item] = []
        while self.deadlines and self.deadlines[0][0] <= now:
            item = self.items.get(heapq.heappop(self.deadlines)[1])
            if item is not None:
                due.append(item)
        if len(self.deadlines) > 2 * len(self.items) + 64:  # mostly of jobs that ended long before
            self.deadlines = [entry for entry in self.deadlines if entry[1] in self.items]
            heapq.heapify(self.deadlines)
        return due

    def _close(self, run: Run, now: float) -> None:
        replica = run.replica
        was_head = replica.head() is run
        replica.runs.remove(run)
        task = self.tasks[run.task]
        task.runs_out -= 1
        task.last_run_at = now
        self.foresee(replica, now)
        if was_head:
            replica.restart(now)


def keep_checkpoint(item: Item, transition: Transition) -> Transition:
    """Return the transition with the newest checkpoint of the attempt, which may not be stored yet; the end
    of a job needs none."""
    if item.checkpoint is None or transition.state in FINAL:
        return transition
    return transition._replace(checkpoint=item.checkpoint)
