"""What every place is watched by: scrape, rules, and a Grafana dashboard, from the alerts and the metrics."""

import json
from typing import Any, Final

from forebay.core.alerting import ALERTS, Signal, camel, promql, span, subject_label

_PANELS: Final = (
    ("Waiting, and the largest between scrapes", "short",
     (("inference_queue_length", "{{task}}"), ("inference_queue_length_peak", "{{task}} peak"))),
    ("Share of the bound", "percentunit",
     (("inference_queue_length / (inference_queue_capacity > 0)", "{{task}}"),)),
    ("Coming and done, a second", "reqps",
     (("sum by (task) (rate(inference_arrivals_total[1m]))", "{{task}} in"),
      ('sum by (task) (rate(inference_attempts_total{outcome="completed"}[1m]))', "{{task}} done"))),
    ("Refused, a second", "reqps",
     (('sum by (task, reason) (rate(inference_admission_total{decision="refused"}[1m]))',
       "{{task}} {{reason}}"),)),
    ("Latency, accepted to final", "s",
     tuple((f"histogram_quantile({q}, sum by (task, le) (rate(inference_latency_seconds_bucket[5m])))",
            f"{{{{task}}}} p{q * 100:g}") for q in (0.5, 0.95, 0.99))),
    ("Oldest that waits", "s", (("inference_queue_oldest_age_seconds", "{{task}}"),)),
    ("Workers that serve, and that were started again", "short",
     (("sum(inference_worker_up)", "up"),
      ("sum by (reason) (increase(inference_worker_restarts_total[1h]))", "{{reason}}"))),
    ("What a CPU quota cuts; GPUs", "percentunit",
     (("inference_cpu_throttled_ratio", "throttled"), ("inference_gpu_utilization_ratio", "GPU {{gpu}}"))),
    ("Dead letters", "short", (("inference_dead_letters", "{{task}}"),)),
    ("Frames dropped, share", "percentunit",
     (("inference_drop_ratio", "{{stream}}"),)),
    ("ETA: share that ended by the time told", "percentunit",
     (("inference_eta_coverage_ratio", "{{task}} {{quantile}}"),)),
    ("Alerts that fire", "short", (("inference_alert_firing", "{{alert}} {{subject}}"),)),
)  # fmt: skip


def grafana() -> str:
    """Return a dashboard to import; it asks for its Prometheus."""
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": list[Any]()},
            "targets": [
                {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
                for place, (expr, legend) in enumerate(queries)
            ],
        }
        for number, (title, unit, queries) in enumerate(_PANELS)
    ]
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    document = {
        "title": "Forebay", "uid": "forebay", "schemaVersion": 39, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "templating": {"list": [source]}, "panels": panels,
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def rule_groups() -> list[dict[str, Any]]:
    """Return the shipped alerts as the groups of a PrometheusRule."""
    rules = [
        {
            "alert": f"Forebay{camel(alert.name)}",
            "expr": promql(alert),
            "for": span(alert.for_s),
            "labels": {"severity": alert.severity.value},
            "annotations": {
                "summary": alert.says.format(subject="{{ $labels." + subject_label(alert) + " }}"),
                "description": f"{{{{ $value }}}}: {alert.look}",
            },
        }
        for alert in ALERTS
    ]
    return [{"name": "forebay", "rules": rules}]


def scrape_config(address: str) -> dict[str, Any]:
    """Return a prometheus.yml for one address."""
    return {
        "global": {"scrape_interval": "10s"},
        "rule_files": ["forebay.rules.yml"],
        "scrape_configs": [{"job_name": "forebay", "static_configs": [{"targets": [address]}]}],
    }


RULES_FILE: Final = "forebay.rules.yml"

# What CloudWatch can hold of the alerts: a value above a limit, by the name the agent gives the metric.
CLOUDWATCH: Final = {
    Signal.DEPTH: ("InferenceQueueLength", "inference_queue_length"),
    Signal.OLDEST_S: ("InferenceQueueOldestAge", "inference_queue_oldest_age_seconds"),
    Signal.THROTTLED: ("InferenceCpuThrottledRatio", "inference_cpu_throttled_ratio"),
    Signal.DISK_USED: ("InferenceDiskUsedRatio", "inference_disk_used_ratio"),
}
