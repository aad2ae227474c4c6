"""How a lease ends: each decision as a row of a table, and what holds for any history of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core import settle
from forebay.core.job import ATTEMPTS_KEPT, Attempt, Job, JobError, Lease, Settled
from forebay.core.lifecycle import FINAL, TRANSITIONS, Event, State
from forebay.core.retry import DELAY_FLOOR_S, RetryPolicy
from forebay.core.settle import MESSAGE_LENGTH_MAX, SettlePolicy

NOW = 1_000.0
PLACE = NOW - 60  # in line, before the lease
BOOM = JobError("handler_error", "boom", "ValueError", 1)
POLICY = SettlePolicy(retry=RetryPolicy(base_s=8.0, factor=2.0, cap_s=100.0), deaths_max=2, releases_max=3)


def a_lease(attempt=1, *, attempts_max=3, deadline_at=None, expires_at=None, **fields):
    job = Job("id-1", "t", b"{}", 0.0, 0.0, attempts_max=attempts_max)
    job = job._replace(deadline_at=deadline_at, expires_at=expires_at)
    lease = Lease(job, 7, attempt, NOW + 30, "w", leased_at=NOW - 5, ready_at=PLACE)
    return lease._replace(**fields)


def complete(lease):
    return settle.complete(lease, output=b"1", now=NOW)


def fail(lease, **options):
    return settle.fail(lease, error=BOOM, policy=POLICY, now=NOW, jitter=0.0, **options)


def die(lease):
    return settle.die(lease, error=BOOM, policy=POLICY, now=NOW, jitter=0.0)


def suspect(lease):
    return settle.suspect(lease, error=BOOM, policy=POLICY, now=NOW)


def lose(lease):
    return settle.lose(lease, error=BOOM, now=NOW)


def release(lease):
    return settle.release(lease, policy=POLICY, now=NOW)


def defer(lease):
    return settle.defer(lease, until=NOW + 50, policy=POLICY, now=NOW)


# what happened; the decision; event, state; attempt, deaths, releases, suspect, ready_at
ROWS = [
    ("success", complete(a_lease(2)), "completed", "succeeded", (2, 0, 0, False, 0)),
    ("success of a suspect", complete(a_lease(suspect=True)), "completed", "succeeded", (1, 0, 0, False, 0)),
    ("first failure", fail(a_lease(1)), "failed", "retrying", (1, 0, 0, False, NOW + 4)),
    ("second failure", fail(a_lease(2)), "failed", "retrying", (2, 0, 0, False, NOW + 8)),
    ("failure of a suspect", fail(a_lease(1, suspect=True)), "failed", "retrying", (1, 0, 0, True, NOW + 4)),
    ("last failure", fail(a_lease(3)), "exhausted", "dead", (3, 0, 0, False, 0)),
    ("failure past the last", fail(a_lease(4)), "exhausted", "dead", (4, 0, 0, False, 0)),
    ("permanent failure", fail(a_lease(1), permanent=True), "exhausted", "dead", (1, 0, 0, False, 0)),
    ("failure, in 60 s", fail(a_lease(1), after_s=60.0), "failed", "retrying", (1, 0, 0, False, NOW + 60)),
    ("failure, at once", fail(a_lease(1), after_s=0.0), "failed", "retrying", (1, 0, 0, False, NOW + 4)),
    ("last failure, in 60 s", fail(a_lease(3), after_s=60.0), "exhausted", "dead", (3, 0, 0, False, 0)),
    ("first death", die(a_lease(1)), "failed", "retrying", (1, 1, 0, True, NOW + DELAY_FLOOR_S)),
    ("first death after a failure", die(a_lease(2)), "failed", "retrying", (2, 1, 0, True, NOW + 8)),
    ("second death", die(a_lease(2, deaths=1)), "exhausted", "dead", (2, 2, 0, False, 0)),
    ("first death on the last attempt", die(a_lease(3)), "exhausted", "dead", (3, 1, 0, False, 0)),
    ("batch mate's crash", suspect(a_lease(1)), "suspected", "queued", (0, 0, 1, True, PLACE)),
    ("batch mate's crash, last attempt", suspect(a_lease(3)), "suspected", "queued", (2, 0, 1, True, PLACE)),
    ("node lost", lose(a_lease(1)), "lost", "queued", (1, 0, 0, True, PLACE)),
    ("node lost on the last attempt", lose(a_lease(3)), "exhausted", "dead", (3, 0, 0, False, 0)),
    ("release", release(a_lease(3)), "released", "queued", (2, 0, 1, False, PLACE)),
    ("release of a suspect", release(a_lease(1, suspect=True)), "released", "queued", (0, 0, 1, True, PLACE)),
    ("deferral", defer(a_lease(1, deaths=1)), "deferred", "scheduled", (0, 1, 1, False, NOW + 50)),
    ("one release too many", release(a_lease(1, releases=3)), "exhausted", "dead", (1, 0, 3, False, 0)),
    ("one deferral too many", defer(a_lease(1, releases=3)), "exhausted", "dead", (1, 0, 3, False, 0)),
    ("one suspicion too many", suspect(a_lease(1, releases=3)), "exhausted", "dead", (1, 0, 3, False, 0)),
    ("deadline", settle.expire(a_lease(1), now=NOW), "deadline_passed", "expired", (1, 0, 0, False, 0)),
    ("cancel", settle.cancel(a_lease(1), now=NOW), "cancelled", "cancelled", (1, 0, 0, False, 0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("transition", "event", "state", "numbers"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_each_end_is_decided_as_the_table_says(transition, event, state, numbers):
    t = transition
    assert (t.event.value, t.state.value) == (event, state)
    assert (t.attempt, t.deaths, t.releases, t.suspect, t.ready_at) == numbers
    assert (t.job_id, t.fence, t.at) == ("id-1", 7, NOW)
    assert TRANSITIONS[State.RUNNING][t.event] is t.state


@pytest.mark.parametrize("decide", [fail, die, suspect, lose, release, defer])
def test_an_ended_attempt_is_written_down(decide):
    old = Attempt(1, 1.0, 2.0, Event.FAILED, "v", BOOM)
    transition = decide(a_lease(2, attempts=(old,)))
    first, last = transition.attempts
    assert first == old
    assert (last.attempt, last.started_at, last.ended_at, last.worker) == (2, NOW - 5, NOW, "w")
    assert last.outcome is transition.event


def test_a_success_is_told_by_the_record_and_not_among_the_ended_attempts():
    old = Attempt(1, 1.0, 2.0, Event.FAILED, "v", BOOM)
    transition = settle.complete(a_lease(2, attempts=(old,)), output=b"1", now=NOW)
    assert transition.attempts == (old,)
    assert (transition.output, transition.error) == (b"1", None)


def test_only_the_newest_attempts_are_kept():
    old = tuple(Attempt(n, 0.0, 0.0, Event.LOST, "w") for n in range(1, ATTEMPTS_KEPT + 1))
    attempts = lose(a_lease(21, attempts_max=99, attempts=old)).attempts
    assert [attempt.attempt for attempt in attempts] == list(range(2, 22))


@pytest.mark.parametrize("length", [0, MESSAGE_LENGTH_MAX - 1, MESSAGE_LENGTH_MAX])
def test_a_message_that_fits_is_left_alone(length):
    error = BOOM._replace(message="x" * length)
    assert settle.clipped(error) is error


@pytest.mark.parametrize("length", [MESSAGE_LENGTH_MAX + 1, 5_000_000])
@pytest.mark.parametrize("permanent", [True, False])
def test_a_long_message_is_cut_everywhere_it_is_kept(length, permanent):
    error = BOOM._replace(message="\U0001f98a" * length)
    t = settle.fail(a_lease(), error=error, policy=POLICY, now=NOW, jitter=0.0, permanent=permanent)
    for kept in (t.error, t.attempts[-1].error):
        assert len(kept.message) == MESSAGE_LENGTH_MAX
        assert kept.message.endswith("…")
        assert kept.code == "handler_error"


@pytest.mark.parametrize(
    ("transition", "code", "words"),
    [
        (release(a_lease(1, releases=3)), "released_too_often", "3 times"),
        (settle.expire(a_lease(2), now=NOW), "deadline_passed", "while the job ran"),
        (settle.cancel(a_lease(2), now=NOW), "cancelled", "while it ran"),
    ],
)
def test_an_end_without_an_error_of_its_own_says_why(transition, code, words):
    assert transition.error.code == code
    assert words in transition.error.message


def test_a_result_that_comes_after_a_cancel_is_not_kept():
    lease = a_lease(2)
    after = settle.cancelled_instead(settle.complete(lease, output=b"1", now=NOW), lease)
    assert after == settle.cancel(lease, now=NOW) and after.output is None


def test_a_lost_attempt_names_itself_in_its_error():
    assert lose(a_lease(2)).attempts[-1].error.attempt == 2


@pytest.mark.parametrize("decide", [fail, die, suspect, lose, release, defer])
def test_any_other_end_that_somebody_wants_cancelled_ends_cancelled(decide):
    lease = a_lease(1)
    before = decide(lease)
    after = settle.cancelled_instead(before, lease)
    assert (after.event, after.state) == (Event.CANCELLED, State.CANCELLED)
    assert (after.error.code, after.error.attempt) == ("cancelled", lease.attempt)
    assert (after.job_id, after.fence, after.attempt, after.attempts) == (
        before.job_id,
        before.fence,
        before.attempt,
        before.attempts,
    )


@pytest.mark.parametrize(
    ("expires_at", "deadline_at", "until", "event"),
    [
        (None, None, None, None),
        (5.0, None, 5.0, Event.TTL_PASSED),
        (None, 5.0, 5.0, Event.DEADLINE_PASSED),
        (5.0, 6.0, 5.0, Event.TTL_PASSED),
        (6.0, 5.0, 5.0, Event.DEADLINE_PASSED),
        (5.0, 5.0, 5.0, Event.DEADLINE_PASSED),
    ],
)
def test_the_earlier_limit_ends_the_wait(expires_at, deadline_at, until, event):
    job = a_lease(expires_at=expires_at, deadline_at=deadline_at).job
    assert job.waits_until == until
    if event is not None:
        assert settle.waiting_end(job) is event


@pytest.mark.parametrize("event", [Event.TTL_PASSED, Event.DEADLINE_PASSED, Event.CANCELLED])
def test_a_job_that_ends_while_waiting_says_why(event):
    error = settle.waiting_error(event, 2)
    assert (error.code, error.attempt) == (event.value, 2)
    assert error.message.endswith("waited")


# Any history: whatever ends follow each other, the job comes to an end within its bounds.

ENDS = ["fail", "after", "die", "suspect", "lose", "release", "defer"]


def decided(name, lease):
    options = {"error": BOOM, "policy": POLICY, "now": NOW, "jitter": 0.5}
    return {
        "fail": lambda: settle.fail(lease, **options),
        "after": lambda: settle.fail(lease, **options, after_s=0.0),
        "die": lambda: settle.die(lease, **options),
        "suspect": lambda: suspect(lease),
        "lose": lambda: lose(lease),
        "release": lambda: release(lease),
        "defer": lambda: defer(lease),
    }[name]()


@given(
    names=st.lists(st.sampled_from(ENDS), min_size=40, max_size=40),
    attempts_max=st.integers(1, 6),
)
def test_no_job_circles_for_ever(names, attempts_max):
    lease = a_lease(1, attempts_max=attempts_max)
    for grants, name in enumerate(names, start=1):
        t = decided(name, lease)
        assert 0 <= t.attempt <= attempts_max
        assert 0 <= t.releases <= POLICY.releases_max
        assert 0 <= t.deaths <= POLICY.deaths_max
        assert len(t.attempts) == min(grants, ATTEMPTS_KEPT)
        assert TRANSITIONS[State.RUNNING][t.event] is t.state
        if t.state in FINAL:
            break
        if t.event is Event.FAILED:
            assert t.ready_at >= NOW + DELAY_FLOOR_S
        lease = lease._replace(
            attempt=t.attempt + 1,
            fence=lease.fence + 1,
            deaths=t.deaths,
            releases=t.releases,
            suspect=t.suspect,
            attempts=t.attempts,
        )
    assert t.state is State.DEAD
    assert grants <= attempts_max + POLICY.releases_max + 1


@given(name=st.sampled_from(["suspect", "release", "defer"]), attempt=st.integers(1, 3))
def test_a_refund_leaves_the_number_of_the_next_attempt_as_it_was(name, attempt):
    assert decided(name, a_lease(attempt)).attempt + 1 == attempt


def test_a_clean_hand_back_never_costs_an_attempt():
    lease = a_lease(1, attempts_max=1)
    for _ in range(POLICY.releases_max):
        t = release(lease)
        assert t.state is State.QUEUED
        lease = lease._replace(attempt=t.attempt + 1, releases=t.releases)
    assert lease.attempt == 1


@pytest.mark.parametrize("wrong", [{"deaths_max": 0}, {"releases_max": 0}])
def test_a_policy_without_bounds_is_refused(wrong):
    with pytest.raises(AssertionError):
        SettlePolicy(**wrong)


@pytest.mark.parametrize("worker", ["", "w/t/3"])
def test_who_is_told_of_an_end_hears_the_worker_that_a_reader_finds(worker):
    lease = a_lease(1)
    done = settle.complete(lease, output=b"1", now=NOW, worker=worker)
    assert Settled(lease, done).record().standing.worker == (worker or lease.worker)
