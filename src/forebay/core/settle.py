"""How a lease ends: complete, fail, die, suspect, lose, release, defer, expire, cancel -> Transition.

The only maker of Transitions. Engines store them, nobody else decides.

Charging: a grant is charged when leased. `release`, `defer` and `suspect` refund it and count against
`releases_max` instead, so no job can circle for ever. `die` and `lose` keep the charge.
"""

from dataclasses import dataclass, field

from forebay.core.evidence import forgotten
from forebay.core.job import ATTEMPTS_KEPT, Attempt, Charge, Job, JobError, Lease, Transition
from forebay.core.lifecycle import FINAL, Event, State, next_state
from forebay.core.quarantine import DeadlyInput, fingerprint_of, quarantined
from forebay.core.retry import DELAY_FLOOR_S, RetryPolicy

VERSION_WAIT_MIN_S, VERSION_WAIT_MAX_S = 2.0, 300.0  # between two looks for a worker with its version
PUT_OFF_MIN_S, PUT_OFF_MAX_S = 0.1, 60.0  # between two looks whether what a job needs can be asked
MESSAGE_LENGTH_MAX = 4_000  # characters of an error kept in the record
_COMPLETED, _SUCCEEDED = Event.COMPLETED, State.SUCCEEDED  # at hand: looking an enum's member up is slow


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlePolicy:
    """What a task allows before its job becomes a dead letter. attempts_max stands in the job itself."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    deaths_max: int = 2  # charged deaths of the process; the last one makes the dead letter
    releases_max: int = 100  # uncharged hand-backs
    # Charged deaths over all jobs with one input that put it in quarantine. None: one more than a single job
    # may have, so that it takes a second job. 0: never.
    quarantine_deaths: int | None = None

    def __post_init__(self) -> None:
        assert self.deaths_max >= 1 and self.releases_max >= 1
        assert self.quarantine_deaths is None or self.quarantine_deaths >= 0

    @property
    def condemns_at(self) -> int:
        """Deaths at which an input goes into quarantine, 0 for never."""
        return self.deaths_max + 1 if self.quarantine_deaths is None else self.quarantine_deaths


def complete(lease: Lease, *, output: bytes, now: float, worker: str = "") -> Transition:
    """End the job with its result. `worker` is the replica that made it, where that is known."""
    # The path of nearly every job: built in one step, and equal to what _final would build.
    done = Transition(
        lease.job.id,
        lease.fence,
        _COMPLETED,
        _SUCCEEDED,
        now,
        lease.attempt,
        lease.deaths,
        lease.releases,
        False,
        0.0,
        output,
        None,
        forgotten(lease) if lease.attempts else (),
        worker or lease.worker,
    )
    return done if not lease.deaths else done._replace(charge=Charge(fingerprint_of(lease.job), 0))


def fail(
    lease: Lease,
    *,
    error: JobError,
    policy: SettlePolicy,
    now: float,
    jitter: float,
    permanent: bool = False,
    after_s: float | None = None,
) -> Transition:
    """End a failed attempt: retry after a backoff, or dead when permanent or attempts are used up."""
    if permanent or lease.attempt >= lease.job.attempts_max:
        return _final(lease, Event.EXHAUSTED, now=now, error=error)
    delay_s = policy.retry.delay_s(attempt=lease.attempt, jitter=jitter, after_s=after_s)
    return _open(lease, Event.FAILED, now=now, error=error, ready_at=now + delay_s, suspect=lease.suspect)


def die(lease: Lease, *, error: JobError, policy: SettlePolicy, now: float, jitter: float) -> Transition:
    """End an attempt whose process died, or had to be killed, while this job ran alone in it.

    Charged, and charged as a death; on a first attempt with no backoff, else with that of the attempt: the
    job goes on alone, and `deaths_max` deaths make it a dead letter whose cause is its own (`error`),
    whatever attempts are left.
    """
    deaths = lease.deaths + 1
    charge = Charge(fingerprint_of(lease.job), policy.condemns_at) if policy.condemns_at else None
    if deaths >= policy.deaths_max or lease.attempt >= lease.job.attempts_max:
        return _final(lease, Event.EXHAUSTED, now=now, error=error, deaths=deaths)._replace(charge=charge)
    # A first attempt may have died of the machine, and work in flight should not wait for it. After that,
    # or after another failure, the job itself is the likelier cause.
    delay_s = (
        DELAY_FLOOR_S if lease.attempt == 1 else policy.retry.delay_s(attempt=lease.attempt, jitter=jitter)
    )
    step = _open(
        lease, Event.FAILED, now=now, error=error, ready_at=now + delay_s, suspect=True, deaths=deaths
    )
    return step._replace(charge=charge)


def suspect(lease: Lease, *, error: JobError, policy: SettlePolicy, now: float) -> Transition:
    """Hand back a member of a batch whose process died: refunded, no backoff, alone next time."""
    return _hand_back(lease, Event.SUSPECTED, policy=policy, now=now, suspect=True, error=error)


def lose(lease: Lease, *, error: JobError, now: float) -> Transition:
    """End an attempt whose whole node died or whose lease lapsed: charged, no backoff, alone next time."""
    error = error._replace(attempt=lease.attempt)
    if lease.attempt >= lease.job.attempts_max:
        return _final(lease, Event.EXHAUSTED, now=now, error=error)
    return _open(lease, Event.LOST, now=now, error=error, ready_at=lease.ready_at, suspect=True)


def release(lease: Lease, *, policy: SettlePolicy, now: float) -> Transition:
    """Hand the job back at once, untouched: the attempt is refunded, its place in line is kept."""
    return _hand_back(lease, Event.RELEASED, policy=policy, now=now, suspect=lease.suspect, error=None)


def defer(
    lease: Lease, *, until: float, policy: SettlePolicy, now: float, error: JobError | None = None
) -> Transition:
    """Hand the job back until a time: refunded. `error`: what it met."""
    capped = _capped(lease, policy=policy, now=now)
    if capped is not None:
        return capped
    return _open(
        lease,
        Event.DEFERRED,
        now=now,
        error=error,
        ready_at=until,
        suspect=lease.suspect,
        refund=True,
    )


def await_version(lease: Lease, *, version: str, now: float) -> Transition:
    """Hand the job back for a worker that serves its version: nothing is charged or counted, its ttl still
    ends it. Looked at again the later the longer it is there, so that thousands of them cost little.
    """
    text = f"waits for a worker with version {lease.job.version}; this one has {version}"
    error = JobError("version_waits", text, "", lease.attempt)
    wait_s = min(VERSION_WAIT_MAX_S, max(VERSION_WAIT_MIN_S, (now - lease.job.run_at) / 10))
    return _untried(lease, error, wait_s, now)


def put_off(lease: Lease, *, error: JobError, after_s: float, now: float) -> Transition:
    """Hand a job back because what it needs could not be asked (busy, away, its breaker open): nothing is
    charged or counted, its ttl still ends it. It waits `after_s`, longer the longer it has waited already,
    so that a short line does not hammer.
    """
    wait_s = min(PUT_OFF_MAX_S, max(PUT_OFF_MIN_S, after_s, (now - lease.job.run_at) / 10))
    return _untried(lease, error, wait_s, now)


def refuse_version(lease: Lease, *, version: str, now: float) -> Transition:
    """End a job whose version no worker has any more."""
    text = f"accepted for version {lease.job.version}; the worker has {version}"
    return _final(lease, Event.EXHAUSTED, now=now, error=JobError("version_gone", text, "", lease.attempt))


def bar(lease: Lease, deadly: DeadlyInput, *, now: float) -> Transition:
    """End a job whose input is in quarantine, before it costs another worker."""
    return _final(lease, Event.EXHAUSTED, now=now, error=quarantined(deadly, attempt=lease.attempt))


def expire(lease: Lease, *, now: float) -> Transition:
    """End a running job whose deadline passed."""
    error = JobError("deadline_passed", "the deadline passed while the job ran", "", lease.attempt)
    return _final(lease, Event.DEADLINE_PASSED, now=now, error=error)


def cancel(lease: Lease, *, now: float) -> Transition:
    """End a running job that somebody cancelled."""
    error = JobError("cancelled", "cancelled while it ran", "", lease.attempt)
    return _final(lease, Event.CANCELLED, now=now, error=error)


def joinable(state: State, cancel_requested: bool, finished_at: float | None, job: Job, now: float) -> bool:
    """Say whether an equal submission may be answered with this job: it will do the work, or has done it
    no longer than `job.cache_s` ago."""
    if state is State.SUCCEEDED:
        return finished_at is not None and finished_at + job.cache_s > now
    return state not in FINAL and not cancel_requested


def cancelled_instead(transition: Transition, lease: Lease) -> Transition:
    """Turn any other end of an attempt into the end of a job that somebody wants cancelled.

    For engines, inside `commit`: only they know of a cancel that came while the holder was deciding, and
    whoever was told that the job will be cancelled must not find it finished, dead or in line again. What
    the holder decided is kept as the attempt's outcome; a result is not kept.
    """
    if transition.event is Event.CANCELLED:
        return transition
    if transition.event is Event.COMPLETED:
        return cancel(lease._replace(worker=transition.worker or lease.worker), now=transition.at)
    return transition._replace(
        event=Event.CANCELLED,
        state=next_state(State.RUNNING, Event.CANCELLED),
        suspect=False,
        ready_at=0.0,
        error=JobError("cancelled", "cancelled while it ran", "", lease.attempt),
    )


def waiting_end(job: Job) -> Event:
    """Say which of the two limits ends a job that waits too long: the earlier, the deadline on a tie."""
    deadline_first = job.deadline_at is not None and job.deadline_at == job.waits_until
    return Event.DEADLINE_PASSED if deadline_first else Event.TTL_PASSED


def waiting_error(event: Event, attempt: int) -> JobError:
    """Return the reason to store when a waiting job ends by `event`."""
    return JobError(event.value, _WAITING_REASONS[event], "", attempt)


_WAITING_REASONS = {
    Event.TTL_PASSED: "its ttl passed while it waited",
    Event.DEADLINE_PASSED: "its deadline passed while it waited",
    Event.CANCELLED: "cancelled while it waited",
}


def clipped(error: JobError) -> JobError:
    """Return the error with its message cut to MESSAGE_LENGTH_MAX characters."""
    if len(error.message) <= MESSAGE_LENGTH_MAX:
        return error
    return error._replace(message=error.message[: MESSAGE_LENGTH_MAX - 1] + "…")


def _untried(lease: Lease, error: JobError, wait_s: float, now: float) -> Transition:
    """Hand back until a time: the list of attempts stays what it was, and so does the count of hand-backs."""
    step = _open(
        lease, Event.DEFERRED, now=now, error=error, ready_at=now + wait_s, suspect=lease.suspect, refund=True
    )
    return step._replace(releases=lease.releases, attempts=lease.attempts)


def _capped(lease: Lease, *, policy: SettlePolicy, now: float) -> Transition | None:
    if lease.releases < policy.releases_max:
        return None
    text = f"handed back {lease.releases} times, the most allowed (releases_max)"
    error = JobError("released_too_often", text, "", lease.attempt)
    return _final(lease, Event.EXHAUSTED, now=now, error=error)


def _hand_back(
    lease: Lease, event: Event, *, policy: SettlePolicy, now: float, suspect: bool, error: JobError | None
) -> Transition:
    capped = _capped(lease, policy=policy, now=now)
    if capped is not None:
        return capped
    return _open(lease, event, now=now, error=error, ready_at=lease.ready_at, suspect=suspect, refund=True)


def _ended(
    lease: Lease, event: Event, now: float, error: JobError | None, next_at: float | None = None
) -> tuple[Attempt, ...]:
    ended = Attempt(lease.attempt, lease.leased_at, now, event, lease.worker, error, next_at)
    return (*lease.attempts, ended)[-ATTEMPTS_KEPT:]


_WAITS = frozenset({State.RETRYING, State.SCHEDULED})  # for a time


def _open(
    lease: Lease,
    event: Event,
    *,
    now: float,
    error: JobError | None,
    ready_at: float,
    suspect: bool,
    refund: bool = False,
    deaths: int | None = None,
) -> Transition:
    error = None if error is None else clipped(error)
    state = next_state(State.RUNNING, event)
    return Transition(
        job_id=lease.job.id,
        fence=lease.fence,
        event=event,
        state=state,
        at=now,
        attempt=lease.attempt - 1 if refund else lease.attempt,
        deaths=lease.deaths if deaths is None else deaths,
        releases=lease.releases + 1 if refund else lease.releases,
        suspect=suspect,
        ready_at=ready_at,
        error=error,
        attempts=_ended(lease, event, now, error, ready_at if state in _WAITS else None),
        worker=lease.worker,
    )


def _final(
    lease: Lease,
    event: Event,
    *,
    now: float,
    output: bytes | None = None,
    error: JobError | None = None,
    deaths: int | None = None,
) -> Transition:
    error = None if error is None else clipped(error)
    succeeded = event is Event.COMPLETED
    return Transition(
        job_id=lease.job.id,
        fence=lease.fence,
        event=event,
        state=next_state(State.RUNNING, event),
        at=now,
        attempt=lease.attempt,
        deaths=lease.deaths if deaths is None else deaths,
        releases=lease.releases,
        suspect=False,
        output=output,
        error=error,
        attempts=lease.attempts if succeeded else _ended(lease, event, now, error),
        worker=lease.worker,
    )
