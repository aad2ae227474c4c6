"""A real server keeps dead letters and the jobs of one task for times of their own, also after a restart."""

import pytest

from tests.e2e.harness import Served
from tests.waiting import until

ENV = {"FOREBAY_RETENTION": "1s", "FOREBAY_RETENTION_FAILED": "1h"}


@pytest.mark.timeout(180)
def test_each_is_gone_or_kept_by_its_own_time(tmp_path):
    with Served(tmp_path, "retention.py", env=ENV) as server:
        good, kept, bad = (
            server.submit(task, payload)["job_id"]
            for task, payload in (("work", 1), ("keep", 1), ("work", "bad"))
        )
        until(lambda: server.get(f"/v1/jobs/{good}").status == 410, 30, "the plain one past its retention")
        assert server.get(f"/v1/jobs/{good}/result").status == 410
        until(lambda: server.get(f"/v1/dead-letters/{bad}").status == 200, 30, "the dead letter")
        assert server.get(f"/v1/jobs/{kept}/result").json == 1
        server.kill()
        server.start()
        assert server.get(f"/v1/jobs/{good}").status == 410
        assert server.get(f"/v1/dead-letters/{bad}").json["error"]["message"] == "no good"
        assert server.get(f"/v1/jobs/{kept}/result").json == 1
        until(lambda: len(server.get("/v1/jobs").json["items"]) == 2, 60, "the others are listed")
        assert server.stop() == 0
