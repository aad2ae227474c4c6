"""The page on live events: its application runs, its client reads it, its tables name what there is."""

import contextlib
import io
import re
from pathlib import Path

from forebay.child.line import PARTS_S
from forebay.child.parts import PART_BYTES_MAX
from forebay.core.renewing import CHECKPOINT_S
from forebay.declare.context import CHECKPOINT_BYTES_MAX
from forebay.server import channel, events, live, watching
from tests.e2e.harness import Served

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
APP, CLIENT = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_run(tmp_path):
    path = tmp_path / "page.py"
    path.write_text(APP, encoding="utf-8")
    with Served(tmp_path, path, workers=1) as server:
        printed = io.StringIO()
        names = {"forebay": __import__("forebay"), "url": f"http://127.0.0.1:{server.port}"}
        with contextlib.redirect_stdout(printed):
            exec(compile(CLIENT, "events.md", "exec"), names)
        names["client"].close()
        assert printed.getvalue().split("\n")[:3] == ["word 0", "word 1", "word 2"]
        assert printed.getvalue().endswith("COMPLETED\n")
        assert names["job"].view["result"][9] == "text of page 9"
        server.stop()


def test_the_numbers_of_the_page_are_those_of_the_code():
    for number, text in (
        (channel.RING_EVENTS_MAX, "1,000 or 256 KiB"),
        (live.READERS_MAX, "5,000 streams"),
        (events.OPENS_PER_S, "1,000 a second"),
    ):
        assert text in PAGE and f"{number:,}" in text
    assert channel.RING_BYTES_MAX == 256 * 1024 and live.HUB_BYTES_MAX == 64 * 1024 * 1024
    assert (live.KEEP_S, watching.HEARTBEAT_S, events.ANSWER_TIMEOUT_S) == (120.0, 15.0, 60.0)
    assert PART_BYTES_MAX == CHECKPOINT_BYTES_MAX == 64 * 1024
    assert (PARTS_S, CHECKPOINT_S, live.PROGRESS_PAUSE_S) == (0.02, 0.1, 0.25)
