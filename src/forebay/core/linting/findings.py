"""What a lint finds, its rules by name, and what it may be told of the service."""

from enum import IntEnum
from typing import Final, NamedTuple


class Level(IntEnum):
    """How sure it is that something goes wrong."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Rule(NamedTuple):
    """One rule: what it is about in one line."""

    level: Level
    text: str


class Lint(NamedTuple):
    """One finding in one file. `line` begins at 1."""

    rule: str
    line: int
    evidence: str
    change: str

    @property
    def level(self) -> Level:
        """How sure it is."""
        return RULES[self.rule].level


class Known(NamedTuple):
    """What the caller knows of the service; a rule that needs what is None says nothing."""

    replica_per_s: float | None = None
    wait_max_s: float | None = None
    item_b: int | None = None
    grace_s: float = 30.0  # what a node gives its running work at a stop


_E, _W = Level.ERROR, Level.WARNING
RULES: Final[dict[str, Rule]] = {
    "ci-no-rate-limit": Rule(_E, "a pipeline sends to an inference server without a rate"),
    "ci-rate-times-jobs": Rule(_W, "jobs that run at once each keep a rate of their own"),
    "ci-sleep-is-no-rate": Rule(_W, "a loop that sleeps is no rate: it sends as fast as it can in between"),
    "asg-cooldown-ignored": Rule(_E, "target tracking has no cooldown"),
    "asg-launch-configuration": Rule(_W, "launch configurations take no new instance types"),
    "asg-cannot-grow": Rule(_W, "a group whose least and most are the same cannot take a burst"),
    "asg-follows-cpu": Rule(_W, "the processor is busy only after the burst is there"),
    "burst-credits": Rule(_W, "an instance type that is fast only while it has credits"),
    "alb-slow-to-notice": Rule(_W, "a dead target gets requests until enough checks have failed"),
    "alb-check-overlaps": Rule(_E, "a health check may not take longer than the time between two"),
    "alb-cuts-answers": Rule(_W, "a leaving target is cut before its work has ended"),
    "hpa-removed-api": Rule(_E, "an API version that clusters do not serve any more"),
    "hpa-cannot-grow": Rule(_W, "an autoscaler whose least and most are the same"),
    "hpa-target-waits": Rule(_E, "the target itself is a longer wait than is allowed"),
    "pod-grace-too-short": Rule(_W, "a pod is killed before its work has had its grace"),
    "compose-grace-too-short": Rule(_W, "a container is killed before its work has had its grace"),
    "compose-few-cpus": Rule(_W, "fewer CPUs than workers"),
    "compose-queue-over-memory": Rule(_E, "the queue may hold more than the memory limit"),
    "thresholds-crossed": Rule(_E, "what is dropped first is never degraded"),
    "gunicorn-one-worker": Rule(_W, "one worker uses one CPU"),
    "gunicorn-class-twice": Rule(_E, "of two worker classes the last one wins"),
    "gunicorn-async-workers": Rule(
        _W, "2 x CPUs + 1 is for workers that wait; async ones need one for each CPU"
    ),
    "unit-grace-too-short": Rule(_W, "a unit is killed before its work has had its grace"),
    "unit-stays-down": Rule(_W, "a unit that is not started again after a crash"),
    "code-unbounded-queue": Rule(_W, "a queue without a bound grows until memory ends"),
}
