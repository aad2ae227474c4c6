"""What is told of an announced burst: rows, and that a queue at the told rate never passes its bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.admission import Accepted, AdmissionPolicy, Gate, Snapshot
from forebay.core.announcing import KEEP_SHARE, Outlook, outlook


@pytest.mark.parametrize(
    ("jobs", "room", "spare", "drain", "limits", "fits", "rate"),
    [
        (200, 200, 180, 450.0, [], True, None),
        (201, 200, 180, None, [], False, None),
        (1200, 200, 180, 450.0, [], False, KEEP_SHARE * 450 * 1200 / 1020),  # M22: 3 x 400 at 450/s
        (1200, 200, 180, 450.0, [300.0, None], False, 300.0),
        (1200, 200, 180, None, [300.0], False, None),  # nobody knows whether 300/s would do
        (100, 200, 180, 450.0, [50.0], True, 50.0),
        (1200, 0, -20, 450.0, [], False, KEEP_SHARE * 450),
    ],
)
def test_what_is_told(jobs, room, spare, drain, limits, fits, rate):
    told = outlook(jobs=jobs, room=room, spare=spare, drain_per_s=drain, limits_per_s=limits)
    assert told == Outlook(fits, rate and pytest.approx(rate), rate and pytest.approx(jobs / rate))


@given(
    st.integers(1, 3_000), st.integers(10, 500), st.floats(0.0, 0.8), st.floats(5.0, 1e3), st.floats(1.0, 2.0)
)
def test_at_the_told_rate_nothing_is_refused(jobs, bound, full, measured, more):
    """The queue drains evenly, at worst as slowly as is counted on; jobs come evenly, or all at once."""
    gate, open_jobs, drain = Gate(AdmissionPolicy(jobs_max=bound)), int(bound * full), KEEP_SHARE * measured
    told = outlook(jobs=jobs, room=bound - open_jobs, spare=0.9 * bound - open_jobs, drain_per_s=measured)
    level, before = float(open_jobs), 0.0
    for n in range(jobs):
        now = 0.0 if told.rate_per_s is None else n / told.rate_per_s
        level = max(0.0, level - more * drain * (now - before))
        before = now
        verdict = gate.admit(
            jobs=1, size_b=0, snapshot=Snapshot(int(level), 0, measured), now=now, jitter=0.0
        )
        assert type(verdict) is Accepted, (n, level)
        level += 1
