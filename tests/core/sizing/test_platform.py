"""What a load balancer and an autoscaler are set to: each rule finds its case, and nothing else."""

import dataclasses

import pytest

from forebay.core.sizing.platform import Platform, platform_findings

CASES = (
    (
        {"check_every_s": 30.0, "checks_failed": 3, "peak_per_s": 450.0, "replicas": 3},
        "check_too_late",
        "noticed after 90 s (3 checks, one each 30 s): 13,500 calls of the peak go to it meanwhile",
        "a check each 10s, unhealthy after 2",
    ),
    ({"checks_failed": 1}, "check_too_hasty", "one lost check takes a replica out", "unhealthy after 2"),
    (
        {"drain_s": 30.0, "run_late_s": 45.0},
        "drain_under_runs",
        "has not answered after 30 s; a run may take 45 s",
        "a drain of 45s",
    ),
    (
        {
            **{"cooldown_s": 300.0, "start_s": 60.0, "peak_per_s": 1_200.0, "replicas": 2},
            **{"replica_per_s": 150.0, "queue_max": 200, "needed": 9},
        },
        "scaled_too_late",
        "900/s more than 2 replicas do, the line is too long after 222 ms; the autoscaler's next replica "
        "serves after 6 min",
        "at least 9 replicas before the peak, or callers that come back later",
    ),
    (
        {"replicas_max": 10, "needed": 14},
        "maximum_under_need",
        "the peak needs 14 replicas, and there are never more than 10",
        "a maximum of 14",
    ),
)
GOOD = Platform(
    check_every_s=10.0, checks_failed=2, drain_s=45.0, cooldown_s=300.0, start_s=60.0, replicas_max=14,
    peak_per_s=450.0, replicas=4, replica_per_s=150.0, needed=4, run_late_s=45.0, queue_max=200, wait_max_s=0.2,
)  # fmt: skip


@pytest.mark.parametrize(("said", "code", "evidence", "change"), CASES, ids=[case[1] for case in CASES])
def test_each_rule_finds_its_case_with_evidence_and_change(said, code, evidence, change):
    (found,) = platform_findings(Platform(**said), task="t")
    assert (found.code, found.change, found.task) == (code, change, "t") and evidence in found.evidence


def test_what_fits_together_is_no_finding():
    assert platform_findings(GOOD) == []


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Platform)])
def test_what_is_not_known_is_no_finding(name):
    assert platform_findings(dataclasses.replace(GOOD, **{name: None})) == []
    assert platform_findings(Platform(**{name: 1})) in ([], platform_findings(Platform(checks_failed=1)))


def test_a_line_with_room_until_the_next_replica_serves_is_no_finding():
    late = dataclasses.replace(GOOD, peak_per_s=601.0, queue_max=400)
    assert platform_findings(late) == []  # one more each second: 400 s of room, 360 are needed
    assert [one.code for one in platform_findings(dataclasses.replace(late, queue_max=300))] == [
        "scaled_too_late"
    ]
