"""When a batch closes, and why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.batching import DEADLINE_MARGIN_S, Trigger, closes_at, tightest, trigger
from forebay.core.service import ServiceFit
from forebay.core.task import TaskSpec

SPEC = TaskSpec(name="t", batch_max=4, batch_wait_s=0.02)
FIT = ServiceFit()
for _ in range(5):
    FIT.observe(4, 0.4)  # 0.1 for each


def why(*, size=1, oldest_at=100.0, tightest_at=None, idle=False, now=100.0, spec=SPEC, fit=FIT):
    return trigger(
        size=size,
        oldest_at=oldest_at,
        tightest_at=tightest_at,
        spec=spec,
        fit=fit,
        idle=idle,
        now=now,
    )


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"size": 4}, Trigger.SIZE),
        ({"size": 9, "idle": True}, Trigger.SIZE),
        ({"idle": True}, Trigger.IDLE),
        ({}, None),
        ({"now": 100.0199}, None),
        ({"now": 100.02}, Trigger.WAIT),
        ({"now": 200.0}, Trigger.WAIT),
        ({"tightest_at": 100.5}, None),
        ({"tightest_at": 100.11}, None),
        ({"tightest_at": 100.1049}, Trigger.DEADLINE),
        ({"tightest_at": 100.01}, Trigger.DEADLINE),
        ({"tightest_at": 100.01, "now": 100.02}, Trigger.WAIT),
        ({"tightest_at": 100.006, "fit": ServiceFit()}, None),  # nothing measured: the margin alone
        ({"tightest_at": 100.005, "fit": ServiceFit()}, Trigger.DEADLINE),
    ],
)
def test_a_batch_starts_for_the_first_reason_that_holds(given_, expected):
    assert why(**given_) is expected


@given(
    st.integers(1, 8),
    st.floats(0.0, 10.0),
    st.none() | st.floats(0.0, 20.0),
    st.floats(0.0, 30.0),
    st.floats(0, 1),
)
def test_a_batch_never_waits_past_its_wait_and_starts_at_the_instant_it_named(
    size, oldest, deadline, now, wait
):
    spec = TaskSpec(name="t", batch_max=8, batch_wait_s=wait)
    closes = closes_at(size=size, oldest_at=oldest, tightest_at=deadline, spec=spec, fit=FIT)
    assert closes <= oldest + wait
    if deadline is not None:
        assert closes <= deadline - DEADLINE_MARGIN_S
    started = why(size=size, oldest_at=oldest, tightest_at=deadline, now=now, spec=spec)
    assert (started is not None) is (size >= 8 or now >= closes)


@pytest.mark.parametrize(
    ("deadlines", "expected"), [([], None), ([None, None], None), ([None, 3.0, 2.0], 2.0), ([1.0], 1.0)]
)
def test_the_tightest_deadline(deadlines, expected):
    assert tightest(deadlines) == expected
