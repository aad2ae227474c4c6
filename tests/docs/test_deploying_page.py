"""What deploy/ ships starts: commands and settings of the image, compose, Kubernetes and systemd are read as they stand."""

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from forebay.cli import edge
from forebay.config import load_settings
from forebay.core.units import duration_s
from forebay.node.roles import Role
from forebay.secret import new_secret
from tests.docs.test_examples import serving

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
UNIT = ROOT / "deploy" / "systemd" / "forebay.service"
KUBERNETES = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/forebay.yaml").read_text(encoding="utf-8")))
IMAGE = dict(re.findall(r"(\w+)=(\S+)", re.search(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)[1]))


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Run `forebay` with these words and variables up to where it would serve; return target, settings, role."""
    caught = []

    def serve(target, settings, role=Role.SERVE):
        caught.append((target, settings, role))
        return 0

    monkeypatch.setattr("forebay.running.serve", serve)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("FOREBAY_")]:
        monkeypatch.delenv(name)

    def run(argv, env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert edge.run(argv) == 0
        return caught.pop()

    return run


def services():
    """Return every service of the compose files that runs this image, its variables filled in."""
    told = {"POSTGRES_PASSWORD": "0f" * 24}
    found = []
    for name in ("compose.yaml", "compose-apart.yaml"):
        text = (DOCKER / name).read_text(encoding="utf-8")
        text = re.sub(r"\$\{(\w+):\?\}", lambda found: told.get(found[1]) or new_secret(), text)
        whole = yaml.safe_load(text)
        found += [
            pytest.param(one, whole, id=f"{name}-{key}")
            for key, one in whole["services"].items()
            if "build" in one
        ]
    return found


@pytest.mark.parametrize(("service", "whole"), services())
def test_a_service_of_compose_starts_with_settings_that_are_known(start, service, whole):
    program, *argv = service["command"]
    target, settings, role = start(argv, IMAGE | service["environment"])
    assert (program, target, role.value) == ("forebay", "app.py", argv[0])
    assert (settings.host, settings.port, settings.data) == ("0.0.0.0", 8080, "/data")
    assert settings.keys_file == "/run/secrets/keys" and whole["secrets"]["keys"]["file"] == "./keys.toml"
    assert (settings.broker is None) == (role is Role.SERVE)
    assert duration_s(service["stop_grace_period"]) > settings.grace
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    assert "/app/app.py" in mounted and (settings.blobs or settings.data) in mounted
    assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()


def test_the_image_serves_what_lies_at_app_and_runs_what_else_it_is_told(start):
    assert "ENTRYPOINT" not in DOCKERFILE  # `forebay deploy compose` names the whole command
    program, *argv = json.loads(re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])
    target, settings, _ = start(argv, IMAGE | {"FOREBAY_KEYS_FILE": "keys.toml"})
    assert (program, target, settings.host, settings.port) == ("forebay", "app.py", "0.0.0.0", 8080)
    for made in (
        settings.data,
        "/data/blobs",
        "/app",
    ):  # what is not there would be root's, and not be written
        assert re.search(rf"install --directory .*{made}\b", DOCKERFILE)


def test_the_health_check_of_the_image_tells_a_server_that_is_there_from_one_that_is_not(
    tmp_path, monkeypatch
):
    for name in [name for name in os.environ if name.startswith("FOREBAY_")]:
        monkeypatch.delenv(name)
    check = json.loads(re.search(r"HEALTHCHECK [^\[]*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[1])
    (tmp_path / "app.py").write_text((DOCKER / "app.py").read_text(encoding="utf-8"), encoding="utf-8")

    def asked(url):
        program = [sys.executable, "-c", check[2].replace("http://127.0.0.1:8080", url)]
        return subprocess.run(program, capture_output=True, timeout=30).returncode

    assert check[0] == "python" and "http://127.0.0.1:8080" in check[2]
    for url in serving(tmp_path, "app.py"):
        assert asked(url) == 0
    assert asked(url) != 0


def test_the_pods_start_with_settings_that_are_known(start):
    roles = []
    for deployment in (one for one in KUBERNETES if one["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        env = IMAGE | {one["name"]: one["value"] for one in container["env"]}
        env |= {name: new_secret() for name in ("FOREBAY_WEBHOOK_SECRET", "FOREBAY_LINK_SECRET")}
        env["FOREBAY_BROKER"] = "postgresql://forebay@db/forebay"
        target, settings, role = start(container["command"][1:], env)
        roles.append(role)
        assert (target, settings.host, settings.port) == ("app.py", "0.0.0.0", 8080)
        assert pod["terminationGracePeriodSeconds"] > settings.grace
        assert container["ports"] == [{"name": "http", "containerPort": settings.port}]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        mounts = {one["mountPath"] for one in container["volumeMounts"]}
        assert mounts >= {settings.data, "/tmp", str(Path(settings.keys_file).parent)}
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == labels
        assert (
            f"--from-literal={'FOREBAY_BROKER'}=" in PAGE
            and f"generic {container['envFrom'][0]['secretRef']['name']}" in PAGE
        )
        assert f"generic {pod['volumes'][0]['secret']['secretName']}" in PAGE
    assert roles == [Role.API, Role.WORK]


def test_keda_scales_the_deployment_there_is_by_the_service_there_is():
    keda = list(
        yaml.safe_load_all((ROOT / "deploy/kubernetes/workers-keda.yaml").read_text(encoding="utf-8"))
    )
    scaled = next(one for one in keda if one["kind"] == "ScaledObject")["spec"]
    named = {(one["kind"], one["metadata"]["name"]): one for one in KUBERNETES}
    args = named["Deployment", scaled["scaleTargetRef"]["name"]]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ]
    (trigger,) = scaled["triggers"]
    host, port = re.match(r"http://([a-z-]+):(\d+)/", trigger["metadata"]["url"]).groups()
    assert named["Service", host]["spec"]["ports"][0]["port"] == int(port)
    assert trigger["metadata"]["targetValue"] == args[args.index("--workers") + 1]
    (key,) = [one for one in keda if one["kind"] == "TriggerAuthentication"]
    assert trigger["authenticationRef"]["name"] == key["metadata"]["name"]
    assert (
        trigger["metadata"]["authMode"] == "bearer"
        and key["spec"]["secretTargetRef"][0]["parameter"] == "token"
    )


def test_the_unit_of_systemd_starts_and_gives_more_time_than_the_grace(start):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    env = dict(word.split("=", 1) for word in service["Environment"].split())
    program, *argv = service["ExecStart"].split()
    target, settings, role = start(argv, env)
    assert (program, target) == ("/opt/forebay/venv/bin/forebay", "/opt/forebay/app.py")
    assert (role, settings.data) == (Role.SERVE, f"/var/lib/{service['StateDirectory']}")
    assert float(service["TimeoutStopSec"]) > settings.grace
    assert service["RestartPreventExitStatus"] == str(edge.USAGE)
    assert (service["KillMode"], service["OOMPolicy"]) == ("mixed", "continue")


def test_the_page_names_files_there_are():
    named = re.findall(r"\]\(\.\./(deploy[^)]*)\)", PAGE)
    assert len(named) >= 6 and [one for one in named if not (ROOT / one).exists()] == []
    assert {one.name for one in (ROOT / "deploy").rglob("*.yaml")} - {"workers-keda.yaml"} <= set(
        re.findall(r"[\w-]+\.yaml", PAGE)
    )


def test_a_command_in_the_image_that_only_asks_needs_no_keys(tmp_path):
    assert load_settings({}, IMAGE, tmp_path).data == "/data"  # a host beyond loopback would ask for them
