"""Limits that contradict each other are found, with the exact change; sound ones raise no alarm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.sizing.findings import RULES, Limits, findings

GPU, MIN = 4_000.0, 60.0

# (what is set, the code, words of the evidence, the change)
CONTRADICTIONS = [
    ({"lease_s": 30, "timeout_s": 40}, "lease_under_timeout", "a second worker starts", 'lease = "44s"'),
    (
        {"lease_s": 30, "run_late_s": 60.0},
        "lease_under_runs",
        "one run in a thousand takes 60 s",
        'lease = "1.5m"',
    ),
    ({"lease_s": 10, "heartbeat_s": 5}, "heartbeat_over_lease", "one late renewal", 'lease = "15s"'),
    (
        {"timeout_s": 10 * MIN, "run_late_s": 9 * MIN, "runs": 12_000},
        "timeout_near_runs",
        "one run in a thousand takes 9 min or more (12,000 measured)",
        'timeout="14m"',
    ),
    (
        {"timeout_s": 60, "run_late_s": 59.0, "runs": 40},
        "timeout_near_runs",
        "the slowest of 40 runs took 59 s",
        'timeout="1.5m"',
    ),
    (
        {"ttl_s": 5 * MIN, "timeout_s": 10 * MIN, "attempts_max": 3, "retry_waits_s": (1.0, 2.0)},
        "ttl_under_timeout",
        "the second of 3 attempts never starts",
        'ttl="31m", or attempts_max=1',
    ),
    (
        {"ttl_s": 10, "attempts_max": 6, "retry_waits_s": (1.0, 2.0, 4.0, 8.0, 16.0)},
        "ttl_under_waits",
        "attempts after number 4 never start",
        'attempts_max=4, or ttl="35s"',
    ),
    (
        {"attempts_max": 3, "retry_waits_s": (1.0, 2.0, 4.0, 8.0)},
        "attempts_and_waits",
        "4 pauses are given for 3 attempts: the last 2 can never happen",
        "attempts_max=5, or 2 pauses",
    ),
    (
        {"attempts_max": 6, "retry_waits_s": (1.0,)},
        "attempts_and_waits",
        "6 attempts have 5 pauses",
        "attempts_max=2, or 5 pauses",
    ),
    (
        {"grace_s": 30, "run_late_s": 120.0},
        "grace_under_runs",
        "what is cut runs again",
        'grace = "2m", or checkpoints',
    ),
    (
        {"grace_s": 30, "timeout_s": 120, "timeout_chosen": True},
        "grace_under_runs",
        "a run may take 120 s",
        'grace = "2m", or checkpoints',
    ),
    (
        {"batch_wait_s": 0.3, "deadline_s": 0.2},
        "batch_wait_over_deadline",
        "waits up to 300 ms for company",
        'batch_wait="20ms"',
    ),
    (
        {"queue_max": 100_000, "capacity_per_s": 0.5, "ttl_s": 86_400},
        "queue_over_ttl",
        "served after 55.6 h at 30/min; the ttl is 24 h",
        "queue_max=43200",
    ),
    (
        {"queue_max": 1_000, "capacity_per_s": 2_000.0, "wait_max_s": 0.05},
        "queue_over_wait",
        "served after 500 ms at 2,000/s",
        "queue_max=100",
    ),
    (
        {"hpa_target": 200, "replica_per_s": 4_000.0, "wait_max_s": 0.05},
        "hpa_over_wait",
        "keeps 200 waiting for each replica of 4,000/s keeps a wait of 50 ms",
        "averageValue: 160",
    ),
    (
        {"hpa_target": 200, "replica_per_s": 2_000.0, "wait_max_s": 0.05},
        "hpa_over_wait",
        "keeps a wait of 100 ms; the whole of it may be 50 ms",
        "averageValue: 80",
    ),
    (
        {"hpa_target": 200, "queue_max": 300, "replicas_min": 2},
        "hpa_over_queue",
        "acts above 200 for each of 2: it never does",
        "averageValue: 75",
    ),
    (
        {"budget_per_s": 900.0, "capacity_per_s": 450.0},
        "budget_over_capacity",
        "producers may send 900/s, the replicas do 450/s: the queue grows by 450/s",
        "a budget of 405/s",
    ),
    (
        {"queue_max": 1_000, "item_b": 6_220_800, "memory_b": 4_000_000_000},
        "queue_over_memory",
        "may hold 6.22 GB, and 4 GB of memory is there",
        'queue_bytes_max="4000000000" or queue_max=643',
    ),
    (
        {"queue_bytes_max": 1 << 30, "disk_free_b": 500_000_000},
        "queue_over_disk",
        "500 MB of the disk is free",
        'queue_bytes_max="400000000"',
    ),
]


@pytest.mark.parametrize(
    ("limits", "code", "evidence", "change"),
    CONTRADICTIONS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_contradiction_is_told_with_its_evidence_and_the_exact_change(limits, code, evidence, change):
    (found,) = [one for one in findings(Limits(task="t", **limits)) if one.code == code]
    assert evidence in found.evidence and found.change == change and found.task == "t"


def test_every_rule_has_a_contradiction_here():
    assert len({code for _, code, _, _ in CONTRADICTIONS}) == len(RULES)


# What is set when nobody sets anything, and what was measured of a healthy task.
DEFAULTS = {
    "lease_s": 30.0, "heartbeat_s": 5.0, "timeout_s": 600.0, "ttl_s": 86_400.0, "grace_s": 30.0, "attempts_max": 3,
    "retry_waits_s": (1.0, 2.0), "batch_wait_s": 0.005, "queue_max": 100_000, "queue_bytes_max": 1 << 30,
    "disk_free_b": 50 << 30,
}  # fmt: skip


@pytest.mark.parametrize(
    "measured", [{}, {"runs": 5_000, "run_late_s": 1.2, "capacity_per_s": 40.0, "item_b": 1_000}]
)
def test_the_defaults_raise_no_alarm(measured):
    assert findings(Limits(**DEFAULTS, **measured)) == []


def test_nothing_known_contradicts_nothing():
    assert findings(Limits()) == []


NEAR_ANYTHING = st.one_of(st.none(), st.floats(1e-3, 1e6))
WHOLE = st.one_of(st.none(), st.integers(1, 10**9))


@given(
    st.fixed_dictionaries(
        {
            name: NEAR_ANYTHING
            for name in (
                *("lease_s", "heartbeat_s", "timeout_s", "run_late_s", "ttl_s", "grace_s", "deadline_s"),
                *("capacity_per_s", "replica_per_s", "wait_max_s", "hpa_target", "budget_per_s"),
            )
        }
        | {
            name: WHOLE
            for name in ("queue_max", "queue_bytes_max", "item_b", "memory_b", "disk_free_b", "attempts_max")
        }
        | {"retry_waits_s": st.lists(st.floats(0, 1e5), max_size=6).map(tuple)}
    )
)
def test_any_limits_are_told_of_in_short_lines(limits):
    for one in findings(Limits(**limits)):
        assert one.evidence.isprintable() and one.change and len(one.evidence) < 300
