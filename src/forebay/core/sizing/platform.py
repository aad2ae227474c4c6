"""platform_findings(): what a load balancer and an autoscaler are set to, against the load and the runs."""

from collections.abc import Callable
from dataclasses import dataclass

from forebay.core.sizing import words
from forebay.core.sizing.findings import Finding, told_by

NOTICE_MAX_S = 30.0  # a dead replica is out by then: as soon as its jobs run elsewhere, by the default lease
CHECKS_MIN = 2  # one lost check says nothing of a replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What is around the replicas, and what they have to do. None: not known; its rules are silent."""

    check_every_s: float | None = None  # a load balancer's health checks
    checks_failed: int | None = None  # in a row, until it sends nothing more
    drain_s: float | None = None  # from its last call to a replica until it cuts what has no answer yet
    cooldown_s: float | None = None  # of an autoscaler, between two of its steps
    start_s: float | None = None  # from the order of a replica to its first answer
    replicas_max: int | None = None
    peak_per_s: float | None = None
    replicas: int | None = None
    replica_per_s: float | None = None
    needed: int | None = None  # replicas at the peak
    run_late_s: float | None = None  # the longest run, measured or allowed
    queue_max: int | None = None
    wait_max_s: float | None = None


def platform_findings(platform: Platform, *, task: str = "") -> list[Finding]:
    """Return every contradiction, in the order of the rules; empty when there is none."""
    return told_by(RULES, platform, task)


def _noticed_late(has: Platform) -> Finding | None:
    if has.check_every_s is None or has.checks_failed is None:
        return None
    noticed_s = has.check_every_s * has.checks_failed
    if noticed_s <= NOTICE_MAX_S:
        return None
    checks = f"{has.checks_failed} checks, one each {words.span(has.check_every_s)}"
    evidence = f"a dead replica is noticed after {words.span(noticed_s)} ({checks})"
    if has.peak_per_s is not None and has.replicas is not None:
        lost = has.peak_per_s / has.replicas * noticed_s
        evidence += f": {words.count(lost)} calls of the peak go to it meanwhile"
    every = words.setting_s(NOTICE_MAX_S / (CHECKS_MIN + 1))  # one check's time is left for its own answer
    return Finding("check_too_late", evidence, f"a check each {every}, unhealthy after {CHECKS_MIN}")


def _one_check(has: Platform) -> Finding | None:
    if has.checks_failed is None or has.checks_failed >= CHECKS_MIN:
        return None
    evidence = "one lost check takes a replica out, and the others get its calls too"
    return Finding("check_too_hasty", evidence, f"unhealthy after {CHECKS_MIN}")


def _drain_runs(has: Platform) -> Finding | None:
    if has.drain_s is None or has.run_late_s is None or has.drain_s >= has.run_late_s:
        return None
    evidence = (
        f"the load balancer cuts what a leaving replica has not answered after {words.span(has.drain_s)}; "
        f"a run may take {words.span(has.run_late_s)}: its caller gets an error, and its result goes nowhere"
    )
    return Finding("drain_under_runs", evidence, f"a drain of {words.setting_s(has.run_late_s)}")


def _scaled_late(has: Platform) -> Finding | None:
    later_s = (has.cooldown_s or 0.0) + (has.start_s or 0.0)
    if later_s == 0 or not has.peak_per_s or not has.replicas or not has.replica_per_s:
        return None
    capacity = has.replicas * has.replica_per_s
    grows = has.peak_per_s - capacity
    room = has.queue_max if has.queue_max is not None else capacity * (has.wait_max_s or 0.0)
    if grows <= 0 or not room or room / grows >= later_s:
        return None
    evidence = (
        f"at a peak of {words.rate(has.peak_per_s)}, {words.rate(grows)} more than "
        f"{has.replicas} replicas do, the line is too long after {words.span(room / grows)}; "
        f"the autoscaler's next replica serves after {words.span(later_s)}"
    )
    change = f"at least {has.needed} replicas" if has.needed else "more replicas at least"
    return Finding("scaled_too_late", evidence, f"{change} before the peak, or callers that come back later")


def _too_few(has: Platform) -> Finding | None:
    if has.replicas_max is None or has.needed is None or has.needed <= has.replicas_max:
        return None
    evidence = f"the peak needs {has.needed} replicas, and there are never more than {has.replicas_max}"
    return Finding("maximum_under_need", evidence, f"a maximum of {has.needed}")


RULES: tuple[Callable[[Platform], Finding | None], ...] = (
    _noticed_late, _one_check, _drain_runs, _scaled_late, _too_few,
)  # fmt: skip
