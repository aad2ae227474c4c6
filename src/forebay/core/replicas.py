"""Item, Run, Replica: a Dispatcher's books about what each child holds."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from forebay.core.actions import KillReason
from forebay.core.breaker import Permit
from forebay.core.job import Lease

WAY_LEAST_S = 0.0002  # between two runs: more, and the second one was not there when the first one ended
WAY_MAX_S = 0.025  # a stall of the machine is no way
WAY_GAIN = 0.2
WAY_FADE = 0.998  # of a run that was there in time: the way may be shorter by now


class Traces(NamedTuple):
    """What is known of what a dead child ran, where anything is."""

    tag: int | None = None  # the single item that ran then
    idle: bool = False  # nothing ran: what it had been sent goes back untouched
    arrived: int | None = None  # the last run that it had taken in; those behind it cannot have begun


UNKNOWN = Traces()


class Item:
    """One leased job in hand, known to the child by its tag."""

    __slots__ = (
        "cancel_by", "checkpoint", "dropped", "force", "held_at", "lease", "level", "permit", "progress",
        "run", "tag", "until",
    )  # fmt: skip

    def __init__(self, tag: int, lease: Lease, now: float) -> None:
        self.tag = tag
        self.lease = lease
        self.until = lease.until
        self.held_at = now
        self.run: Run | None = None
        self.level = 0  # at which it was last sent
        self.cancel_by: float | None = None  # cancelled; forced at this instant
        self.force: KillReason | None = None  # mates were asked back; the child is killed for it next
        self.dropped = False  # settled or lost already: its result will be ignored
        self.permit: Permit | None = None  # of the task's breaker, where it has one
        self.progress: bytes | None = None  # not stored yet
        self.checkpoint: bytes | None = None  # the newest of this attempt

    def ran_as(self) -> Lease:
        """Return its lease; once it was sent to a replica, with that one's name as the worker."""
        if self.run is None or not self.run.replica.name:
            return self.lease
        return self.lease._replace(worker=self.run.replica.name)


class Run:
    """What was sent to a replica in one piece."""

    __slots__ = (
        "alone", "busy_s", "id", "items", "level", "likely_s", "overran", "parallel", "replica", "sent",
        "sent_at", "singles", "size", "size_b", "started_at", "task",
    )  # fmt: skip

    def __init__(
        self, run: int, task: str, replica: "Replica", *, singles: bool, parallel: bool, alone: bool
    ) -> None:
        self.id = run
        self.task = task
        self.replica = replica
        self.items: dict[int, Item] = {}  # unfinished, in order
        self.sent: Sequence[tuple[int, Lease]] = ()  # all of them, by tag
        self.singles = singles
        self.parallel = parallel  # its items run beside each other and beside other runs (async handlers)
        self.alone = alone
        self.level = 0  # the variant of the task that runs it
        self.size = 0
        self.size_b = 0  # of the inputs, as they were sent
        self.busy_s = 0.0  # inside handlers, as the child says; 0 when it does not know
        self.likely_s: float | None = None  # so long, where none of its size was seen: else as measured
        self.sent_at = 0.0
        self.started_at: float | None = None
        self.overran = False  # all of it took much longer than expected, and what was left was asked back


class Shut(NamedTuple):
    """Why an upstream takes no calls, since when, and when it may take some again at the earliest; `sure`:
    it does then."""

    since: float
    opens_at: float
    why: str  # for people
    sure: bool = False


class Replica:
    """One child and the runs it has. Runs that are not parallel run one after another."""

    __slots__ = (
        "busy_until", "calls_found", "calls_max", "failures", "has_worked", "id", "items_done", "kill",
        "kill_tag", "killed_at", "late", "name", "retiring", "runs", "shut", "since", "way_s",
    )  # fmt: skip

    def __init__(self, replica: int, name: str = "", calls_max: int | None = None) -> None:
        self.id = replica
        self.name = name  # as people know it
        self.runs: deque[Run] = deque()
        self.since = 0.0  # when what the head runs now started, as far as we know
        self.busy_until = 0.0  # when all its sequential runs are expected to be done; infinity: unknown
        self.late = False  # its head takes much longer than expected: nothing is planned on it
        self.calls_max = calls_max  # of an upstream: beside each other, where that is less than the task says
        self.calls_found = calls_max or None  # the same, but while it pauses what it was before
        self.shut: Shut | None = None  # of an upstream, while it takes no calls
        self.way_s = 0.0  # measured: what is said to it and back takes so long, besides the work itself
        self.items_done = 0
        self.has_worked = False  # some item succeeded here
        self.failures = 0  # in a row since then, of errors that another process might not have
        self.kill: KillReason | None = None  # we killed it, for this
        self.kill_tag: int | None = None
        self.killed_at = 0.0
        self.retiring = False

    @property
    def open(self) -> bool:
        """Whether it may be given work."""
        return self.kill is None and not self.retiring

    def limit_calls(self, calls_max: int) -> None:
        """It takes so many calls beside each other from now on, 0 for none."""
        self.calls_max = calls_max
        self.calls_found = calls_max or self.calls_found

    def beside(self, concurrency: int) -> int:
        """Return how many items of a task run here at once: of an upstream what was found for it."""
        return concurrency if self.calls_found is None else min(self.calls_found, concurrency)

    def heard(self, run: Run, now: float) -> None:
        """It did a run: learn how long the way there and back takes, where it did not wait behind another."""
        if run.started_at is None or run.busy_s <= 0 or run.parallel:
            return
        if now - run.started_at - run.busy_s > WAY_LEAST_S:
            away_s = min(WAY_MAX_S, max(0.0, now - run.sent_at - run.busy_s))
            self.way_s += WAY_GAIN * (away_s - self.way_s)
        else:
            self.way_s *= WAY_FADE

    def head(self) -> Run | None:
        """Return the sequential run that is being worked on, None when there is none."""
        for run in self.runs:
            if not run.parallel:
                return run
        return None

    def serves_requests(self) -> bool:
        """Say whether somebody waits for what it runs, or for what is sent to it."""
        return any(run.sent and run.sent[0][1].request for run in self.runs)

    def restart(self, now: float) -> None:
        """Its head began something new: the next item, another pass, or the next run became the head."""
        self.since = now
        self.late = False
        head = self.head()
        if head is not None and head.started_at is None:
            head.started_at = now

    def count(self, *, worked: bool, unsure: bool) -> None:
        """Take in how an item ended here; `unsure` is a failure that may be the process's fault."""
        if worked:
            self.has_worked = True
            self.failures = 0
        elif unsure and self.has_worked:
            self.failures += 1

    def unfinished(self) -> int:
        """Return the items it has not finished, wanted or not."""
        return sum(len(run.items) for run in self.runs)

    def wanted(self) -> int:
        """Return the items it has not finished and whose outcome still matters."""
        return sum(not item.dropped for run in self.runs for item in run.items.values())

    def has_unstarted(self) -> bool:
        """Say whether something waits behind what its head runs now."""
        head = self.head()
        if head is None:
            return False
        return (head.singles and len(head.items) > 1) or self.runs[-1] is not head
