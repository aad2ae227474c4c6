"""`forebay api` and two `forebay work` with RabbitMQ before PostgreSQL: real processes, one of them killed at work."""

import contextlib

import pytest

from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
WAIT_MAX_S = 90.0


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_jobs_reach_nodes_through_rabbitmq_and_outlive_a_node_that_is_killed(server, rabbit, tmp_path):
    server.drop("rabbit_apart")
    gate = tmp_path / "gate"
    env = {
        "FOREBAY_BROKER": rabbit.url(prefix="apart"),
        "FOREBAY_STORE": server.url("rabbit_apart"),
        **SHORT,
    }
    with contextlib.ExitStack() as stack:

        def begun(verb, number):
            one = Served(tmp_path / f"{verb}{number}", "gated.py", env=env, verb=verb, workers=1)
            return stack.enter_context(one)

        api, first, second = begun("api", 0), begun("work", 1), begun("work", 2)
        jobs = [{"task": "hold", "payload": [f"n{n}", str(gate)]} for n in range(12)]
        ids = [verdict["job_id"] for verdict in api.submit_many(jobs)]
        until(lambda: first.runs() and second.runs(), WAIT_MAX_S, "both work")
        first.kill()
        gate.touch()
        done = api.finals(ids, WAIT_MAX_S)
        assert {job["status"] for job in done.values()} == {"COMPLETED"}
        metrics = second.get("/metrics").body.decode()
        assert 'inference_delivery_up{broker="RabbitMQ"} 1.0' in metrics
        received = next(line for line in metrics.splitlines() if 'hints_total{event="received"}' in line)
        assert float(received.split()[-1]) > 0, "it heard of work through RabbitMQ"
