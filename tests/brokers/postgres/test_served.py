"""Real servers on one database: what cannot be used is refused in one line."""

import os
import subprocess
import sys

import pytest

from tests.e2e.harness import APPS
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("url", "code", "named"),
    [
        ("postgresql://u:hush@127.0.0.1:{port}/db", 3, "refused"),
        ("postgresql://u:hush@127.0.0.1:{port}/db?no_such=1", 2, "no_such"),
        ("postgresql://u:hush@127.0.0.1:{port}/db?schema=Bad", 2, "schema"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line_and_an_exit_code(tmp_path, url, code, named):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    command = [sys.executable, "-m", "forebay", "serve", str(APPS / "basic.py"), "--port", "0"]
    ended = subprocess.run(
        [*command, "--broker", url.format(port=free_port())],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1 and named in lines[0] and "hush" not in ended.stderr + ended.stdout, ended
