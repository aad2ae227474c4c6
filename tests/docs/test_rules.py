"""The Prometheus rules that ship: every metric they name is exposed, and they alert where the numbers say."""

import re
from pathlib import Path

import pytest
import yaml

from forebay.core.accounts import ALERT_SHARE
from forebay.core.job import Depth
from forebay.observe.machine import MachineMeters
from forebay.observe.metrics import Exposition as Served
from forebay.pipeline.exposition import Exposition
from forebay.pipeline.live import THROTTLED_ALERT
from forebay.pipeline.report import Report

FILES = sorted((Path(__file__).parents[2] / "deploy" / "prometheus").glob("*.rules.yml"))
GROUPS = [group for file in FILES for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]]
ALL = [rule for group in GROUPS for rule in group["rules"]]
RULES = {rule.get("alert") or rule["record"]: rule for rule in ALL}
PAGE = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")
NAME = re.compile(r"\b(?:inference_[a-z_]+|forebay:[a-z_:0-9]+)")


def exposed():
    """Return every name that a pipeline or a server exposes."""
    report = Report(
        pipeline="p", state="running", seconds=1.0, streams=(), stages=(), sink_errors=0, sinks={}
    )
    machine = MachineMeters(lambda: 1.0, data=Path("/"))
    texts = [
        Exposition(lambda: report).render().decode(),
        Served(["a"], now=lambda: 1.0, depths=lambda: {"a": Depth()}, more=machine.families)
        .render()[0]
        .decode(),
    ]
    typed = [re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) for text in texts]
    return {name for found in typed for name, _ in found}


def test_the_files_are_loaded_together_without_a_name_twice():
    assert len(FILES) == 2 and len(RULES) == len(ALL)


def test_j23_every_alert_but_that_of_frames_leads_to_what_to_do():
    for name, rule in RULES.items():
        if "alert" in rule and name != "ForebayFramesDropped":
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert page == "docs/alerts.md" and f"\n### {anchor}\n" in PAGE


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_names_metrics_that_are_exposed_and_is_complete(rule):
    names = set(NAME.findall(rule["expr"]))
    assert names
    assert names - exposed() - {one["record"] for one in RULES.values() if "record" in one} == set()
    assert rule["expr"].count("(") == rule["expr"].count(")")
    if "alert" in rule:
        assert re.fullmatch(r"\d+[sm]", rule["for"])
        assert {"summary", "description"} <= set(rule["annotations"]) <= {"summary", "description", "runbook"}
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_m17_the_drop_rate_alerts_from_one_in_a_thousand_on_as_the_accounts_do():
    rule = RULES["ForebayFramesDropped"]
    assert rule["expr"].strip() == f"forebay:stream_drop_ratio:5m >= {ALERT_SHARE:g}"
    ratio = RULES["forebay:stream_drop_ratio:5m"]["expr"]
    top, bottom = ratio.split("/")
    assert "inference_dropped_total" in top and "inference_stream_frames_total" in bottom
    assert top.count("by (stream)") == bottom.count("by (stream)") == 1


def test_m18_more_than_800_for_half_a_minute_and_m2_more_than_250_for_five():
    deep, long = RULES["ForebayQueueDeep"], RULES["ForebayQueueLong"]
    assert (deep["expr"], deep["for"]) == ("inference_queue_length > 800", "30s")
    assert (long["expr"], long["for"]) == ("inference_queue_length > 250", "5m")


def test_m33_more_than_300_for_two_minutes():
    rule = RULES["ForebayQueueOver300"]
    assert (rule["expr"], rule["for"]) == ("inference_queue_length > 300", "2m")


@pytest.mark.parametrize(("age_s", "alerts"), [(599.0, False), (601.0, True)])
def test_f118_a_job_that_waits_behind_a_long_one_for_ten_minutes_alerts_though_the_queue_is_short(
    age_s, alerts
):
    name, _, limit = RULES["ForebayOldestWaits"]["expr"].partition(" > ")
    depth = Depth(queued=1, oldest_at=10_000.0 - age_s)
    text = Served(["a"], now=lambda: 10_000.0, depths=lambda: {"a": depth}).render()[0].decode()
    (value,) = re.findall(rf'^{name}{{task="a"}} (\S+)$', text, re.MULTILINE)
    assert float(value) == age_s and (float(value) > float(limit)) is alerts


def test_i17_more_than_nine_tenths_for_ten_seconds_and_i18_more_than_five_trips_an_hour():
    full, trips = RULES["ForebayQueueNearlyFull"], RULES["ForebayBreakerTrips"]
    assert full["expr"] == "inference_queue_length / (inference_queue_capacity > 0) > 0.9"
    assert full["for"] == "10s"
    assert (
        trips["expr"] == "sum by (breaker) (increase(inference_breaker_trips_total[1h])) > 5"
        and trips["for"] == "0s"
    )


def test_every_alert_of_the_contract_is_there():
    wanted = {"OldestWaits", "DeadLettersGrowing", "Stalled", "WorkerCrashLoop", "DiskNearlyFull"}
    assert {f"Forebay{name}" for name in wanted} <= set(RULES)


def test_throttling_alerts_where_the_line_on_the_terminal_does():
    assert RULES["ForebayCpuThrottled"]["expr"] == f"inference_cpu_throttled_ratio > {THROTTLED_ALERT:g}"
