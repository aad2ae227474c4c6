"""What a Dispatcher is told and what it wants done: plain records."""

from enum import Enum
from typing import NamedTuple

from forebay.core.batching import Trigger
from forebay.core.job import Charge, Claim, Job, JobError, Lease, Transition


class Outcome(NamedTuple):
    """How the handler's call for one item ended: `output`, or `error` when there is none."""

    tag: int
    output: bytes | None
    error: JobError | None = None
    permanent: bool = False
    after_s: float | None = None  # the handler asked to wait this long
    # The error was seen in company only, and its mates succeeded without it: believe it when it has
    # been run alone.
    alone: bool = False
    ignored: bool = False  # the error says nothing about the health of what was called
    uncharged: bool = False  # what it needs could not be asked at all: again after `after_s`, not charged

    @property
    def unsure(self) -> bool:
        """Whether it is a failure that may be the process's fault: one that nobody meant, seen alone."""
        failed = self.error is not None
        return failed and not self.permanent and self.after_s is None and not self.alone


class KillReason(str, Enum):
    """Why the node kills a child on purpose."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DEADLINE = "deadline"
    STOP = "stop"  # the grace ended


class LeaseJobs(NamedTuple):
    """Lease up to `limit` jobs of `task`; answer with Dispatcher.leased."""

    task: str
    limit: int


class RunBatch(NamedTuple):
    """Send these to the replica. `singles`: independent calls in this order, else one batched call."""

    replica: int
    run: int
    task: str
    items: list[tuple[int, Lease]]  # (tag, lease)
    singles: bool
    trigger: Trigger
    level: int = 0  # the variant of the task that runs it; 0 is the task itself


class Commit(NamedTuple):
    """Store these; nothing to answer. `leases` are what they end, in the same order."""

    transitions: list[Transition]
    leases: list[Lease]


class ChargeInputs(NamedTuple):
    """Count what the ends of these say of their inputs: of requests, which no transition stores."""

    charges: list[tuple[Job, Charge, float]]  # what it ran, what is charged, when


class Renew(NamedTuple):
    """Extend these; answer with Dispatcher.held."""

    claims: list[Claim]
    tags: list[int]


class KillReplica(NamedTuple):
    """Kill the child now; answer with Dispatcher.replica_died when it is gone."""

    replica: int
    reason: KillReason
    name: str = ""  # of the replica
    task: str = ""  # what it works on
    job_ids: tuple[str, ...] = ()  # some of them


class StopReplica(NamedTuple):
    """The replica is retired and empty: stop it kindly; answer with Dispatcher.replica_died."""

    replica: int


class CancelItem(NamedTuple):
    """Ask the handler to stop working on this item; an unstarted one is given back."""

    replica: int
    tag: int


class GiveBack(NamedTuple):
    """Ask the replica for everything it has not started; answer with Dispatcher.returned."""

    replica: int


Action = (
    LeaseJobs | RunBatch | Commit | ChargeInputs | Renew | KillReplica | StopReplica | CancelItem | GiveBack
)


class Ran(NamedTuple):
    """A fact for meters and estimators: `items` of `task` kept one replica busy for `took_s`."""

    task: str
    items: int
    took_s: float
    size_b: int = 0  # of their inputs
    level: int = 0
