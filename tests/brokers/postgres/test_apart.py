"""`forebay api` and `forebay work`, real processes on one database: they find and outlive each other."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Job
from forebay.server.waiters import Waiters, next_look
from tests.brokers.postgres.server import free_port
from tests.e2e.harness import APPS, SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0
LEASE_S = 2.0  # of SHORT


@contextlib.contextmanager
def apart(server, root, schema, *, apis=1, nodes=2, workers=1):
    """Serve with so many processes of each kind on a new schema; yield both lists."""
    server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    env = {"FOREBAY_BROKER": server.url(schema), **SHORT}
    with contextlib.ExitStack() as stack:

        def begun(verb, number):
            one = Served(root / f"{verb}{number}", "gated.py", env=env, verb=verb, workers=workers)
            return stack.enter_context(one)

        yield (
            [begun("api", number) for number in range(apis)],
            [begun("work", number) for number in range(nodes)],
        )


def nodes_shown(api):
    return {worker["node"] for worker in api.get("/v1/workers").json["items"]}


def test_jobs_taken_by_one_process_run_in_others_and_any_process_answers(server, tmp_path):
    gate = tmp_path / "gate"
    with apart(server, tmp_path, "apart_all", apis=2) as ((first, second), nodes):
        until(lambda: len(nodes_shown(first)) == len(nodes_shown(second)) == 2, WAIT_MAX_S, "nodes are seen")
        verdicts = first.submit_many([{"task": "hold", "payload": [f"n{n}", str(gate)]} for n in range(12)])
        until(lambda: all(node.runs() for node in nodes), WAIT_MAX_S, "both nodes take part")
        gate.touch()
        records = second.finals([verdict["job_id"] for verdict in verdicts], WAIT_MAX_S)
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        ran = {record["result"][1] for record in records.values()}
        assert len(ran) == 2 and not ran & {first.process.pid, second.process.pid}
        waited = second.submit("echo", "hi", wait=30)
        done = first.final(waited["job_id"], WAIT_MAX_S)
        assert (done["status"], done["result"]) == ("COMPLETED", "hi")


def test_an_api_process_loads_no_model_and_takes_jobs_while_no_node_is_there(server, tmp_path):
    with apart(server, tmp_path, "apart_alone", nodes=0) as ((api,), _):
        assert api.get("/readyz").status == 200 and api.get("/v1/workers").json["items"] == []
        assert {task["task"] for task in api.get("/v1/tasks").json["items"]} == {"echo", "hold"}
        assert api.living() == [api.process.pid]
        refused = api.ask("POST", "/v1/predict/echo", "x")
        assert refused.status == 503 and "submit a job" in refused.json["detail"]
        wrong = api.ask("POST", "/v1/jobs", {"task": "no_such", "payload": 1})
        assert (wrong.status, wrong.json["code"]) == (404, "unknown_task")
        job = api.submit("echo", "later")
        env = {"FOREBAY_BROKER": server.url("apart_alone"), **SHORT}
        with Served(tmp_path / "late", app="gated.py", env=env, verb="work", workers=1) as node:
            assert api.final(job["job_id"], WAIT_MAX_S)["status"] == "COMPLETED"
            told = until(
                lambda: api.submit("echo", "x")["eta"], WAIT_MAX_S, "what nodes measured gives an ETA"
            )
            assert told["p90_s"] >= told["p50_s"] >= 0
            (before,) = nodes_shown(api)
            assert node.ask("POST", "/v1/jobs", {"task": "echo", "payload": 1}).status == 404
            assert b"inference_worker_up" in node.get("/metrics").body
            assert node.stop() == 0
            until(lambda: nodes_shown(api) == set(), WAIT_MAX_S, "a node that left is not shown")
            node.start()
            (after,) = until(lambda: nodes_shown(api), WAIT_MAX_S, "it is there again")
            assert after != before, "another start is another identity"


def test_a_node_that_is_told_to_stop_ends_what_it_runs_and_leaves_the_rest(server, tmp_path):
    gate = tmp_path / "gate"
    with apart(server, tmp_path, "apart_drain", nodes=1) as ((api,), (node,)):
        runs = api.submit("hold", ["runs", str(gate)])["job_id"]
        node.started("runs", max_s=WAIT_MAX_S)
        waits = [api.submit("hold", [f"w{n}", str(gate)])["job_id"] for n in range(5)]
        node.signal(signal.SIGTERM)
        until(lambda: "draining" in node.log, WAIT_MAX_S, "it drains")
        gate.touch()
        assert node.wait(WAIT_MAX_S) == 0
        assert api.final(runs, WAIT_MAX_S)["status"] == "COMPLETED"
        left = [api.job(job_id) for job_id in waits]
        assert {(job["status"], job["attempt"]) for job in left} == {("PENDING", 0)}
        node.start()
        done = api.finals(waits, WAIT_MAX_S)
        assert {(job["status"], job["attempt"]) for job in done.values()} == {("COMPLETED", 1)}


def ends(served):
    """Return the names of what it began and of what it ended."""
    lines = served.ledger()
    return {line[1] for line in lines if line[0] == "start"}, {line[1] for line in lines if line[0] == "end"}


def test_what_a_killed_node_held_is_run_by_others_and_ends_once(server, tmp_path):
    gate = tmp_path / "gate"
    with apart(server, tmp_path, "apart_kill", workers=2) as ((api,), (first, second)):
        jobs = [{"task": "hold", "payload": [f"n{n}", str(gate)]} for n in range(24)]
        ids = [verdict["job_id"] for verdict in api.submit_many(jobs)]
        until(lambda: first.runs() and second.runs(), WAIT_MAX_S, "both work")
        first.kill()  # with jobs in hand: none of them can end
        begun, ended = ends(first)
        gate.touch()
        records = api.finals(ids, WAIT_MAX_S)
        assert begun and not ended and begun <= ends(second)[1]
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        assert sorted(record["result"][0] for record in records.values()) == sorted(
            f"n{n}" for n in range(24)
        )
        finals = server.sql("SELECT state, count(*) FROM apart_kill.jobs GROUP BY state")
        assert finals == [(4, len(ids))], "each ended once, with a result"
        until(lambda: len(nodes_shown(api)) == 1, WAIT_MAX_S, "the dead one is shown no more")


@pytest.mark.timed
def test_what_a_killed_node_held_runs_elsewhere_a_second_after_its_lease(server, tmp_path):
    gate = tmp_path / "gate"
    with apart(server, tmp_path, "apart_soon", nodes=1) as ((api,), (first,)):
        job = api.submit("hold", ["held", str(gate)])["job_id"]
        first.started("held", max_s=WAIT_MAX_S)
        env = {"FOREBAY_BROKER": server.url("apart_soon"), **SHORT}
        with Served(tmp_path / "other", "gated.py", env=env, verb="work", workers=1) as second:
            until(lambda: len(nodes_shown(api)) == 2, WAIT_MAX_S, "the other one is there")
            killed_at = time.time()
            first.kill()
            second.started("held", max_s=WAIT_MAX_S)
            (started_at,) = [line[4] for line in second.ledger() if line[0] == "start"]
            gate.touch()
            assert api.final(job, WAIT_MAX_S)["status"] == "COMPLETED"
        assert started_at - killed_at <= LEASE_S + 1.0


@pytest.mark.parametrize("verb", ["api", "work"])
@pytest.mark.parametrize("broker", [(), ("--broker", "sqlite:here")], ids=["none", "sqlite"])
def test_the_embedded_engine_has_one_owner_and_says_so_in_a_line(tmp_path, verb, broker):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    asked = subprocess.run(
        [sys.executable, "-m", "forebay", verb, str(APPS / "gated.py"), *broker],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    (line,) = asked.stderr.splitlines()
    assert asked.returncode == 2 and "forebay serve" in line and "postgresql://" in line
    assert list(tmp_path.iterdir()) == []


def test_uvicorn_serves_the_same_door_in_any_number_of_processes(server, tmp_path):
    server.sql("DROP SCHEMA IF EXISTS apart_asgi CASCADE")
    broker = {"FOREBAY_BROKER": server.url("apart_asgi"), **SHORT}
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    with Served(tmp_path / "node", "gated.py", env=broker, verb="work", workers=1) as node:
        with (tmp_path / "log").open("wb") as log:
            uvicorn = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "forebay.asgi:app", "--workers", "2", "--port", str(port)],
                cwd=tmp_path,
                env={
                    **env,
                    **broker,
                    "FOREBAY_APP": str(APPS / "gated.py"),
                    "E2E_LEDGER": str(node.ledger_path),
                },
                stdout=log,
                stderr=log,
            )
        try:
            node.port, own = port, node.port
            until(node.is_ready, WAIT_MAX_S, "uvicorn serves")
            jobs = [node.submit("echo", n, wait=30) for n in range(10)]
            assert [(job["status"], job["result"]) for job in jobs] == [("COMPLETED", n) for n in range(10)]
            node.port = own
        finally:
            uvicorn.send_signal(signal.SIGTERM)
            ended = uvicorn.wait(WAIT_MAX_S)
        text = (tmp_path / "log").read_text()
        assert ended in {0, -signal.SIGTERM} and "Traceback" not in text, text


def test_uvicorn_says_in_one_line_what_is_missing(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    asked = subprocess.run(
        [sys.executable, "-m", "uvicorn", "forebay.asgi:app", "--port", str(free_port())],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    assert asked.returncode == 3
    assert "FOREBAY_APP must name the application" in asked.stderr and "Traceback" not in asked.stderr


def test_a_wait_in_one_process_ends_by_the_bell_of_another(server, monkeypatch):
    monkeypatch.setattr("forebay.server.waiters.RELOOK_S", 3600.0)  # whoever is not rung waits for an hour
    clock = SystemClock()

    async def body():
        one, other = [await PostgresBroker.open(server.url("apart_bell"), clock=clock) for _ in range(2)]
        try:
            waiters = Waiters(one)
            heard = asyncio.Event()
            one.on_work(lambda _: heard.set())
            while not heard.is_set():  # nobody is heard before the first connection listens
                await put(other)
                await asyncio.sleep(0.05)
            job = await put(other)
            async with waiters.waiting(job.id, ends_only=True) as waiter:
                leases = await other.lease("echo", limit=1000, lease_s=30.0, worker="w", now=clock.now())
                done = [settle.complete(lease, output=b"1", now=clock.now()) for lease in leases]
                assert all(await other.commit(done, now=clock.now()))
                await next_look(waiter, 3600.0)
            record = await one.get(job.id, now=clock.now())
            assert record.standing.output == b"1"
        finally:
            await one.close()
            await other.close()

    async def put(broker):
        now = clock.now()
        job = Job(broker.new_id(now), "echo", b"1", now, now)
        await broker.enqueue([job], now=now)
        return job

    asyncio.run(asyncio.wait_for(body(), WAIT_MAX_S))
