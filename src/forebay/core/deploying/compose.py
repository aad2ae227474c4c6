"""compose.yaml: one host, its limits and GPUs, and what watches it."""

from typing import Any, Final

from forebay.core.alerting import prometheus_rules
from forebay.core.deploying.model import EVERYWHERE, Model, yaml
from forebay.core.deploying.watching import RULES_FILE, grafana, scrape_config


def compose_files(model: Model) -> dict[str, str]:
    """Return the files of one host."""
    document: dict[str, Any] = {
        "services": {model.name: _service(model), "prometheus": _PROMETHEUS},
        "volumes": {"data": {}},
    }
    scrape = scrape_config(f"{model.name}:{model.port}")
    key = {"type": "Bearer", "credentials_file": "/etc/prometheus/metrics.key"}
    scrape["scrape_configs"][0]["authorization"] = key
    return {
        "compose.yaml": model.head() + _HEAD + yaml(document),
        "prometheus.yml": model.head() + yaml(scrape),
        RULES_FILE: prometheus_rules(),
        "grafana.json": grafana(),
    }


_HEAD: Final = """# docker compose up; with --profile monitoring Prometheus comes too. It reads a key with
# the scope admin from metrics.key.
"""
_PROMETHEUS: Final = {
    "image": "prom/prometheus",
    "profiles": ["monitoring"],
    "volumes": [
        "./prometheus.yml:/etc/prometheus/prometheus.yml:ro",
        f"./{RULES_FILE}:/etc/prometheus/{RULES_FILE}:ro",
        "./metrics.key:/etc/prometheus/metrics.key:ro",
    ],
    "ports": ["127.0.0.1:9090:9090"],
}


def _service(model: Model) -> dict[str, Any]:
    resources: dict[str, Any] = {"limits": {"cpus": f"{model.cpus:g}", "memory": model.memory}}
    if model.gpus:
        count: Any = "all" if model.gpus < 0 else model.gpus
        device = {"driver": "nvidia", "count": count, "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [device]}
    ready = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{model.port}/healthz', timeout=2)"
    check = ["CMD", "python3", "-c", ready]
    return {
        "image": model.image,
        "command": ["forebay", "serve", model.app, "--host", EVERYWHERE, "--data", "/data"],
        "environment": {
            **model.settings(),
            "FOREBAY_PORT": str(model.port),
            "FOREBAY_API_KEYS": "${FOREBAY_API_KEYS:?a key is needed beyond loopback: KEY=TENANT}",
        },
        "ports": [f"127.0.0.1:{model.port}:{model.port}"],
        "volumes": ["data:/data"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{model.stop_s}s",
        "healthcheck": {"test": check, "interval": "10s", "timeout": "3s", "retries": 3},
        "deploy": {"resources": resources},
    }
