"""Kubernetes: `forebay api` and `forebay work` apart, scaled by an HPA or by KEDA, and watched."""

from typing import Any, Final

from forebay.core.deploying.model import EVERYWHERE, Model, documents, yaml
from forebay.core.deploying.watching import grafana, rule_groups

CALM_S: Final = 120  # of load that went down, before pods end


def kubernetes_files(model: Model) -> dict[str, str]:
    """Return the objects, a kind a file."""
    api, work = f"{model.name}-api", f"{model.name}-work"
    monitor = {
        **_named("monitoring.coreos.com/v1", "ServiceMonitor", model.name),
        "spec": {
            "selector": {"matchLabels": {"app": model.name}},
            "endpoints": [
                {
                    "port": "http",
                    "interval": "10s",
                    "authorization": {"credentials": {"name": model.name, "key": "metrics-key"}},
                }
            ],
        },
    }
    rules = {
        **_named("monitoring.coreos.com/v1", "PrometheusRule", model.name),
        "spec": {"groups": rule_groups()},
    }
    return {
        "api.yaml": model.head() + documents(_pods(model, api, "api"), _service(model, api)),
        "work.yaml": model.head()
        + documents(_pods(model, work, "work"), _service(model, work, headless=True)),
        "secret.example.yaml": "# Fill it in, and keep it out of the repository.\n" + yaml(_secret(model)),
        "hpa.yaml": model.head()
        + "# One of hpa.yaml and keda.yaml, not both. This one needs an adapter that serves the metrics of\n"
        + "# Prometheus as external ones.\n"
        + yaml(_hpa(model, work)),
        "keda.yaml": model.head() + documents(_keda(model, api, work), _keda_key(model)),
        "servicemonitor.yaml": yaml(monitor),
        "prometheusrule.yaml": yaml(rules),
        "grafana.json": grafana(),
    }


# What processes on one engine must have in common: else each makes its own, and none can open the other's.
_SHARED: Final = {
    "FOREBAY_BROKER": "broker",
    "FOREBAY_API_KEYS": "api-keys",
    "FOREBAY_WEBHOOK_SECRET": "webhook-secret",
    "FOREBAY_LINK_SECRET": "link-secret",
    "FOREBAY_BLOBS": "blobs",
}


def _named(api: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": {"app": name}}}


def _pods(model: Model, name: str, role: str) -> dict[str, Any]:
    works = role == "work"
    limits: dict[str, Any] = {"memory": f"{model.memory}i" if works else "512Mi"}
    if works and model.gpus:
        limits["nvidia.com/gpu"] = max(1, model.gpus)
    secret = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": model.name, "key": key}}}
        for variable, key in _SHARED.items()
    ]
    container = {
        "name": role,
        "image": model.image,
        "command": ["forebay", role, model.app, "--host", EVERYWHERE, "--port", str(model.port)],
        "env": [*({"name": one, "value": value} for one, value in model.settings().items()), *secret],
        "ports": [{"name": "http", "containerPort": model.port}],
        "resources": {
            "requests": {"cpu": f"{model.cpus if works else 0.5:g}", "memory": limits["memory"]},
            "limits": limits,
        },
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5},
    }
    spec = {"terminationGracePeriodSeconds": model.stop_s, "containers": [container]}
    labels = {"app": model.name, "role": role}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": model.nodes_min if works else 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _service(model: Model, name: str, *, headless: bool = False) -> dict[str, Any]:
    role = name.rpartition("-")[2]
    spec: dict[str, Any] = {
        "selector": {"app": model.name, "role": role},
        "ports": [{"name": "http", "port": model.port, "targetPort": "http"}],
    }
    labels = {"app": model.name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {**({"clusterIP": "None"} if headless else {}), **spec},
    }


def _secret(model: Model) -> dict[str, Any]:
    told = {
        "broker": model.broker,
        "api-keys": "KEY=TENANT",
        "metrics-key": "a key with the scope admin",
        "webhook-secret": "whsec_ and what openssl rand -base64 32 prints",
        "link-secret": "another one",
        "blobs": "s3://bucket/prefix",
    }
    return {**_named("v1", "Secret", model.name), "stringData": told}


def _hpa(model: Model, work: str) -> dict[str, Any]:
    metric = {"name": "inference_queue_length", "selector": {"matchLabels": {"task": model.task or "TASK"}}}
    target = {"type": "AverageValue", "averageValue": str(model.target)}
    return {
        **_named("autoscaling/v2", "HorizontalPodAutoscaler", work),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work},
            "minReplicas": model.nodes_min,
            "maxReplicas": model.nodes_max,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": CALM_S}},
        },
    }


def _keda(model: Model, api: str, work: str) -> dict[str, Any]:
    trigger = {
        "type": "metrics-api",
        "metadata": {
            "url": f"http://{api}:{model.port}/v1/queues/{model.task or 'TASK'}",
            "valueLocation": "replicas_wanted",
            "targetValue": str(model.workers),
            "authMode": "bearer",
        },
        "authenticationRef": {"name": model.name},
    }
    return {
        **_named("keda.sh/v1alpha1", "ScaledObject", work),
        "spec": {
            "scaleTargetRef": {"name": work},
            "minReplicaCount": model.nodes_min,
            "maxReplicaCount": model.nodes_max,
            "pollingInterval": 15,
            "cooldownPeriod": CALM_S,
            "triggers": [trigger],
        },
    }


def _keda_key(model: Model) -> dict[str, Any]:
    key = {"parameter": "token", "name": model.name, "key": "metrics-key"}
    return {
        **_named("keda.sh/v1alpha1", "TriggerAuthentication", model.name),
        "spec": {"secretTargetRef": [key]},
    }
