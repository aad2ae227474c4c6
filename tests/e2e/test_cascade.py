"""A database that hangs: the front door and all that does not need it go on, and what needs it is done later.

The database is a process of its own that takes every call and answers none.
"""

import pytest

from tests.e2e.harness import Served
from tests.e2e.test_upstreams import Model
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_MAX_S = 60.0


@pytest.fixture
def database(tmp_path):
    one = Model(tmp_path).start()
    yield one
    one.kill()


@pytest.fixture
def server(tmp_path, database):
    env = {"DATABASE": f"http://127.0.0.1:{database.port}/"}
    with Served(tmp_path / "s", "cascade.py", workers=2, env=env) as served:
        yield served
        database.mode("good")  # nobody is left in it when the server stops


@pytest.mark.timed
def test_e20_a_database_that_hangs_blocks_nobody_at_the_front_door(server, database):
    database.mode("hang")
    jobs = [server.submit("Report", str(number))["job_id"] for number in range(20)]
    until(lambda: len(database.asked()) == 2, WAIT_MAX_S, "every worker that needs it hangs in it")
    headers = {"Content-Type": "application/json"}
    for number in range(100):
        assert server.get("/healthz", timeout=5.0).status == 200
        assert server.get(f"/v1/jobs/{jobs[number % 20]}", timeout=5.0).json["status"] != "FAILED"
        page = server.ask("POST", "/v1/predict/Page", str(number), headers, timeout=10.0)
        assert (page.status, page.json) == (200, f"page {number}"), "within its deadline"
    done = server.finals([server.submit("plain", "a")["job_id"] for _ in range(20)], WAIT_MAX_S)
    assert {job["result"] for job in done.values()} == {"A"}

    full = [
        server.ask("POST", "/v1/jobs", {"task": "Report", "payload": "x"}, timeout=5.0) for _ in range(60)
    ]
    jobs += [answer.json["job_id"] for answer in full if answer.status == 202]
    assert len(jobs) <= 52, "its queue has a bound"
    refused = [answer for answer in full if answer.status != 202]
    assert {answer.status for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert len(database.asked()) == 2, "and nobody was added to those who hang"

    database.mode("good")
    done = server.finals(jobs, WAIT_MAX_S).values()
    assert {(job["status"], job["attempt"]) for job in done} == {("COMPLETED", 1)}


def test_e19_what_needs_a_feature_store_that_hangs_does_not_hold_up_what_shares_its_workers(server, database):
    database.mode("hang")
    waiting = [server.submit("look_up", str(number))["job_id"] for number in range(40)]
    until(lambda: len(database.asked()) >= 2, WAIT_MAX_S, "the workers they share hang in it")
    done = server.finals([server.submit("plain", "a")["job_id"] for _ in range(40)], WAIT_MAX_S)
    assert {job["status"] for job in done.values()} == {"COMPLETED"}
    assert {server.job(job_id)["status"] for job_id in waiting} <= {"PENDING", "PROCESSING"}
    database.mode("good")
    done = server.finals(waiting, WAIT_MAX_S).values()
    assert sorted(int(job["result"]) for job in done) == list(range(40)), "and none of them is lost"
