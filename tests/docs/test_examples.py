"""Every example in the pages runs: their applications are declared, called, served and asked."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import typer.main

import forebay
from forebay.cli.app import app
from forebay.config import load_settings
from forebay.node.describe import describe_app
from forebay.secret import new_secret
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TASKS = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
WEBHOOKS = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
EXAMPLES = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
START_WAIT_MAX_S = 60.0


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def pages_with_python():
    return [
        page
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if blocks("python", page.read_text())
    ]


@pytest.mark.parametrize("page", pages_with_python(), ids=lambda page: page.name)
def test_every_python_example_is_python(page):
    for number, block in enumerate(blocks("python", page.read_text(encoding="utf-8"))):
        compile(block, f"{page.name}[{number}]", "exec")


def test_the_first_example_declares_two_tasks_that_work_without_a_server():
    names = {}
    exec(compile(blocks("python")[0], "shout.py", "exec"), names)
    assert sorted(names["app"].tasks) == ["Shout", "echo"]
    assert names["echo"]("hello") == "hello"
    shout = names["Shout"]()
    shout.load(forebay.Device())
    assert shout.predict(["hello", "you"]) == ["HELLO!", "YOU!"]


@pytest.fixture
def tasks_file(tmp_path):
    """The application of the page on tasks, all its blocks in one file."""
    path = tmp_path / "tasks_page.py"
    path.write_text("\n".join(blocks("python", TASKS)), encoding="utf-8")
    return path


@pytest.fixture
def tasks_module(tasks_file, monkeypatch):
    spec = importlib.util.spec_from_file_location("tasks_page", tasks_file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tasks_page", module)
    spec.loader.exec_module(module)
    return module


def test_every_task_of_the_page_on_tasks_is_declared_and_can_be_described(tasks_file, tasks_module):
    described = describe_app(str(tasks_file), env=dict(os.environ), timeout_s=60.0)
    assert [task.name for task in described.tasks] == list(tasks_module.app.tasks)
    schemas = {task.name: task.input_schema for task in described.tasks}
    assert schemas["anything"] == {}
    assert all(schemas[name] for name in ("area", "mirror", "grow", "double"))


def test_the_functions_of_the_page_on_tasks_work_without_a_server(tasks_module):
    score = tasks_module.Score()
    score.load(forebay.Device())
    score.warm_up()
    good, unknown = score.predict(["good", "?"])
    assert (good, unknown.permanent, score.device) == (1.0, True, "cpu")
    assert tasks_module.steps(2, forebay.Context()) == "attempt 1"
    with pytest.raises(forebay.Retry) as told:
        tasks_module.careful("busy")
    assert told.value.after_s == 1.0


def test_the_settings_of_the_readme_are_settings(tmp_path):
    (tmp_path / "forebay.toml").write_text(blocks("toml")[0], encoding="utf-8")
    settings = load_settings(env={}, cwd=tmp_path)
    assert (settings.workers, settings.queue_max, settings.retention) == (2, 50_000, 43_200.0)


def test_benches_that_pages_name_answer_help():
    named = set(re.findall(r"`python (-m bench\.\w+|bench/\w+\.py)", README))
    assert len(named) == 11
    for arguments in [name.split() for name in sorted(named)] + [["bench/sim.py"]]:
        done = subprocess.run(
            [sys.executable, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "--json" in done.stdout


def test_figures_of_the_readme_are_those_of_the_benches():
    figures = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    why, measured = (README.partition(f"## {name}\n")[2].partition("\n## ")[0] for name in ("Why", "Figures"))
    last = measured.rpartition("|\n")[2]  # behind the table of commands
    told = set(re.findall(r"\b\d[\d,]*(?:\.\d+)?\b", re.sub(r"`[^`]*`|\]\([^)]*\)", "", why + last)))
    assert len(told) > 20
    missing = [one for one in told if not re.search(rf"(?<![\d.,]){re.escape(one)}(?!\d|[.,]\d)", figures)]
    assert not missing


def test_the_page_on_the_examples_names_files_and_tasks_there_are():
    for name in re.findall(r"examples/(\w+\.\w+)", EXAMPLES):
        assert (ROOT / "examples" / name).is_file(), name
    for name, task in re.findall(r"`(\w+\.py)` \| task `(\w+)`", EXAMPLES):
        assert f"\nclass {task}:" in (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert f"forebay submit {task} " in EXAMPLES


def test_every_command_is_on_the_page_of_the_command_line():
    named = re.findall(r"`([^`\n]+)`", CLI)
    words = {word for text in named for word in text.split()}
    begun = {text.split()[1] for text in named if text.startswith("forebay ")}
    root = typer.main.get_command(app).commands
    assert set(root) - begun == set()
    below = {name for group in root.values() for name in getattr(group, "commands", {})}
    assert below - words == set()


@pytest.fixture
def served(tmp_path):
    """The README's first example, served by the real command in an empty directory. Yields its URL."""
    (tmp_path / "shout.py").write_text(blocks("python")[0], encoding="utf-8")
    yield from serving(tmp_path, "shout.py")


@pytest.fixture
def tasks_served(tmp_path, tasks_file):
    yield from serving(tmp_path, tasks_file.name)


def serving(tmp_path, target):
    port = free_port()
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "forebay", "serve", target, "--port", str(port), "--workers", "1"],
        cwd=tmp_path,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: server.poll() is not None or ready(url), START_WAIT_MAX_S, "the server is ready")
        assert server.poll() is None, (tmp_path / "log").read_text()
        yield url
        server.terminate()
        assert server.wait(timeout=40) == 0, "a drain ends with 0"
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        log.close()


def ready(url):
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_five_minutes_of_the_readme_work_as_printed(served, tmp_path):
    asked = blocks("python")[1].replace("http://127.0.0.1:8080", served)
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=90, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[1:] == ["HELLO!", "ONE!", "TWO!", "THREE!"], done.stdout

    submit = [sys.executable, "-m", "forebay", "submit", "Shout", '"hello"', "--wait"]
    done = subprocess.run(
        submit,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | {"FOREBAY_URL": served},
    )
    assert done.returncode == 0, done.stderr
    assert "HELLO!" in done.stdout

    request = urllib.request.Request(
        f"{served}/v1/jobs",
        data=b'{"task": "Shout", "payload": "hello"}',
        headers={"content-type": "application/json", "prefer": "wait=10"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        job = json.load(answer)
    assert (answer.status, job["status"], job["result"]) == (200, "COMPLETED", "HELLO!")


ANSWERS = {
    "count_words": ("a b c", 3),
    "Score": ("bad", -1.0),
    "area": ({"width": 3}, 3),
    "mirror": ({"x": 1.0, "y": 2.0}, {"x": -1.0, "y": 2.0}),
    "grow": ({"radius": 2.0}, {"radius": 4.0}),
    "double": ({"amount": 2}, {"amount": 4}),
    "anything": ([1, None], [1, None]),
    "fetch": ("page", "page fetched"),
    "split": ("a b", ["a", "b"]),
    "letters": ("ab", ["a", "b"]),
    "steps": (3, "attempt 1"),
    "careful": ("well", "well"),
    "caption": ("http://a/b.png", "what is seen at http://a/b.png"),
    "redact": ("a name", "a name"),
}
FAILURES = {  # task and payload: how many of two attempts it has
    ("Score", "?"): 1,
    ("careful", "bad"): 1,
    ("careful", "refused"): 1,
    ("careful", "reset"): 2,
    ("careful", "failed"): 2,
    ("careful", "busy"): 2,
}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_page_on_tasks_works_as_it_says(tasks_served, tasks_module):
    assert set(ANSWERS) == set(tasks_module.app.tasks)
    with forebay.Client(tasks_served) as client:
        jobs = {name: client.submit(name, payload) for name, (payload, _) in ANSWERS.items()}
        for name, (_, answer) in ANSWERS.items():
            assert jobs[name].result(timeout="60s") == answer, name
        jobs = {asked: client.submit(*asked, attempts_max=2) for asked in FAILURES}
        for asked, attempts in FAILURES.items():
            view = client.ended(jobs[asked].job_id, timeout=60).view
            assert (view["attempt"], view["error"]["code"]) == (attempts, "handler_failed"), asked
        with pytest.raises(forebay.ForebayError) as refused:
            client.submit("double", {"amount": 0})
        assert refused.value.status == 422


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_commands_of_the_page_on_the_command_line_run_as_printed(served, tmp_path):
    wrapper = tmp_path / "bin" / "forebay"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m forebay "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    env = os.environ | {"FOREBAY_URL": served, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    printed = {}
    for command in [line[2:] for block in blocks("console", CLI) for line in block.splitlines()]:
        done = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed.setdefault(command, []).append(done.stdout)
    first, again = printed["forebay submit Shout @words.ndjson --wait --rate 300/s --out results.ndjson"]
    assert first.startswith("3 submitted, 3 completed, 0 failed")
    assert again.startswith("0 submitted, 3 done before")
    assert printed["forebay queues pause echo"] == ["echo is paused\n"]

    for arguments, code in (
        (["jobs", "show", "00000000-0000-7000-8000-000000000000"], 1),
        (["submit", "echo", "not json"], 2),
        (["jobs", "ls", "--url", "http://127.0.0.1:9"], 3),
    ):
        done = subprocess.run([wrapper, *arguments], capture_output=True, timeout=60, cwd=tmp_path, env=env)
        assert done.returncode == code, (arguments, done.stderr)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_receiver_of_the_page_on_webhooks_verifies_what_a_server_sends(tmp_path, monkeypatch):
    (receiver_text,) = blocks("python", WEBHOOKS)
    (tmp_path / "receiver.py").write_text(receiver_text, encoding="utf-8")
    (tmp_path / "shout.py").write_text(blocks("python")[0], encoding="utf-8")
    monkeypatch.setenv("FOREBAY_WEBHOOK_SECRET", new_secret())
    monkeypatch.setenv("FOREBAY_WEBHOOKS_ALLOW_PRIVATE", "true")
    port = free_port()
    said = tmp_path / "said"
    with said.open("wb") as out:
        receiver = subprocess.Popen(
            [sys.executable, "receiver.py", str(port)], cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        for url in serving(tmp_path, "shout.py"):
            command = [sys.executable, "-m", "forebay", "submit", "echo", '"hello"', "--url", url]
            command += ["--callback-url", f"http://127.0.0.1:{port}/jobs"]
            subprocess.run(command, check=True, timeout=60, cwd=tmp_path)
            until(lambda: b"COMPLETED hello" in said.read_bytes(), START_WAIT_MAX_S, "the receiver prints it")
        assert receiver.poll() is None, said.read_text()
    finally:
        receiver.terminate()
        receiver.wait()
