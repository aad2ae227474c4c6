"""The Prometheus rules that ship: every metric they name is exposed, and they alert where the numbers say."""

import re
from pathlib import Path

import pytest
import yaml

from forebay.core.accounts import ALERT_SHARE
from forebay.core.job import Depth
from forebay.observe.metrics import Exposition as Served
from forebay.pipeline.exposition import Exposition
from forebay.pipeline.live import THROTTLED_ALERT
from forebay.pipeline.report import Report

FILE = Path(__file__).parents[2] / "deploy" / "prometheus" / "streams.rules.yml"
(GROUP,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
RULES = {rule.get("alert") or rule["record"]: rule for rule in GROUP["rules"]}
NAME = re.compile(r"\b(?:inference_[a-z_]+|forebay:[a-z_:0-9]+)")


def exposed():
    """Return every name that a pipeline or a server exposes."""
    report = Report(
        pipeline="p", state="running", seconds=1.0, streams=(), stages=(), sink_errors=0, sinks={}
    )
    texts = [
        Exposition(lambda: report).render().decode(),
        Served(["a"], now=lambda: 1.0, depths=lambda: {"a": Depth()}).render()[0].decode(),
    ]
    typed = [re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE) for text in texts]
    return {name for found in typed for name, _ in found}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_names_metrics_that_are_exposed_and_is_complete(rule):
    names = set(NAME.findall(rule["expr"]))
    assert names
    assert names - exposed() - {one["record"] for one in RULES.values() if "record" in one} == set()
    assert rule["expr"].count("(") == rule["expr"].count(")")
    if "alert" in rule:
        assert re.fullmatch(r"\d+[sm]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "description"}
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


def test_throttling_alerts_where_the_line_on_the_terminal_does():
    assert RULES["ForebayCpuThrottled"]["expr"] == f"inference_cpu_throttled_ratio > {THROTTLED_ALERT:g}"
