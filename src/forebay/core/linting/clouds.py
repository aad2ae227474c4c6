"""Rules over Terraform: groups that scale, load balancers before them, and what they run on."""

import re
from collections.abc import Iterator
from typing import Final

from forebay.core.linting.findings import Known, Lint
from forebay.core.linting.outline import Entry, below, hcl, number_of

NOTICE_MAX_S: Final = 30.0  # until a dead target gets nothing more
_BURSTABLE: Final = re.compile(r"^t[1-9][a-z]{0,2}\.\w+$")
_DEFAULTS: Final = {"interval": 30.0, "unhealthy_threshold": 3.0, "timeout": 5.0}


def terraform_rules(text: str, known: Known) -> Iterator[Lint]:
    """Yield what is wrong with the resources of a file."""
    entries = hcl(text)
    for root in dict.fromkeys(one.path[:1] for one in entries if one.path):
        kind, _, name = root[0].partition(" ")[2].partition(".")
        own = below(entries, root)
        match kind:
            case "aws_autoscaling_group":
                yield from _group(name, own)
            case "aws_autoscaling_policy":
                yield from _policy(name, own)
            case "aws_launch_configuration":
                yield Lint(
                    "asg-launch-configuration",
                    own[0].line,
                    f"{name} is a launch configuration",
                    "aws_launch_template",
                )
            case "aws_lb_target_group" | "aws_alb_target_group":
                yield from _targets(name, own, known)
            case _:
                pass
    for entry in entries:
        if entry.key == "instance_type" and _BURSTABLE.match(entry.value):
            yield Lint(
                "burst-credits",
                entry.line,
                f"{entry.value} is slow once its credits are spent",
                "a type of the m, c or g family; or unlimited mode and an alarm on CPUCreditBalance",
            )


def _last(entries: list[Entry], key: str) -> Entry | None:
    return next((one for one in reversed(entries) if one.key == key), None)


def _group(name: str, entries: list[Entry]) -> Iterator[Lint]:
    least, most = (_last(entries, key) for key in ("min_size", "max_size"))
    if (
        least is not None
        and most is not None
        and number_of(least) is not None
        and number_of(least) == number_of(most)
    ):
        yield Lint(
            "asg-cannot-grow",
            most.line,
            f"{name} has always {most.value} instances",
            "max_size above min_size; forebay size says how many",
        )


def _policy(name: str, entries: list[Entry]) -> Iterator[Lint]:
    tracking = any(one.value == "TargetTrackingScaling" for one in entries) or any(
        "target_tracking_configuration" in part for one in entries for part in one.path
    )
    cooldown = _last(entries, "cooldown")
    if tracking and cooldown is not None:
        yield Lint(
            "asg-cooldown-ignored",
            cooldown.line,
            f"{name} tracks a target and sets cooldown = {cooldown.value}",
            "estimated_instance_warmup; a cooldown is for simple scaling alone",
        )
    follows = next((one for one in entries if one.value == "ASGAverageCPUUtilization"), None)
    if follows is not None:
        yield Lint(
            "asg-follows-cpu",
            follows.line,
            f"{name} follows the processor",
            "track the backlog: replicas_wanted of GET /v1/queues/TASK as a metric (forebay deploy aws); "
            "forebay submit --announce before a burst",
        )


def _targets(name: str, entries: list[Entry], known: Known) -> Iterator[Lint]:
    checks = [one for one in entries if any(part.startswith("health_check@") for part in one.path)]
    if checks:
        told = {key: number_of(_last(checks, key)) for key in _DEFAULTS}
        every, failed, takes = (
            told[key] if told[key] is not None else least for key, least in _DEFAULTS.items()
        )
        assert every is not None and failed is not None and takes is not None
        if every * failed > NOTICE_MAX_S:
            yield Lint(
                "alb-slow-to-notice",
                checks[0].line,
                f"{name}: {failed:g} checks {every:g} s apart: dead ones are kept for {every * failed:g} s",
                "interval = 10, unhealthy_threshold = 2",
            )
        if takes >= every:
            yield Lint(
                "alb-check-overlaps",
                checks[0].line,
                f"{name}: a check may take {takes:g} s and there is one each {every:g} s",
                "a timeout below the interval",
            )
    delay = _last(entries, "deregistration_delay")
    waits_s = number_of(delay)
    if delay is not None and waits_s is not None and waits_s < known.grace_s:
        yield Lint(
            "alb-cuts-answers",
            delay.line,
            f"{name} cuts a leaving target after {waits_s:g} s; its work has {known.grace_s:g} s",
            f"deregistration_delay = {known.grace_s:g} or more, or a shorter grace",
        )
