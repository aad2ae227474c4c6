"""Lint: each rule on the file it is for, and on the mended one; and files that are none of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.linting import RULES, Known, kind_of, lint
from forebay.core.linting.outline import hcl, value_of, yaml_documents

GITLAB = """\
stages: [build, integration]
variables:
  URL: http://models:8080
build:
  stage: build
  script:
    - make
inference_test:
  stage: integration
  parallel:
    matrix:
      - MODEL_VERSION: ["v1.2.0", "v1.2.1", "v1.2.2"]
  script:
    - |
      for i in $(seq 1 1200); do
        curl -X POST $URL/v1/predict/Detect -d @frame.json &
        if [ $((i % 300)) -eq 0 ]; then
          wait; sleep 2
        fi
      done
"""
GITHUB = """\
on: [push]
jobs:
  smoke:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        model:
          - a
          - b
        region: [eu, us]
    steps:
      - uses: actions/checkout@v4
      - run: forebay submit Detect @frames.ndjson --rate 300/s  # paced
"""
TERRAFORM = """\
resource "aws_launch_configuration" "old" {
  instance_type = "t2.large" # slow when its credits are gone
}
resource "aws_autoscaling_group" "models" {
  min_size = 3
  max_size = 3
}
resource "aws_autoscaling_policy" "cpu" {
  policy_type = "TargetTrackingScaling"
  cooldown    = 300
  target_tracking_configuration {
    predefined_metric_specification {
      predefined_metric_type = "ASGAverageCPUUtilization"
    }
    target_value = 70
  }
}
resource "aws_lb_target_group" "models" {
  deregistration_delay = 5
  health_check {
    path                = "/healthz"
    interval            = 30
    timeout             = 30
    unhealthy_threshold = 3
  }
}
"""
HPA = """\
apiVersion: autoscaling/v2beta2
kind: HorizontalPodAutoscaler
metadata: {name: detector}
spec:
  minReplicas: 4
  maxReplicas: 4
  metrics:
    - type: Pods
      pods:
        metric: {name: inference_queue_length}
        target: {type: AverageValue, averageValue: "200"}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: api
          command: ["forebay", "work", "app.py"]
"""
COMPOSE = """\
services:
  detector:
    image: detector
    command: forebay serve app.py --host 0.0.0.0
    environment:
      - WORKER_CONCURRENCY=4
      - QUEUE_MAXSIZE=1000
      - DROP_THRESHOLD=900
      - DEGRADE_THRESHOLD=950
    deploy:
      resources:
        limits:
          cpus: "2.0"
          memory: 4G
"""
UNIT = """\
[Service]
ExecStart=/opt/venv/bin/gunicorn -w 1 -k sync \\
  -k uvicorn.workers.UvicornWorker forebay.asgi:app
"""
STOPS = "[Service]\nExecStart=/usr/bin/forebay serve app.py\nRestart=always\nTimeoutStopSec=10\n"
START = "#!/bin/sh\nexec gunicorn -w $((2 * $(nproc) + 1)) -k uvicorn.workers.UvicornWorker app:app\n"
CODE = "import queue\nfrom queue import Queue\nfirst = queue.Queue()  # grows\nsecond = Queue(maxsize=0)\nthird = Queue(64)\n"
KNOWN = Known(replica_per_s=4000.0, wait_max_s=0.05, item_b=6_220_800)

CASES = [
    ("ci/.gitlab-ci.yml", GITLAB, [("ci-no-rate-limit", 16), ("ci-sleep-is-no-rate", 18)]),
    (".github/workflows/smoke.yml", GITHUB, [("ci-rate-times-jobs", 13)]),
    (
        "main.tf",
        TERRAFORM,
        [("asg-launch-configuration", 1), ("burst-credits", 2), ("asg-cannot-grow", 6), ("asg-cooldown-ignored", 10),
         ("asg-follows-cpu", 13), ("alb-cuts-answers", 19), ("alb-slow-to-notice", 20), ("alb-check-overlaps", 20)],
    ),
    (
        "k8s/hpa.yaml",
        HPA,
        [("hpa-removed-api", 1), ("hpa-cannot-grow", 6), ("hpa-target-waits", 11), ("pod-grace-too-short", 14)],
    ),
    (
        "docker-compose.yml",
        COMPOSE,
        [("compose-grace-too-short", 2), ("compose-queue-over-memory", 7), ("thresholds-crossed", 9),
         ("compose-few-cpus", 13)],
    ),
    ("models.service", UNIT, [("gunicorn-class-twice", 2), ("gunicorn-one-worker", 2), ("unit-stays-down", 2)]),
    ("forebay.service", STOPS, [("unit-grace-too-short", 4)]),
    ("start.sh", START, [("gunicorn-async-workers", 2)]),
    ("app/queues.py", CODE, [("code-unbounded-queue", 3), ("code-unbounded-queue", 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_each_rule_finds_what_it_is_for_in_its_line(name, text, wanted):
    found = [(one.rule, one.line) for one in lint(name, text, KNOWN)]
    assert sorted(found) == sorted(wanted)


def test_every_rule_has_a_file_that_breaks_it_here():
    assert {rule for _, _, wanted in CASES for rule, _ in wanted} == set(RULES)


MENDED = [
    (".gitlab-ci.yml", GITLAB.replace("for i in", "export rate_limit=300\n      for i in").replace("sleep 2", "true")
     .replace('["v1.2.0", "v1.2.1", "v1.2.2"]', '["v1.2.0"]')),
    (".gitlab-ci.yml", "inference:\n  stage: integration\n  variables:\n    rate_limit: 300\n  script:\n    - ./send.sh\n"),
    (".github/workflows/smoke.yml", GITHUB.replace("--rate 300/s", "--rate 300/s --budget ci")),
    ("main.tf", """\
resource "aws_autoscaling_group" "models" {
  min_size = 2
  max_size = 10
}
resource "aws_lb_target_group" "models" {
  deregistration_delay = 30
  health_check {
    interval            = 10
    unhealthy_threshold = 2
  }
}
"""),
    ("hpa.yaml", HPA.replace("v2beta2", "v2").replace("maxReplicas: 4", "maxReplicas: 10").replace('"200"', '"150"')
     .replace("    spec:\n      containers", "    spec:\n      terminationGracePeriodSeconds: 45\n      containers")),
    ("compose.yml", COMPOSE.replace("QUEUE_MAXSIZE=1000", "QUEUE_MAXSIZE=500").replace("=950", "=850")
     .replace('"2.0"', '"4.0"').replace("    environment", "    stop_grace_period: 45s\n    environment")),
    ("forebay.service", STOPS.replace("=10", "=45")),
    ("start.sh", START.replace("$((2 * $(nproc) + 1))", "$(nproc)")),
    ("queues.py", "import queue\nfirst = queue.Queue(64)\nrequest.Queue()\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), MENDED, ids=[f"{n}-{case[0]}" for n, case in enumerate(MENDED)])
def test_what_is_mended_is_clean(name, text):
    assert lint(name, text, KNOWN) == []


def test_a_target_of_an_autoscaler_is_judged_by_what_a_replica_does_and_what_is_allowed():
    text = HPA.replace('"200"', '"160"')
    assert "hpa-target-waits" not in {one.rule for one in lint("hpa.yaml", text, KNOWN)}
    slower = KNOWN._replace(replica_per_s=2000.0)
    (found,) = (one for one in lint("hpa.yaml", text, slower) if one.rule == "hpa-target-waits")
    assert "0.08 s" in found.evidence and "80" in found.change
    assert "hpa-target-waits" not in {one.rule for one in lint("hpa.yaml", text, Known())}, (
        "not known: not said"
    )


def test_a_finding_is_waved_through_by_name_on_its_line_or_above():
    for text in (CODE.replace("# grows", "# forebay: ignore code-unbounded-queue"),
                 CODE.replace("first =", "# forebay: ignore code-unbounded-queue\nfirst =")):  # fmt: skip
        assert [one.rule for one in lint("q.py", text, KNOWN)] == ["code-unbounded-queue"]
    other = CODE.replace("# grows", "# forebay: ignore burst-credits")
    assert len(lint("q.py", other, KNOWN)) == 2


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a/.github/workflows/x.yml", "", "pipeline"), ("x/.gitlab-ci.yml", "", "pipeline"),
        ("ci.yaml", "stages:\n  - a\n", "pipeline"), ("x.yml", "apiVersion: v1\nkind: Pod\n", "kubernetes"),
        ("x.yml", "services:\n  a: {}\n", "compose"), ("values.yaml", "a: 1\n", None), ("x.tf", "", "terraform"),
        ("x.service", "", "unit"), ("Dockerfile", "", "commands"), ("Dockerfile.gpu", "", "commands"),
        ("README.md", "gunicorn -w 1", None), ("x.py", "", "code"),
    ],
)  # fmt: skip
def test_which_rules_look_at_a_file_is_told_by_its_name_and_what_it_says(name, text, kind):
    assert kind_of(name, text) == kind


def test_an_outline_of_yaml_knows_lists_flows_comments_and_documents():
    first, second = yaml_documents("a:\n  - b: 1\n    c: 'x # y'  # z\n  - d: {e: 2}\n---\nf: [1, 2]\n")
    assert value_of(first, "a", "0", "b").value == "1" and value_of(first, "a", "0", "c").value == "x # y"
    assert value_of(first, "a", "1", "d", "e").value == "2" and value_of(first, "a", "1", "d", "e").line == 4
    assert value_of(second, "f").value == "[1, 2]"


def test_an_outline_of_terraform_knows_blocks_in_blocks():
    entries = hcl('resource "a" "b" {\n  c {\n    d = "1"\n  }\n  e = 2\n}\nf = 3\n')
    assert [(one.key, one.value) for one in entries if one.value] == [("d", "1"), ("e", "2"), ("f", "3")]
    assert value_of(entries, "f") is not None and value_of(entries, "resource a.b", "e").line == 5


@given(
    st.text(max_size=400),
    st.sampled_from(["x.tf", ".gitlab-ci.yml", "compose.yml", "k.yaml", "a.service", "a.sh", "a.py"]),
)
def test_no_text_breaks_it(text, name):
    for one in lint(name, "apiVersion: v1\nkind: Pod\n" + text if name == "k.yaml" else text, KNOWN):
        assert one.rule in RULES and one.line >= 1 and one.evidence and one.change
