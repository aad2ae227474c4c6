"""The page for those who know another system: its application is served, its caller runs, its words are there."""

import inspect
import os
import re
import subprocess
import sys

import forebay
from tests.docs.test_examples import ROOT, blocks, serving

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")


def test_the_task_and_its_caller_work_as_they_stand(tmp_path):
    before, application, caller = blocks("python", PAGE)
    assert "celery" in before
    (tmp_path / "tasks.py").write_text(application, encoding="utf-8")
    for url in serving(tmp_path, "tasks.py"):
        done = subprocess.run(
            [sys.executable, "-c", f"import forebay\n{caller}"],
            env=os.environ | {"FOREBAY_URL": url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "https://example.com/a.png?w=320\n"), done.stderr


def test_every_argument_of_a_task_that_the_page_names_is_one():
    rows = [line.split(" | ")[-1] for line in PAGE.splitlines() if line.startswith("| ")]
    named = {word for row in rows for word in re.findall(r"(?<![?\w])([a-z_]+)=", row)} - {"after"}
    assert named >= {"batch_max", "batch_wait", "deadline", "replicas", "devices", "concurrency"}
    assert named <= set(inspect.signature(forebay.App.task).parameters)
