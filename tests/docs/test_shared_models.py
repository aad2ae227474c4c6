"""The page on one model for frames, requests and jobs: its application is served as it says, its numbers are the code's."""

import re
from pathlib import Path

import pytest

from forebay.core import smooth
from forebay.pipeline import stage
from tests.e2e.harness import Served
from tests.e2e.test_predict import predict
from tests.waiting import until

pytest.importorskip("numpy")
PAGE = (Path(__file__).parents[2] / "docs" / "shared-models.md").read_text(encoding="utf-8")
(APP,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(180)
def test_the_application_of_the_page_serves_frames_requests_and_jobs(tmp_path):
    script = tmp_path / "page.py"
    script.write_text(APP, encoding="utf-8")
    with Served(tmp_path / "s", script, workers=1) as server:
        until(lambda: server.log.count('"worker": "door"') == 10, 60.0, "ten results")
        assert [f'"line": "{n} {n}"' in server.log for n in range(10)] == [True] * 10
        answer = predict(server, "Detect", [[1, 2], [3, 4]], X_Request_Timeout="30")
        assert answer.json == {"brightest": 4}
        job = server.final(server.submit("Detect", [[1, 2], [3, 4]])["job_id"], 60.0)
        assert job["result"] == {"brightest": 4}


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert f"for {smooth.LIVE_S:g} s after the last" in PAGE
    assert f"in the last {smooth.PEAK_S:g} s or more" in PAGE
    assert f"none in the first {smooth.PEAK_S:g} s" in PAGE
    assert f"{100 * smooth.MET_SHARE:g} % of the time" in PAGE
    assert smooth.RIDE_SHARE == 0.1  # a tenth
    assert f"with it at once ({stage.AT_ONCE})" in PAGE
    assert f"`timeout=` ({stage.TASK_TIMEOUT_S:g} s)" in PAGE
