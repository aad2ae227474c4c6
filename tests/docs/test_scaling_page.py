"""What the page on scaling ships: the script that tells Kubernetes, the file for KEDA, the names it uses."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

import forebay
from forebay.config import Settings
from forebay.server.views import QueueView

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
COSTS = ROOT / "deploy" / "kubernetes" / "deletion-costs.sh"
KEDA = ROOT / "deploy" / "kubernetes" / "workers-keda.yaml"

KUBECTL = """#!/bin/sh
# get pod NAME … prints "NAME COST", or nothing for a pod that is gone; annotate pod NAME … is written down.
case "$1 $3" in
"get gone") ;;
"get same") printf 'same 3' ;;
"get fails") printf 'fails ' ;;
get*) printf '%s ' "$3" ;;
"annotate fails") exit 1 ;;
annotate*) printf '%s %s\\n' "$3" "$5" >>"$TOLD" ;;
esac
"""


@pytest.fixture
def told(tmp_path):
    """Run the script with these lines of `forebay nodes --costs`; return its exit code and what was told."""

    def run(lines, code=0):
        programs = {"kubectl": KUBECTL, "forebay": f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\nexit {code}\n"}
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(stat.S_IRWXU)
        told = tmp_path / "told"
        told.write_text("")
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOLD": str(told)}
        done = subprocess.run([COSTS], env=env, capture_output=True, text=True, timeout=30)
        return done.returncode, told.read_text().splitlines(), done.stderr

    return run


def test_pods_are_told_what_their_end_costs_and_idle_ones_by_the_minute(told):
    annotation = "controller.kubernetes.io/pod-deletion-cost"
    code, lines, errors = told("idle -412\nfresh -59\nfails 5\nbusy 7\nsame 3\ngone -900")
    assert lines == [f"idle {annotation}=-6", f"fresh {annotation}=0", f"busy {annotation}=7"]
    assert (code, errors) == (0, "deletion-costs: fails was not told\n")


def test_a_server_that_does_not_answer_changes_nothing_and_is_said(told):
    code, lines, _ = told("idle -412", code=3)
    assert (code, lines) == (3, [])


def test_no_nodes_are_no_mistake(told):
    assert told("") == (0, [], "")


def test_keda_is_sent_to_a_field_that_is_there_and_may_go_to_zero():
    _, document = yaml.safe_load_all(KEDA.read_text(encoding="utf-8"))
    (trigger,) = document["spec"]["triggers"]
    assert trigger["metadata"]["valueLocation"] in QueueView.__struct_fields__
    assert re.fullmatch(r"http://[a-z:0-9-]+/v1/queues/\w+", trigger["metadata"]["url"])
    assert float(trigger["metadata"]["targetValue"]) > 0
    assert document["spec"]["minReplicaCount"] == 0


def test_the_page_names_settings_and_files_there_are_and_its_class_works():
    defaults = Settings()
    assert f"`replicas_wait` ({defaults.replicas_wait:g} s" in PAGE
    assert f"`replicas_idle` ({defaults.replicas_idle:g} s" in PAGE
    for name in re.findall(r"\]\(\.\./(deploy/[^)]+)\)", PAGE):
        assert (ROOT / name).is_file(), name
    names = {}
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(block, "scaling.py", "exec"), names)
    spec = names["app"].tasks["Transcribe"].spec
    assert (spec.replicas_least, spec.replicas) == (1, 4)
    assert json.dumps(names["Transcribe"]().predict(["a"])) == '["A"]'
    assert isinstance(names["app"], forebay.App)
