"""A node that is told to end: what runs there ends there, what waits there goes to others, idle children first."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0
TAKEN_OVER_S = 1.0


@contextlib.contextmanager
def served(server, root, verb, workers=1):
    env = {"FOREBAY_BROKER": server.url("scaled"), **SHORT}
    with Served(
        root / f"{verb}{len(list(root.iterdir()))}", "gated.py", env=env, verb=verb, workers=workers
    ) as it:
        yield it


def held(count, gate):
    return [{"task": "hold", "payload": [f"n{n}", str(gate)]} for n in range(count)]


def test_one_of_two_nodes_is_told_to_end_under_load_and_no_attempt_is_lost(server, tmp_path):
    server.drop("scaled")
    gate = tmp_path / "gate"
    with (
        served(server, tmp_path, "api") as api,
        served(server, tmp_path, "work", 2) as first,
        served(server, tmp_path, "work", 2) as second,
    ):
        ids = [one["job_id"] for one in api.submit_many(held(60, gate))]
        until(lambda: len(first.runs()) == len(second.runs()) == 2, WAIT_MAX_S, "both are full")
        first.signal(signal.SIGTERM)
        until(lambda: "draining" in first.log, WAIT_MAX_S, "it drains")
        gate.touch()
        assert first.wait(WAIT_MAX_S) == 0
        assert len(first.runs()) == 2, "it began nothing more"
        records = api.finals(ids, WAIT_MAX_S)
        assert {(one["status"], one["attempt"]) for one in records.values()} == {("COMPLETED", 1)}
        assert sum(first.runs().values()) + sum(second.runs().values()) == 60, "each ran once"


def test_a_node_that_ends_lets_its_idle_replicas_go_while_a_busy_one_finishes(server, tmp_path):
    server.drop("scaled")
    gate = tmp_path / "gate"
    with served(server, tmp_path, "api") as api, served(server, tmp_path, "work", 3) as node:
        (job,) = [one["job_id"] for one in api.submit_many(held(1, gate))]
        node.started("n0", max_s=WAIT_MAX_S)
        (busy,) = {line[3] for line in node.ledger()}
        assert len(node.children()) == 3
        node.signal(signal.SIGTERM)
        until(lambda: set(node.living()) == {node.process.pid, busy}, WAIT_MAX_S, "the idle ones are gone")
        assert api.job(job)["status"] == "PROCESSING"
        gate.touch()
        assert node.wait(WAIT_MAX_S) == 0
        done = api.final(job, WAIT_MAX_S)
        assert (done["status"], done["attempt"], done["result"][1]) == ("COMPLETED", 1, busy)


def test_of_two_nodes_the_idle_one_is_named_first_and_its_end_touches_no_work(server, tmp_path):
    server.drop("scaled")
    gate = tmp_path / "gate"
    with (
        served(server, tmp_path, "api") as api,
        served(server, tmp_path, "work", 1) as first,
        served(server, tmp_path, "work", 1) as second,
    ):
        until(lambda: costs(api, (second, first)), WAIT_MAX_S, "both are known to be idle")
        (job,) = [one["job_id"] for one in api.submit_many(held(1, gate))]
        until(lambda: first.runs() or second.runs(), WAIT_MAX_S, "one of them works")
        busy, idle = (first, second) if first.runs() else (second, first)
        until(lambda: costs(api, (idle, busy))[-1:] == [1], WAIT_MAX_S, "the busy one comes last")
        assert api.get("/v1/queues/hold").json["replicas_wanted"] == 1, "the one that runs is needed"
        host = os.uname().nodename
        assert forebay("nodes", "--costs", "--url", f"http://127.0.0.1:{api.port}")[-1] == f"{host} 1"
        assert idle.stop(WAIT_MAX_S) == 0
        until(lambda: costs(api, (busy,)) == [1], WAIT_MAX_S, "it is not named any more")
        gate.touch()
        done = api.final(job, WAIT_MAX_S)
        assert (done["status"], done["attempt"]) == ("COMPLETED", 1)
        assert sum(busy.runs().values()) == 1


def test_a_node_that_ends_is_named_as_draining_and_before_all_others(server, tmp_path):
    server.drop("scaled")
    gate = tmp_path / "gate"
    with (
        served(server, tmp_path, "api") as api,
        served(server, tmp_path, "work", 1) as first,
    ):
        (job,) = [one["job_id"] for one in api.submit_many(held(1, gate))]
        first.started("n0", max_s=WAIT_MAX_S)
        with served(server, tmp_path, "work", 1) as second:
            first.signal(signal.SIGTERM)
            until(lambda: nodes(api) == [(first.process.pid, "draining"), (second.process.pid, "idle")],
                  WAIT_MAX_S, "the one that ends comes first")  # fmt: skip
            gate.touch()
            assert first.wait(WAIT_MAX_S) == 0
            done = api.final(job, WAIT_MAX_S)
            assert (done["status"], done["attempt"]) == ("COMPLETED", 1)


@pytest.mark.timed
def test_while_one_of_two_nodes_ends_no_job_waits_longer_than_a_second(server, tmp_path):
    server.drop("scaled")
    gate = tmp_path / "gate"
    gate.touch()
    with (
        served(server, tmp_path, "api") as api,
        served(server, tmp_path, "work", 1) as first,
        served(server, tmp_path, "work", 1) as second,
    ):
        until(lambda: take(api, gate) and first.runs() and second.runs(), WAIT_MAX_S, "both work")
        took_s = []
        for turn in range(60):
            if turn == 20:
                first.signal(signal.SIGTERM)
            began = time.monotonic()
            done = take(api, gate)
            took_s.append(time.monotonic() - began)
            assert (done["status"], done["attempt"]) == ("COMPLETED", 1)
        assert max(took_s) <= TAKEN_OVER_S, took_s
        assert first.wait(WAIT_MAX_S) == 0


def take(api, gate):
    """Submit a job that ends at once; return its record when it has ended."""
    return api.submit("hold", ["n", str(gate)], wait=30)


def nodes(api):
    """Return the nodes in the order in which they should go, each by its process, and what it does."""
    return [(int(one["node"].split("-")[-2]), one["state"]) for one in api.get("/v1/nodes").json["items"]]


def costs(api, served_nodes):
    """Return what the ends of these nodes cost, in order; empty where others are named, or in another order
    than the costs are in."""
    found = {
        int(one["node"].split("-")[-2]): one["deletion_cost"] for one in api.get("/v1/nodes").json["items"]
    }
    if set(found) != {one.process.pid for one in served_nodes} or list(found.values()) != sorted(
        found.values()
    ):
        return []
    return [found[one.process.pid] for one in served_nodes]


def forebay(*arguments):
    """Return the lines that a command prints."""
    command = [sys.executable, "-m", "forebay", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_MAX_S, check=True)
    return done.stdout.splitlines()
