"""Deploy: what is written is well formed, says what the model says, and lint finds nothing in it."""

import configparser
import json
import re
import subprocess

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from forebay.config import Settings
from forebay.core.alerting import ALERTS
from forebay.core.deploying import PLACES, Model
from forebay.core.deploying.model import documents
from forebay.core.deploying.model import yaml as written
from forebay.core.linting import Known, lint
from forebay.core.linting.outline import hcl

MODEL = Model(
    app="detect.py", task="Detect", workers=4, nodes_min=2, nodes_max=10, target=150, queue_max=1000,
    queue_bytes_max=1 << 30, cpus=4.0, memory_b=4 << 30, gpus=-1, sized="60/s at 20/s a replica",
)  # fmt: skip
FILES = {place: make(MODEL) for place, make in PLACES.items()}


def loaded(place, name):
    return list(yaml.safe_load_all(FILES[place][name]))


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-9, 10**9), st.booleans(), st.none()),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(TEXTS, below, max_size=3)),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_is_read_back_from_its_yaml(value):
    assert yaml.safe_load(written(value)) == value


def test_several_documents_are_several():
    assert list(yaml.safe_load_all(documents({"a": 1}, {"b": ["x: y", "no"]}))) == [
        {"a": 1},
        {"b": ["x: y", "no"]},
    ]


@pytest.mark.parametrize(
    ("place", "name"), [(p, n) for p, files in FILES.items() for n in files], ids=lambda one: str(one)
)
def test_every_file_is_well_formed_and_clean_for_lint(place, name):
    text = FILES[place][name]
    assert text.endswith("\n")
    if name.endswith((".yaml", ".yml")):
        assert all(isinstance(one, dict) for one in yaml.safe_load_all(text))
    elif name.endswith(".json"):
        json.loads(text)
    elif name.endswith(".tf"):
        assert text.count("{") == text.count("}") and hcl(text)
    elif name.endswith(".service"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read_string(text)
        assert unit["Service"]["Restart"] == "always"
    elif name.endswith(".tftpl"):
        script = re.sub(r"\$\{(\w+)\}", r"\1", text)
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
    assert lint(f"{place}/{name}", text, Known(replica_per_s=4000.0, wait_max_s=0.05)) == []


def test_h13_compose_has_limits_all_gpus_and_a_stop_that_waits_for_the_grace():
    (document,) = loaded("compose", "compose.yaml")
    service = document["services"]["forebay"]
    resources = service["deploy"]["resources"]
    assert resources["limits"] == {"cpus": "4", "memory": "4096M"}
    assert resources["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]
    assert (
        service["environment"]["WORKER_CONCURRENCY"] == "4"
        and service["environment"]["QUEUE_MAXSIZE"] == "1000"
    )
    assert service["stop_grace_period"] == "45s"
    assert service["command"][:3] == ["forebay", "serve", "detect.py"]


def test_h2_the_autoscaler_is_of_the_api_that_clusters_serve_with_the_target_of_the_model():
    (hpa,) = loaded("k8s", "hpa.yaml")
    assert hpa["apiVersion"] == "autoscaling/v2"
    spec = hpa["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 10)
    metric = spec["metrics"][0]["external"]
    assert metric["metric"] == {
        "name": "inference_queue_length",
        "selector": {"matchLabels": {"task": "Detect"}},
    }
    assert metric["target"] == {"type": "AverageValue", "averageValue": "150"}
    scaled, key = loaded("k8s", "keda.yaml")
    assert scaled["spec"]["triggers"][0]["metadata"]["valueLocation"] == "replicas_wanted"
    assert key["kind"] == "TriggerAuthentication"


def test_what_selects_finds_what_is_there():
    (monitor,) = loaded("k8s", "servicemonitor.yaml")
    for file in ("api.yaml", "work.yaml"):
        pods, service = loaded("k8s", file)
        labels = pods["spec"]["template"]["metadata"]["labels"]
        assert pods["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        spec = pods["spec"]["template"]["spec"]
        assert spec["terminationGracePeriodSeconds"] == 45
        assert spec["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/healthz"
    (hpa,) = loaded("k8s", "hpa.yaml")
    assert hpa["spec"]["scaleTargetRef"]["name"] == pods["metadata"]["name"]


def test_the_rules_of_kubernetes_are_the_shipped_alerts():
    (rules,) = loaded("k8s", "prometheusrule.yaml")
    (group,) = rules["spec"]["groups"]
    assert len(group["rules"]) == len(ALERTS)
    assert {rule["labels"]["severity"] for rule in group["rules"]} == {"warning", "critical"}


def told(file, resource):
    return {one.key: one.value for one in hcl(FILES["aws"][file]) if one.path[0] == resource}


def test_m27_m28_m29_the_load_balancer_and_the_group_have_the_numbers():
    balancer = told("main.tf", "resource aws_lb_target_group.forebay")
    assert (balancer["interval"], balancer["healthy_threshold"], balancer["unhealthy_threshold"]) == (
        "10",
        "2",
        "2",
    )
    assert int(balancer["deregistration_delay"]) >= 30
    group = told("main.tf", "resource aws_autoscaling_group.forebay")
    assert (group["min_size"], group["max_size"], group["default_instance_warmup"]) == ("2", "10", "300")
    processor = told("main.tf", "resource aws_autoscaling_policy.forebay_cpu")
    assert processor["target_value"] == "70" and "cooldown" not in processor
    backlog = told("main.tf", "resource aws_autoscaling_policy.forebay_backlog")
    assert backlog["target_value"] == "4" and backlog["expression"] == "wanted / there"


def test_m33_i19_more_than_300_for_two_minutes_pages_by_the_name_that_the_agent_gives():
    alarm = told("alarms.tf", "resource aws_cloudwatch_metric_alarm.queue_over_300")
    assert (alarm["metric_name"], alarm["threshold"]) == ("InferenceQueueLength", "300")
    assert (alarm["period"], alarm["evaluation_periods"], alarm["task"] if "task" in alarm else "Detect") == (
        "60",
        "2",
        "Detect",
    )
    assert alarm["alarm_actions"] == "[aws_sns_topic.page.arn]"
    scrape = yaml.safe_load(FILES["aws"]["agent-prometheus.yml"])["scrape_configs"][0]
    renamed = {one["regex"]: one.get("replacement") for one in scrape["metric_relabel_configs"]}
    assert renamed["^inference_queue_length$"] == "InferenceQueueLength"
    agent = json.loads(FILES["aws"]["cloudwatch-agent.json"])["logs"]["metrics_collected"]["prometheus"]
    selectors = [
        one for row in agent["emf_processor"]["metric_declaration"] for one in row["metric_selectors"]
    ]
    names = {value for key, value in renamed.items() if value}
    assert {one.strip("^$") for one in selectors} == names


def test_every_template_variable_of_the_instances_is_given():
    wanted = set(re.findall(r"\$\{(\w+)\}", FILES["aws"]["user_data.sh.tftpl"]))
    call = re.search(r"templatefile\(.*?\{(.*?)\}\)\)", FILES["aws"]["main.tf"], re.DOTALL)[1]
    assert set(re.findall(r"^\s*(\w+)\s+=", call, re.MULTILINE)) == wanted
    variables = {one.path[0] for one in hcl(FILES["aws"]["main.tf"]) if one.path[0].startswith("variable ")}
    used = set(re.findall(r"var\.(\w+)", FILES["aws"]["main.tf"] + FILES["aws"]["alarms.tf"]))
    named = set(re.findall(r'variable "(\w+)"', FILES["aws"]["main.tf"]))
    assert used == named and variables


def test_the_dashboard_asks_for_metrics_that_are_there():
    text = FILES["k8s"]["grafana.json"]
    names = set(re.findall(r"inference_[a-z_]+", text))
    from tests.docs.test_rules import exposed

    extra = {
        "inference_gpu_utilization_ratio",
        "inference_alert_firing",
    }  # with a GPU, with a server around it
    known = exposed() | {f"{name}_bucket" for name in exposed()} | extra
    assert names - known == set()


def test_without_a_load_the_files_say_that_the_numbers_are_defaults():
    assert "defaults" in PLACES["systemd"](Model())["forebay.service"].splitlines()[0]
    assert "60/s at 20/s" in FILES["systemd"]["forebay.service"].splitlines()[0]


def test_processes_on_one_engine_are_given_what_they_must_share():
    shared = {"broker", "webhook_secret", "link_secret", "blobs"}
    (example,) = loaded("k8s", "secret.example.yaml")
    for name in ("api.yaml", "work.yaml"):
        (pod,) = loaded("k8s", name)[0]["spec"]["template"]["spec"]["containers"]
        keys = {
            one["name"]: one["valueFrom"]["secretKeyRef"]["key"] for one in pod["env"] if "valueFrom" in one
        }
        assert {f"FOREBAY_{one.upper()}" for one in shared} <= set(keys)
        assert set(keys.values()) <= set(example["stringData"])
    settings = re.search(r"<<'SETTINGS'\n(.*?)\nSETTINGS", FILES["aws"]["user_data.sh.tftpl"], re.DOTALL)[1]
    assert shared <= set(re.findall(r"^(\w+) = ", settings, re.MULTILINE)) <= set(Settings.__struct_fields__)


@pytest.mark.parametrize("place", ["systemd", "aws"])
def test_a_worker_killed_for_memory_does_not_take_the_unit_down(place):
    unit = next(text for name, text in FILES[place].items() if name.endswith(".service"))
    assert {"OOMPolicy=continue", "KillMode=mixed", "RestartPreventExitStatus=2"} <= set(unit.splitlines())
