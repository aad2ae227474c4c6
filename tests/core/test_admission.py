"""Who is let in, who is refused, and when the refused shall come back."""

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.admission import (
    LINE_MAX_S,
    RETRY_AFTER_MAX_S,
    RETRY_AFTER_UNKNOWN_S,
    Accepted,
    AdmissionPolicy,
    Gate,
    Offer,
    Reason,
    Rejected,
    Snapshot,
    too_late,
)
from forebay.core.estimator import Eta
from forebay.core.token_bucket import TokenBucket

POLICY = AdmissionPolicy(jobs_max=100, bytes_max=1_000)


def ask(snapshot, *, jobs=1, size_b=1, gate=None, now=0.0, jitter=0.0):
    return (gate or Gate(POLICY)).admit(jobs=jobs, size_b=size_b, snapshot=snapshot, now=now, jitter=jitter)


@pytest.mark.parametrize(
    ("snapshot", "jobs", "size_b", "expected"),
    [
        (Snapshot(0, 0, None), 1, 1, Accepted(False)),
        (Snapshot(99, 0, None), 1, 1, Accepted(True)),
        (Snapshot(89, 0, None), 1, 1, Accepted(True)),
        (Snapshot(88, 0, None), 1, 1, Accepted(False)),
        (Snapshot(0, 899, None), 1, 1, Accepted(True)),
        (Snapshot(100, 0, 10.0), 1, 1, Reason.FULL),
        (Snapshot(99, 0, 10.0), 2, 1, Reason.FULL),
        (Snapshot(1, 1_000, 10.0), 1, 1, Reason.BYTES_FULL),
        (Snapshot(0, 0, 10.0), 1, 1_001, Reason.TOO_LARGE),
        (Snapshot(0, 0, 10.0, draining=True), 1, 1, Reason.DRAINING),
        (Snapshot(100, 1_000, 10.0), 1, 1, Reason.FULL),
        (Snapshot(0, 0, None), 101, 1, Reason.FULL),
    ],
)
def test_the_bounds(snapshot, jobs, size_b, expected):
    answer = ask(snapshot, jobs=jobs, size_b=size_b)
    assert answer == expected or (isinstance(answer, Rejected) and answer.reason is expected)


def test_what_can_never_fit_is_not_told_to_come_back():
    assert ask(Snapshot(0, 0, 1.0), size_b=2_000).retry_after_s is None


def test_the_wait_is_what_must_drain_first():
    assert ask(Snapshot(109, 0, 2.0)).retry_after_s == pytest.approx(5.0)
    # Half of 1,100 bytes too many is about the share of jobs that hold them.
    assert ask(Snapshot(50, 1_099, 1.0)).retry_after_s == pytest.approx(50 * 100 / 1_099)


def test_nothing_measured_means_a_fixed_wait():
    assert ask(Snapshot(100, 0, None)).retry_after_s == RETRY_AFTER_UNKNOWN_S
    assert ask(Snapshot(100, 0, 0.0)).retry_after_s == RETRY_AFTER_UNKNOWN_S
    assert ask(Snapshot(0, 0, 1.0, draining=True)).retry_after_s == RETRY_AFTER_UNKNOWN_S


def test_refused_callers_do_not_come_back_as_one_wave():
    waits = [ask(Snapshot(100, 0, 10.0), jitter=j / 100).retry_after_s for j in range(100)]
    assert len(set(waits)) == 100 and max(waits) - min(waits) > 0.9


def told(gate, *, now=0.0, jitter=0.0, drain=10.0):
    refused = ask(Snapshot(100, 0, drain), gate=gate, now=now, jitter=jitter)
    return gate.told_to_come(refused, drain_per_s=drain, now=now).retry_after_s


def test_each_refused_caller_has_its_turn_behind_those_refused_before():
    gate = Gate(POLICY)
    assert [told(gate) for _ in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert told(gate, now=0.2) == pytest.approx(0.3)  # the line has moved on
    assert told(gate, now=9.0) == pytest.approx(0.1)


def test_the_line_is_forgotten_when_there_is_room_for_many_and_kept_when_there_is_room_for_one():
    gate = Gate(POLICY)
    for _ in range(50):
        told(gate)
    ask(Snapshot(98, 0, 10.0), gate=gate, now=1.0)
    assert told(gate, now=1.0) == pytest.approx(4.1)
    ask(Snapshot(50, 0, 10.0), gate=gate, now=2.0)
    assert told(gate, now=2.0) == pytest.approx(0.1)


def test_callers_that_never_come_back_do_not_make_the_line_endless():
    gate = Gate(POLICY)
    waits = [told(gate) for _ in range(10_000)]
    assert waits == sorted(waits) and waits[-1] == LINE_MAX_S
    slow = Gate(POLICY)
    assert max(told(slow, drain=0.5) for _ in range(10_000)) == 200.0  # what a full queue takes


def test_other_reasons_and_unmeasured_queues_have_no_line():
    gate = Gate(POLICY)
    for refused in (Rejected(Reason.RATE_LIMITED, 2.0), Rejected(Reason.TOO_LARGE, None)):
        assert gate.told_to_come(refused, drain_per_s=10.0, now=0.0) == refused
    unmeasured = Rejected(Reason.FULL, RETRY_AFTER_UNKNOWN_S)
    assert gate.told_to_come(unmeasured, drain_per_s=None, now=0.0) == unmeasured


def test_a_burst_that_does_just_what_it_is_told_is_served_at_the_full_rate_with_few_tries():
    """1,200 at once on a queue of 90 that drains 450 a second: 2.7 s at best."""
    gate, rate, chance = Gate(AdmissionPolicy(jobs_max=90, bytes_max=1_000)), 450.0, random.Random(7)
    coming = [(0.0, number, 1) for number in range(1_200)]
    tries, waiting, last_at, served_at = [], 0.0, 0.0, 0.0
    while coming:
        now, number, tried = heapq.heappop(coming)
        waiting, last_at = max(0.0, waiting - (now - last_at) * rate), now
        snapshot = Snapshot(math.ceil(waiting), 0, rate)
        verdict = gate.admit(jobs=1, size_b=0, snapshot=snapshot, now=now, jitter=chance.random())
        if isinstance(verdict, Accepted):
            waiting += 1.0
            tries.append(tried)
            served_at = now + waiting / rate
        else:
            after_s = gate.told_to_come(verdict, drain_per_s=rate, now=now).retry_after_s
            heapq.heappush(coming, (now + after_s, number, tried + 1))
    assert len(tries) == 1_200 and max(tries) <= 4
    assert served_at < 1.2 * 1_200 / rate


def test_a_rate_refuses_and_takes_nothing():
    gate = Gate(POLICY, bucket=TokenBucket(rate_per_s=10.0, burst=2.0))
    empty = Snapshot(0, 0, None)
    assert isinstance(ask(empty, jobs=2, gate=gate), Accepted)
    refused = ask(empty, gate=gate)
    assert (refused.reason, refused.retry_after_s, refused.limit) == (Reason.RATE_LIMITED, 0.1, 10.0)
    assert isinstance(ask(empty, gate=gate, now=0.1), Accepted)
    # More at once than the bucket ever holds: the longest wait there is.
    assert ask(empty, jobs=3, gate=gate, now=9.0).retry_after_s == RETRY_AFTER_MAX_S


def test_a_full_queue_takes_no_token():
    bucket = TokenBucket(rate_per_s=1.0, burst=1.0)
    ask(Snapshot(100, 0, None), gate=Gate(POLICY, bucket=bucket))
    assert bucket.tokens_at(0.0) == 1.0


def test_pressure_does_not_flap():
    gate = Gate(POLICY)
    told = [ask(Snapshot(jobs, 0, None), gate=gate).pressured for jobs in (88, 89, 85, 80, 79, 85)]
    assert told == [False, True, True, True, False, False]


@given(
    st.integers(0, 300),
    st.integers(0, 3_000),
    st.integers(1, 150),
    st.integers(0, 1_500),
    st.none() | st.floats(0.0, 1e6),
    st.floats(0.0, 0.999),
)
def test_the_bound_holds_and_every_refusal_has_a_bounded_wait(jobs, held_b, more, size_b, drain, jitter):
    answer = ask(Snapshot(jobs, held_b, drain), jobs=more, size_b=size_b, jitter=jitter)
    fits = jobs + more <= 100 and held_b + size_b <= 1_000
    assert isinstance(answer, Accepted) is fits
    if isinstance(answer, Rejected) and answer.retry_after_s is not None:
        assert 0 <= answer.retry_after_s <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize(
    "fields",
    [{"jobs_max": 0}, {"bytes_max": 0}, {"soft_share": 0.5, "soft_low_share": 0.6}, {"soft_share": 1.1}],
)
def test_a_policy_that_makes_no_sense_is_refused(fields):
    with pytest.raises(AssertionError):
        AdmissionPolicy(**fields)


# -- a ttl or a deadline that would pass first ------------------------------------------------------

SOON = Eta(p50_s=30.0, p90_s=50.0, starts_s=25.0)


def late(*, eta=SOON, run_at=100.0, expires_in=None, deadline_in=None, jitter=0.0):
    return too_late(
        run_at=run_at,
        expires_at=None if expires_in is None else 100.0 + expires_in,
        deadline_at=None if deadline_in is None else 100.0 + deadline_in,
        eta=eta,
        now=100.0,
        jitter=jitter,
    )


@pytest.mark.parametrize(
    ("eta", "expires_in", "deadline_in", "refused"),
    [
        (None, 1.0, 1.0, False),  # nothing measured
        (SOON, None, None, False),
        (SOON, 25.0, None, False),  # a ttl must last until the start only
        (SOON, 24.9, None, True),
        (SOON, None, 30.0, False),
        (SOON, None, 29.9, True),
        (SOON, 26.0, 29.0, True),
        (SOON, 10.0, 99.0, True),
    ],
)
def test_a_job_is_refused_when_even_the_hopeful_time_misses(eta, expires_in, deadline_in, refused):
    assert (late(eta=eta, expires_in=expires_in, deadline_in=deadline_in) is not None) == refused


def test_who_is_too_late_is_offered_what_would_do():
    by_ttl, by_deadline = late(expires_in=5.0), late(deadline_in=20.0)
    assert by_ttl.reason is Reason.TOO_LATE and by_ttl.retry_after_s == pytest.approx(20.0)
    assert by_ttl.offer == Offer(130.0, 150.0, ttl_needed_s=45.0)
    assert by_deadline.offer == Offer(130.0, 150.0, deadline_needed_at=150.0)
    assert late(expires_in=5.0, jitter=0.9).retry_after_s == pytest.approx(29.0)
    assert late(eta=SOON, **{"expires_in": by_ttl.offer.ttl_needed_s}) is None
