"""Quota: rates and holdings of a tenant, decided by (what it holds, now)."""

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.admission import Reason
from forebay.core.quota import SPREAD_SHARE, Quota
from forebay.core.tenant import Held, Limits

NOTHING = Held()


def look(quota, jobs=1, size_b=10, held=NOTHING, now=0.0, jitter=0.0):
    return quota.look(jobs=jobs, size_b=size_b, held=held, now=now, jitter=jitter)


def test_without_limits_everything_enters():
    assert look(Quota(Limits()), jobs=10**6, size_b=10**9, held=Held(10**9, 10**12)) is None


def test_a_rate_lets_a_burst_in_and_then_its_rate():
    quota = Quota(Limits(rate_per_s=2.0, burst=3))
    for _ in range(3):
        assert look(quota) is None
        quota.take(jobs=1, size_b=10, now=0.0)
    refused = look(quota)
    assert refused[:3] == (Reason.TENANT_RATE, 0.5, 2.0)
    assert look(quota, jitter=1.0).retry_after_s == 0.5 * (1 + SPREAD_SHARE)
    assert look(quota, now=0.5) is None


def test_a_look_takes_nothing():
    quota = Quota(Limits(rate_per_s=1.0))
    assert [look(quota) for _ in range(5)] == [None] * 5


def test_bytes_have_a_rate_of_their_own_and_one_large_body_waits_for_a_full_bucket():
    quota = Quota(Limits(bytes_per_s=100.0))
    assert look(quota, size_b=10_000) is None
    quota.take(jobs=1, size_b=10_000, now=0.0)
    assert look(quota, size_b=10_000)[:3] == (Reason.TENANT_BYTES_RATE, 1.0, 100.0)
    assert look(quota, size_b=50, now=0.5) is None


def test_what_is_held_bounds_what_may_come():
    quota = Quota(Limits(jobs_max=3, bytes_max=100))
    assert look(quota, held=Held(2, 0)) is None
    assert look(quota, held=Held(3, 0)).reason is Reason.QUOTA_JOBS
    assert look(quota, jobs=2, held=Held(2, 0)).reason is Reason.QUOTA_JOBS
    assert look(quota, size_b=10, held=Held(0, 90)) is None
    assert look(quota, size_b=11, held=Held(0, 90)).reason is Reason.QUOTA_BYTES


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 60)), max_size=60),
)
def test_never_more_than_burst_and_rate_and_an_honest_time(rate, burst, calls):
    quota = Quota(Limits(rate_per_s=rate, burst=burst))
    now, let_in = 0.0, 0
    for after_s, jobs in calls:
        now += after_s
        refused = look(quota, jobs=jobs, now=now)
        if refused is None:
            quota.take(jobs=jobs, size_b=0, now=now)
            let_in += jobs
        elif jobs <= burst:
            assert look(quota, jobs=jobs, now=now + refused.retry_after_s + 1e-6) is None
        assert let_in <= burst + rate * now + 1e-6
