"""CloudWatch: alarms that page, and what the agent on each instance scrapes and names."""

import json
from typing import Final

from forebay.core.alerting import ALERTS, Alert, Signal, camel
from forebay.core.deploying.model import Model, yaml
from forebay.core.deploying.watching import CLOUDWATCH

SPACE: Final = "Forebay"
PERIOD_S: Final = 60
WANTED: Final = ("InferenceReplicasWanted", "inference_replicas_wanted")
_OF_TASKS: Final = frozenset({Signal.DEPTH, Signal.OLDEST_S})

_TOPIC: Final = """
resource "aws_sns_topic" "page" {
  name = "forebay-page"
}

resource "aws_sns_topic_subscription" "page" {
  topic_arn = aws_sns_topic.page.arn
  protocol  = "email"
  endpoint  = var.page_to
}
"""


def alarms(model: Model) -> str:
    """Return the topic that pages, and an alarm for each alert that CloudWatch can hold."""
    return _TOPIC + "".join(_alarm(model, alert) for alert in ALERTS)


def _alarm(model: Model, alert: Alert) -> str:
    """Return the alarm of one alert, nothing for what CloudWatch cannot hold."""
    found = CLOUDWATCH.get(alert.signal)
    if found is None:
        return ""
    task = model.task or "TASK"
    dimension = f'\n  dimensions          = {{ task = "{task}" }}' if alert.signal in _OF_TASKS else ""
    periods = max(1, round(alert.for_s / PERIOD_S))
    return f"""
resource "aws_cloudwatch_metric_alarm" "{alert.name}" {{
  alarm_name          = "{camel(model.name)}{camel(alert.name)}"
  alarm_description   = {json.dumps(f"{alert.says.format(subject=model.task or 'TASK')}: {alert.look}")}
  namespace           = "{SPACE}"
  metric_name         = "{found[0]}"{dimension}
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = {alert.limit:g}
  period              = {PERIOD_S}
  evaluation_periods  = {periods}
  datapoints_to_alarm = {periods}
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.page.arn]
  ok_actions          = [aws_sns_topic.page.arn]
}}
"""


def scrape(model: Model) -> str:
    """Return what the agent scrapes. It names metrics as CloudWatch's users expect them."""
    renamed = [
        {"source_labels": ["__name__"], "regex": f"^{old}$", "target_label": "__name__", "replacement": new}
        for new, old in (*CLOUDWATCH.values(), WANTED)
    ]
    kept = {"source_labels": ["__name__"], "regex": "Inference.*", "action": "keep"}
    job = {
        "job_name": "forebay",
        "static_configs": [{"targets": [f"127.0.0.1:{model.port}"]}],
        "authorization": {"type": "Bearer", "credentials_file": "/etc/forebay/metrics.key"},
        "metric_relabel_configs": [*renamed, kept],
    }
    return yaml({"global": {"scrape_interval": "15s"}, "scrape_configs": [job]})


def agent() -> str:
    """Return the settings of the agent."""
    by_task = [WANTED[0], *(new for signal, (new, _) in CLOUDWATCH.items() if signal in _OF_TASKS)]
    alone = [new for signal, (new, _) in CLOUDWATCH.items() if signal not in _OF_TASKS]
    declared = [
        {
            "source_labels": ["job"],
            "label_matcher": "forebay",
            "dimensions": dimensions,
            "metric_selectors": [f"^{name}$" for name in names],
        }
        for dimensions, names in (([["task"]], by_task), ([list[str]()], alone))
    ]
    prometheus = {
        "prometheus_config_path": "/etc/forebay/agent-prometheus.yml",
        "emf_processor": {"metric_namespace": SPACE, "metric_declaration": declared},
    }
    return json.dumps({"logs": {"metrics_collected": {"prometheus": prometheus}}}, indent=2) + "\n"
