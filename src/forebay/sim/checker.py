"""Checker: the invariants of a job's life over what clients, the store and handlers saw.

It is fed facts one by one, in the order in which they became true, and raises BrokenError at the first that
cannot be. A simulated world feeds it every verb of the store; a real run feeds it client logs, records read
now and then, and the files that test handlers write. What was not fed is not checked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forebay.core.job import Job, JobRecord, Lease, Receipt, Transition, Verdict
from forebay.core.lifecycle import FINAL, TRANSITIONS, Event, State
from forebay.core.retry import DELAY_FLOOR_S, RetryPolicy
from forebay.sim.invariants import BrokenError
from forebay.sim.order import check_served

LATER_S = 2.5  # what a scripted handler asks to wait, beyond any cap

REFUNDED = (Event.RELEASED, Event.SUSPECTED, Event.DEFERRED)

REACHABLE: dict[State, frozenset[State]] = {}
for _state in State:
    _seen: set[State] = set()
    _todo = [_state]
    while _todo:
        for _next in TRANSITIONS[_todo.pop()].values():
            if _next not in _seen:
                _seen.add(_next)
                _todo.append(_next)
    REACHABLE[_state] = frozenset(_seen)


@dataclass(slots=True)
class Sight:
    """What is known of one job."""

    record: JobRecord
    produced: dict[int, bytes] = field(
        default_factory=lambda: dict[int, bytes]()
    )  # fence -> output of the handler
    deaths_seen: int = 0  # deaths of a process in which it ran alone
    cancelled_at: float | None = None


class Checker:
    """Holds the last known state of every job. All facts raise BrokenError when they cannot be."""

    def __init__(self) -> None:
        self.jobs: dict[str, Sight] = {}
        self.checks = 0
        self._sent: dict[int, tuple[str, str | None, bytes]] = {}  # request -> tenant, key, body
        self._keys: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._acknowledged: dict[str, None] = {}
        self._by_request: dict[int, str] = {}

    # -- clients -----------------------------------------------------------------------------------

    def sent(self, request: int, *, tenant: str, key: str | None, body: bytes) -> None:
        """A client sends this request, for the first time or again."""
        self._sent[request] = (tenant, key, body)

    def acknowledged(self, request: int, job_id: str) -> None:
        """A client was told that its request is this job."""
        before = self._by_request.setdefault(request, job_id)
        if before != job_id:
            raise BrokenError("S3", f"request {request} was {before} and now is {job_id}")
        self._acknowledged[job_id] = None
        self._one_key(request, job_id)

    def conflicted(self, request: int) -> None:
        """A client was told that its key is taken by another body."""
        tenant, key, body = self._sent[request]
        known = None if key is None else self._keys.get((tenant, key))
        if known is not None and known[1] == body:
            raise BrokenError("S3", f"request {request} equals the one that made {known[0]} and was refused")

    def stored(self, job: Job, receipt: Receipt, request: int | None = None) -> None:
        """The store answered a submission."""
        self.checks += 1
        if request is not None and request not in self._sent:
            raise BrokenError("S2", f"{job.id} comes from request {request}, which nobody sent")
        known = None
        if job.idempotency_key is not None:
            known = self._keys.get((job.tenant, job.idempotency_key))
        if receipt.verdict is Verdict.STORED:
            if known is not None:
                raise BrokenError("S3", f"{job.id} was stored though {known[0]} has its key")
            if job.idempotency_key is not None:
                self._keys[job.tenant, job.idempotency_key] = (job.id, job.body_hash)
            if request is not None:
                before = self._by_request.setdefault(request, job.id)
                if before != job.id:
                    raise BrokenError("S3", f"request {request} is {before} already, now also {job.id}")
        elif known is not None and receipt.job_id != known[0]:
            raise BrokenError("S3", f"the key of {job.id} is {known[0]}, the store said {receipt.job_id}")
        elif known is not None and (receipt.verdict is Verdict.REPLAYED) != (known[1] == job.body_hash):
            raise BrokenError("S3", f"{receipt.verdict.value} for the key of {known[0]}")

    # -- the store ---------------------------------------------------------------------------------

    def granted(self, lease: Lease, *, now: float) -> None:
        """The store granted a lease."""
        limit = lease.job.waits_until
        if limit is not None and limit <= now:
            raise BrokenError("X1", f"{lease.job.id} was granted at {now:.3f}, its time ended at {limit:.3f}")
        sight = self.jobs.get(lease.job.id)
        if sight is None:
            return
        standing = sight.record.standing
        if standing.state is State.RUNNING and standing.fence != lease.fence:
            raise BrokenError("L1", f"{lease.job.id} was granted while fence {standing.fence} holds it")
        if lease.fence <= standing.fence and standing.state is not State.RUNNING:
            raise BrokenError("L2", f"{lease.job.id} got fence {lease.fence} after {standing.fence}")
        if standing.state is not State.RUNNING and lease.attempt != standing.attempt + 1:
            raise BrokenError("R1", f"{lease.job.id} got attempt {lease.attempt} after {standing.attempt}")

    def committed(self, transition: Transition, *, applied: bool, now: float, policy: RetryPolicy) -> None:
        """The store answered a commit; what it knew before must still be what `jobs` says."""
        self.checks += 1
        sight = self.jobs.get(transition.job_id)
        if sight is None:
            return
        standing = sight.record.standing
        holds = standing.state is State.RUNNING and standing.fence == transition.fence
        if applied != holds:
            broken = "T1" if standing.state in FINAL else "L3"
            said = "accepted" if applied else "refused"
            raise BrokenError(
                broken,
                f"{transition.job_id} is {standing.state.value} with fence {standing.fence}; a commit of "
                f"{transition.event.value} with fence {transition.fence} was {said}",
            )
        if applied:
            self._decided(sight, transition, now, policy)

    def renewed(self, job_id: str, fence: int, *, held: bool, now: float) -> None:
        """The store answered a renewal; `jobs` still says what it knew before."""
        self.checks += 1
        sight = self.jobs.get(job_id)
        if sight is None:
            return
        standing = sight.record.standing
        current = standing.state is State.RUNNING and standing.fence == fence
        alive = current and standing.lease_until is not None and standing.lease_until > now
        if held and not current:
            raise BrokenError("L3", f"{job_id} was renewed with fence {fence}, it is {standing.fence}")
        if held and not alive:
            raise BrokenError("L4", f"{job_id} was renewed at {now:.3f} after {standing.lease_until}")
        if not held and alive:
            raise BrokenError("L1", f"{job_id} was refused a renewal of a live lease")

    def seen(self, record: JobRecord, *, now: float, exact: bool = False) -> None:
        """A record was read. `exact`: not more than one change happened since the last sight."""
        self.checks += 1
        job_id = record.job.id
        sight = self.jobs.get(job_id)
        if sight is None:
            self.jobs[job_id] = Sight(record)
            _sound(record)
            return
        before, after = sight.record.standing, record.standing
        if before == after:
            return
        if record.job != sight.record.job:
            raise BrokenError("T1", f"{job_id} is another job than it was")
        if before.state in FINAL:
            raise BrokenError("T1", f"{job_id} was {_told(before)} and is {_told(after)}")
        _moved(sight, record, now=now, exact=exact)
        _sound(record)
        sight.record = record
        if after.state is State.CANCELLED:
            sight.cancelled_at = now
        if after.state is State.SUCCEEDED:
            produced = sight.produced.get(after.fence)
            if sight.produced and produced != after.output:
                raise BrokenError("R3", f"{job_id} has an output that its holder {after.fence} did not make")

    def gone(self, job_id: str) -> None:
        """A crash took the record; that is allowed only while nobody was told of it."""
        if job_id in self._acknowledged:
            raise BrokenError("S1", f"{job_id} was acknowledged and a crash took it")
        del self.jobs[job_id]
        self._keys = {key: known for key, known in self._keys.items() if known[0] != job_id}
        self._by_request = {one: known for one, known in self._by_request.items() if known != job_id}

    def queue_served(
        self, task: str, leases: list[Lease], *, limit: int, now: float, ageing_s: float
    ) -> None:
        """The store answered a lease; `jobs` still says what waited then."""
        records = [sight.record for sight in self.jobs.values() if sight.record.job.task == task]
        check_served(records, leases, limit=limit, now=now, ageing_s=ageing_s)

    # -- handlers ----------------------------------------------------------------------------------

    def started(self, leases: Iterable[Lease], *, beside: int, now: float, strict: bool = True) -> None:
        """A process began to work on these together, with `beside` other items in it.

        `strict` False: its node was paused, cut off or misled about the time, so it may be late to know.
        """
        leases = list(leases)
        for lease in leases:
            if lease.suspect and (len(leases) > 1 or beside):
                raise BrokenError("Q1", f"{lease.job.id} is suspect and ran with {len(leases) - 1 + beside}")
            sight = self.jobs.get(lease.job.id)
            if sight is None or not strict:
                continue
            if sight.cancelled_at is not None and sight.cancelled_at < now:
                raise BrokenError("X2", f"{lease.job.id} started after it was cancelled")
            deadline_at = lease.job.deadline_at
            if deadline_at is not None and deadline_at < now:
                raise BrokenError(
                    "X1", f"{lease.job.id} started {now - deadline_at:.3f} s after its deadline"
                )

    def produced(self, job_id: str, fence: int, output: bytes) -> None:
        """A handler made this output under this fence."""
        if job_id in self.jobs:
            self.jobs[job_id].produced[fence] = output

    def crashed(self, job_ids: list[str]) -> None:
        """A process died with these running in it."""
        if len(job_ids) == 1 and job_ids[0] in self.jobs:
            self.jobs[job_ids[0]].deaths_seen += 1

    # -- the end -----------------------------------------------------------------------------------

    def all_there(self, read: Callable[[str], JobRecord | None], *, now: float) -> None:
        """Look at every known job again: none is lost, none changed unseen."""
        for job_id in [*self._acknowledged, *(one for one in self.jobs if one not in self._acknowledged)]:
            record = read(job_id)
            if record is None:
                raise BrokenError("S1", f"{job_id} was acknowledged and is gone")
            self.seen(record, now=now)

    def all_ended(self) -> None:
        """Everything must be final now."""
        for job_id, sight in self.jobs.items():
            if sight.record.standing.state not in FINAL:
                raise BrokenError("T3", f"{job_id} is still {sight.record.standing.state.value}")

    def adds_up(self, *, kept: dict[State, int], stored: int) -> None:
        """Counts by state as the store keeps them, against what was seen."""
        counted: dict[State, int] = {}
        for sight in self.jobs.values():
            state = sight.record.standing.state
            counted[state] = counted.get(state, 0) + 1
        for state, count in kept.items():
            if counted.get(state, 0) != count:
                raise BrokenError("O1", f"{count} {state.value} are kept, {counted.get(state, 0)} were seen")
        if stored != len(self.jobs):
            raise BrokenError("O1", f"{stored} were stored, {len(self.jobs)} were seen")

    def _one_key(self, request: int, job_id: str) -> None:
        tenant, key, body = self._sent.get(request, ("", None, b""))
        if key is None:
            return
        known = self._keys.setdefault((tenant, key), (job_id, body))
        if known[0] != job_id:
            raise BrokenError("S3", f"key {key} is {known[0]} and {job_id}")

    def _decided(self, sight: Sight, transition: Transition, now: float, policy: RetryPolicy) -> None:
        standing, job = sight.record.standing, sight.record.job
        if transition.event is Event.LOST and (standing.lease_until or 0.0) > now:
            raise BrokenError("L1", f"{job.id} was taken at {now:.3f}, its lease ends {standing.lease_until}")
        if transition.deaths > max(sight.deaths_seen, standing.deaths):
            raise BrokenError("R1", f"{job.id} pays for a death that it did not see alone")
        if transition.event in REFUNDED and transition.attempt != standing.attempt - 1:
            raise BrokenError("R1", f"{job.id} pays for a hand-back ({transition.event.value})")
        if transition.event is Event.FAILED:
            wait_s = transition.ready_at - transition.at
            asked_s = LATER_S if transition.error is not None and transition.error.code == "later" else 0.0
            longest = max(policy.cap_s, DELAY_FLOOR_S, asked_s)
            if not min(DELAY_FLOOR_S, policy.cap_s) - 1e-6 <= wait_s <= longest + 1e-6:
                raise BrokenError("R2", f"{job.id} waits {wait_s:.3f} s, {longest:.3f} at most")


def _told(standing: object) -> str:
    return repr(standing)[:300]


def _moved(sight: Sight, record: JobRecord, *, now: float, exact: bool) -> None:
    before, after, job_id = sight.record.standing, record.standing, record.job.id
    same = before.state is after.state
    allowed = TRANSITIONS[before.state].values() if exact else REACHABLE[before.state]
    if not same and after.state not in allowed:
        raise BrokenError("T2", f"{job_id} went from {before.state.value} to {after.state.value}")
    if after.fence < before.fence:
        raise BrokenError("L2", f"{job_id} went from fence {before.fence} to {after.fence}")
    if not exact:
        return
    granted = not same and after.state is State.RUNNING
    if same and after.fence != before.fence:
        raise BrokenError("L1", f"{job_id} is held by {after.fence}, and {before.fence} had not ended")
    if after.fence != before.fence + granted:
        raise BrokenError("L2", f"{job_id} went from fence {before.fence} to {after.fence}")
    if granted and after.attempt != before.attempt + 1:
        raise BrokenError("R1", f"{job_id} was granted and went from {before.attempt} to {after.attempt}")
    limit = record.job.waits_until
    waited = before.state is not State.RUNNING and after.state is State.EXPIRED
    if waited and (limit is None or limit > now):
        raise BrokenError("X1", f"{job_id} expired at {now:.3f}, before {limit}")


def _sound(record: JobRecord) -> None:
    job, standing = record.job, record.standing
    if standing.attempt > max(1, job.attempts_max):
        raise BrokenError("R1", f"{job.id} had {standing.attempt} attempts of {job.attempts_max}")
    if standing.state is State.DEAD and (standing.error is None or not standing.attempts):
        raise BrokenError("D1", f"{job.id} is dead without a reason")
    if (standing.lease_until is not None) != (standing.state is State.RUNNING):
        raise BrokenError("L1", f"{job.id} is {standing.state.value} with lease {standing.lease_until}")
    if (standing.output is not None) != (standing.state is State.SUCCEEDED):
        raise BrokenError("R3", f"{job.id} is {standing.state.value} and its output is {standing.output!r}")
