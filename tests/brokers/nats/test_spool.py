"""Submissions while the store behind a message broker is away: kept here, delivered through the broker later."""

import pytest

from tests.brokers.redis.server import RedisServer
from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0
COUNT = 20


@pytest.fixture
def mortal():
    """A store that a test may end."""
    one = RedisServer()
    try:
        yield one.start()
    finally:
        one.stop()


def hints(served, event):
    """Return how many hints met with something, as a process counts."""
    name = f'inference_delivery_hints_total{{event="{event}"}} '
    lines = served.get("/metrics").body.decode().splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_what_comes_while_the_store_is_away_is_delivered_by_the_broker_when_it_is_back(
    server, mortal, tmp_path
):
    env = {"FOREBAY_BROKER": server.url("spooled"), "FOREBAY_STORE": mortal.url("spooled"), **SHORT}
    with (
        Served(tmp_path / "api", "gated.py", env={**env, "FOREBAY_SPOOL": "50"}, verb="api") as api,
        Served(tmp_path / "work", "gated.py", env=env, verb="work", workers=1) as node,
    ):
        assert api.submit("echo", "before", wait=30)["status"] == "COMPLETED"
        sent = hints(api, "sent")
        mortal.halt(mortal.ENDS["crash"])
        taken = [
            api.ask("POST", "/v1/jobs", {"task": "echo", "payload": n}, timeout=WAIT_MAX_S)
            for n in range(COUNT)
        ]
        assert {(one.status, one.json["spooled"]) for one in taken} == {(202, True)}
        assert hints(api, "sent") == sent, "nothing is announced that the store has not got"
        mortal.start()
        ids = [one.json["job_id"] for one in taken]
        done = api.finals(ids, WAIT_MAX_S)
        assert [done[one]["result"] for one in ids] == list(range(COUNT))
        assert all(job["attempt"] == 1 for job in done.values())
        until(lambda: hints(api, "sent") > sent, WAIT_MAX_S, "they were announced")
        until(lambda: hints(node, "received") > 1, WAIT_MAX_S, "the node heard of them through the broker")
        assert (node.stop(), api.stop()) == (0, 0)
