"""Book: the synchronous verbs of a store of jobs; what the Ledger means, every engine must equal.

The simulator drives a Book directly. `ports.broker.Broker` is the same contract behind `async def`.
`now` never has to grow between calls; a Book clamps a smaller one to the largest it has seen.

A final job is past retention from finished_at + the seconds of its Retention on (inclusive): dead letters
have their own, and tasks may. From then on `get`, `find`, `cancel` and `redrive` no longer know it, whether
or not it was purged yet. Its id and idempotency key stay taken and `Depth.dead` counts it until it is purged.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.core.crons import CronBook
from forebay.core.fairness import Share
from forebay.core.job import (
    Amendment,
    AmendVerdict,
    CancelVerdict,
    Claim,
    Depth,
    Hold,
    Job,
    JobRecord,
    Lease,
    Page,
    Query,
    Receipt,
    Sweep,
    Transition,
)
from forebay.core.outbox import OutboxBook
from forebay.core.quarantine import QuarantineBook
from forebay.core.retention import Retention
from forebay.core.tenant import Held
from forebay.core.turns import Order


class Book(Protocol):
    """A store of jobs that decides nothing: it stores what core decided, all or nothing.

    Whatever makes a job with a callback_url final (commit, cancel, sweep) owes its delivery in the same step:
    WAITING, due at the end's instant. Purging the job removes it.
    """

    @property
    def outbox(self) -> OutboxBook:
        """The deliveries that callbacks are owed."""
        ...

    @property
    def crons(self) -> CronBook:
        """What is remembered of cron entries."""
        ...

    @property
    def quarantine(self) -> QuarantineBook:
        """The inputs that killed workers, as the charges of committed transitions say, durably."""
        ...

    def new_id(self, now: float) -> str:
        """Return an id for one new job: 128 bits, uuid7 form (36 characters, lower case, hyphens),
        time-ordered, never given twice.
        """
        ...

    def enqueue(self, jobs: Sequence[Job], *, now: float) -> list[Receipt]:
        """Store each job once; answer in order.

        A job whose (tenant, idempotency_key) is known: REPLAYED when its body_hash is equal, else
        CONFLICT. A job whose id is known: the same by id; the key is asked first. Holds inside one call
        too. Else a job with a fingerprint that was not redriven: JOINED when the newest job with the same
        fingerprint has not ended and nobody asked for its cancel, or has succeeded and finished_at +
        its cache_s > now; the receipt names that job, and the key, if any, means that job from then on (a
        repeat is REPLAYED by the body_hash it was joined with). `run_at` in the future (run_at > now)
        makes a stored job scheduled, else it is queued; ready_at = run_at.
        NOT promised: that an exception means "not stored".
        """
        ...

    def recall(self, jobs: Sequence[Job], *, now: float) -> list[Receipt | None]:
        """Return what `enqueue` would answer for each job whose (tenant, idempotency_key) is known; None for
        one whose key is not, or that has none. Stores nothing, and asks for no room.
        """
        ...

    def lease(self, task: str, *, limit: int, lease_s: float, worker: str, now: float) -> list[Lease]:
        """Grant up to `limit` ready jobs of `task`, most urgent first.

        Order between priorities and tenants: core.turns. Of one tenant (ready_at + priority * AGEING_S, id),
        or by deadline where `set_order` said so (core.turns.order_at). Never grants a job while an earlier
        open one has the same task, tenant and ordering key (core.chains), nor one of a tenant that runs as
        many as its share allows. Counts the attempt, grows the fence, sets
        lease_until = now + lease_s, started_at = now and the worker, and forgets old progress, in the same
        step. Worker, started_at, ready_at and error stay readable after the lease ended. Never grants a
        job with expires_at <= now or deadline_at <= now (the sweep ends those), nor any job of a paused
        task. `limit` <= 0 grants none.
        """
        ...

    def extend(self, claims: Sequence[Claim], *, lease_s: float, now: float) -> list[Hold]:
        """Renew leases and store progress; answer in order.

        A renewed lease ends at now + lease_s. LOST when the fence is not current, the job is not running,
        or the lease has lapsed (lease_until <= now): a renewal cannot raise the dead. CANCEL renews too.
        Claims without progress keep what was stored before.
        """
        ...

    def commit(self, transitions: Sequence[Transition], *, now: float) -> list[bool]:
        """Apply each transition whose fence is current and whose job is running; answer in order.

        A lapsed lease may still commit while nobody took the job over. False changes nothing.
        Everything in the transition is stored as it is (a final job: finished_at = at, its ready_at stays),
        lease_until and progress become None, and its worker, where it names one, takes the place of the
        grant's. A transition without a checkpoint keeps what was stored before; a final one forgets it.
        Its charge is counted in the same step (core.quarantine.Inputs.charged).
        One exception: any transition of a job whose cancel was
        requested is stored as settle.cancelled_instead(transition, its lease): who was told REQUESTED
        finds it cancelled, whatever its holder made of it meanwhile.
        """
        ...

    def cancel(self, ids: Sequence[str], *, now: float) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order.

        A cancelled waiting job gets finished_at = now and error = settle.waiting_error(CANCELLED, attempt). A
        running one keeps the time of the first request (cancel_at) until it runs no more.
        """
        ...

    def sweep(self, *, limit: int, now: float) -> Sweep:
        """Do what time alone decides, at most `limit` jobs of each kind; boundaries are inclusive.

        First expires waiting jobs with expires_at <= now or deadline_at <= now, earliest end first:
        finished_at = now, error = settle.waiting_error(settle.waiting_end(job), attempt). Then promotes
        scheduled and retrying jobs with ready_at <= now (their ready_at stays), earliest first. Returns
        running jobs with lease_until <= now, unchanged, earliest first, for a decision by core/settle.
        Ids break ties.
        """
        ...

    def get(self, job_id: str, *, now: float) -> JobRecord | None:
        """Return the job, or None when it is unknown or past its retention."""
        ...

    def was_purged(self, job_id: str, *, tenant: str | None = None, now: float) -> bool:
        """Say whether the id was given out once and its record is past retention; with a tenant, whether it
        was a job of that tenant besides. May say False when the store cannot know any more: of the tenants
        with a name it remembers a bounded number of jobs, those removed last.
        """
        ...

    def find(self, query: Query, *, now: float) -> Page:
        """List jobs newest first (by id). Jobs made after the first page never appear on later ones.

        A page may be short, even empty, and still have a next one: only `next_after` None is the end.
        """
        ...

    def depth(self, task: str, *, now: float) -> Depth:
        """Return how full one task's queue is; zeros for a task never seen."""
        ...

    def holding(self, tenant: str, *, now: float) -> Held:
        """Return the open jobs of one tenant and their bytes, over all tasks."""
        ...

    def tasks(self) -> list[str]:
        """Return the names of tasks that have jobs, are paused or drain, sorted."""
        ...

    def position(self, job_id: str, *, now: float) -> int | None:
        """Return the job's place among the queued jobs of its task, 1 is next; None when not queued.

        Exact with one tenant and no ordering keys. Beside other tenants an estimate: what goes before it
        when everybody gets a share and all jobs take equally long. A job that waits for an earlier one of
        its ordering key has at least those of its key before it.
        """
        ...

    def waits_for(self, job_id: str, *, now: float) -> str | None:
        """Return the id of the earlier job of the same ordering key that a waiting job waits for, or None."""
        ...

    def amend(self, job_id: str, change: Amendment, *, now: float) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task with its ready time and its end.

        Whether the task exists and takes the payload was asked before. With another task the version is
        that of the amendment and the fingerprint is gone. In its new task an ordering key counts anew.
        """
        ...

    def set_shares(self, shares: Mapping[str, Share]) -> None:
        """Give tenants their weights and bounds, for all tasks; those not named have weight 1 and no bound.
        Not stored: whoever opens a store says it again. Raises ValueError for a share that makes no sense.
        """
        ...

    def set_retention(self, by_task: Mapping[str, Retention]) -> None:
        """Keep the ended jobs of some tasks for another time than those of all; those not named have that of
        all. Holds for jobs that have ended too. Not stored: whoever opens a store says it again."""
        ...

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs: at most `others_max` jobs of the task that are less urgent than
        core.reserve.INTERACTIVE run at once; None for any number. Not stored."""
        ...

    def set_order(self, task: str, order: Order) -> None:
        """Say what the order of a task's jobs goes by inside a priority. Not stored. O(jobs that wait)."""
        ...

    def pause(self, task: str, *, paused: bool, now: float) -> None:
        """Stop or resume granting leases of one task. Survives a restart. Submissions still enter."""
        ...

    def drain(self, task: str, *, draining: bool, now: float) -> None:
        """Mark one task as taking no new submissions, or take the mark away; `depth` tells. Survives a
        restart. Whoever admits obeys it: the store itself still takes what it is given, and grants.
        """
        ...

    def purge(self, ids: Sequence[str] | None = None, *, limit: int, now: float) -> int:
        """Remove final jobs: the named ones, or (None) up to `limit` past retention, longest past first.

        Returns how many went. Open jobs are never removed. `limit` does not bound the named ones.
        """
        ...

    def held(self, blobs: Sequence[str], *, now: float) -> list[bool]:
        """Say of each blob whether a stored job names it, in its payload, output or checkpoint; in order.

        A job counts from the step that stores it, or its output, to the step that purges it; its checkpoint
        to the step that stores another one, or ends the job.
        """
        ...

    def edit(self, job_id: str, payload: bytes, *, now: float) -> bool:
        """Keep a payload beside that of a dead job, in place of one kept before: `edited` of its record, for
        whoever redrives it. The job itself stays as it was. False, and nothing kept, when there is no such
        dead job. Blobs that it names are held like those of the job.
        """
        ...

    def redrive(self, job_id: str, job: Job, *, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`, linked both ways in one step.

        The engine sets redriven_from itself. None when there is no such dead job. REPLAYED with the
        successor's id when it has one already (a purged successor counts as none). CONFLICT or REPLAYED
        as in `enqueue`, with nothing stored or linked, when the id or the key of `job` is taken.
        """
        ...
