"""The page on large payloads: its application is served and its client runs."""

import os
import subprocess
import sys

from tests.docs.test_examples import ROOT, blocks, serving

PAGE = (ROOT / "docs" / "blobs.md").read_text(encoding="utf-8")


def test_the_examples_on_large_payloads_run(tmp_path):
    application, client = blocks("python", PAGE)
    (tmp_path / "louder.py").write_text(application, encoding="utf-8")
    server = serving(tmp_path, "louder.py")
    url = next(server)
    done = subprocess.run(
        [sys.executable, "-c", client.replace("forebay.Client()", f"forebay.Client({url!r})")],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(server) == []
