"""A class with a range of replicas grows while work waits, and lets idle ones go; nothing pays for it."""

import json
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.harness import Served, gone
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0
SOON = {"FOREBAY_REPLICAS_WAIT": "500ms", "FOREBAY_REPLICAS_IDLE": "2s", "FOREBAY_LOG_FORMAT": "json"}


def states(server):
    return Counter(one["state"] for one in server.get("/v1/workers").json["items"])


def metric(server, line):
    text = server.get("/metrics").body.decode()
    return next((float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(line)), None)


def hold(server, name, gate):
    return server.submit("Hold", [name, str(gate)])["job_id"]


def test_it_grows_while_jobs_wait_and_shrinks_to_the_one_that_works_when_they_have_ended(tmp_path):
    short, long = tmp_path / "short", tmp_path / "long"
    with Served(tmp_path / "served", "elastic.py", env=SOON) as server:
        assert states(server) == {"ready": 1, "parked": 2}
        assert '"replicas": 1' in server.log
        ids = [hold(server, "a", short), hold(server, "b", short), hold(server, "c", long)]
        until(lambda: len(server.runs()) == 3, WAIT_MAX_S, "all run beside each other")
        assert states(server) == {"ready": 3}
        assert metric(server, 'inference_replicas{task="Hold"}') == 3
        assert metric(server, 'inference_replicas_wanted{task="Hold"}') == 3
        assert server.get("/v1/queues/Hold").json["replicas_wanted"] == 3
        (busy,) = {pid for what, name, _, pid, _ in server.ledger() if (what, name) == ("start", "c")}

        short.touch()
        server.finals(ids[:2])
        until(lambda: states(server) == {"ready": 1, "parked": 2}, WAIT_MAX_S, "the idle ones are gone")
        assert server.children() == [busy]
        assert server.job(ids[2])["status"] == "PROCESSING"
        assert metric(server, 'inference_replica_changes_total{direction="down",task="Hold"}') in {1, 2}
        told = [json.loads(line) for line in server.log.splitlines()]
        told = [one for one in told if one["event"] in {"replicas_added", "replicas_removed"}]
        assert [(one["was"], one["replicas"]) for one in told[:2]] == [(1, 2), (2, 3)], "each is said"
        assert told[-1]["replicas"] == 1
        assert told[-1]["reason"].endswith("were busy for 2 s")
        assert metric(server, 'inference_worker_up{worker="') == 1.0
        assert server.is_ready()

        more = [hold(server, f"again{n}", short) for n in range(2)]  # the way up is open again
        server.finals(more)
        long.touch()
        for record in server.finals([*ids, *more]).values():
            assert (record["status"], record["attempt"]) == ("COMPLETED", 1)
        assert {one["restarts"] for one in server.get("/v1/workers").json["items"]} == {0}
        assert {one["last_crash"] for one in server.get("/v1/workers").json["items"]} == {None}
        assert set(server.runs().values()) == {1}, "each ran once"
        assert server.stop() == 0


def test_a_stop_amid_growth_hands_back_what_waits_and_leaves_nobody_behind(tmp_path):
    gate = tmp_path / "gate"
    with Served(tmp_path / "served", "elastic.py", env=SOON) as server:
        ids = [hold(server, f"n{n}", gate) for n in range(6)]
        until(lambda: metric(server, 'inference_replicas{task="Hold"}') > 1, WAIT_MAX_S, "it grows")
        server.signal(signal.SIGTERM)
        until(lambda: "draining" in server.log, WAIT_MAX_S, "it drains")
        gate.touch()
        assert server.wait(WAIT_MAX_S) == 0
        server.start()
        records = server.finals(ids)
        assert {(one["status"], one["attempt"]) for one in records.values()} == {("COMPLETED", 1)}
        assert set(server.runs().values()) == {1}, "each ran once"


def test_a_replica_that_dies_is_replaced_within_the_number_there_is(tmp_path):
    gate = tmp_path / "gate"
    with Served(tmp_path / "served", "elastic.py", env=SOON) as server:
        job = hold(server, "a", gate)
        server.started("a")
        (pid,) = server.children()
        os.kill(pid, signal.SIGKILL)
        until(
            lambda: gone(pid) and states(server) == {"ready": 1, "parked": 2}, WAIT_MAX_S, "another is there"
        )
        gate.touch()
        assert server.final(job)["attempt"] == 2


def test_a_node_tells_that_it_is_busy_and_for_how_long_it_was_idle(tmp_path):
    gate = tmp_path / "gate"
    with Served(tmp_path / "served", "elastic.py", env=SOON) as server:
        (idle,) = server.get("/v1/nodes").json["items"]
        assert (idle["state"], idle["replicas"], idle["ready"], idle["in_hand"]) == ("idle", 1, 1, 0)
        assert idle["deletion_cost"] <= 0
        job = hold(server, "a", gate)
        server.started("a")
        (busy,) = server.get("/v1/nodes").json["items"]
        assert (busy["state"], busy["in_hand"], busy["deletion_cost"]) == ("busy", 1, 1)
        assert (busy["idle_s"], busy["host"]) == (0.0, os.uname().nodename)
        gate.touch()
        server.final(job)
        until(lambda: server.get("/v1/nodes").json["items"][0]["deletion_cost"] < 0, WAIT_MAX_S, "idle again")


def test_requests_that_are_refused_start_another_replica_although_none_of_them_ever_waits_long(tmp_path):
    over = threading.Event()
    with Served(tmp_path / "served", "napping.py", env=SOON) as server, ThreadPoolExecutor(8) as callers:

        def ask():
            statuses = Counter()
            while not over.is_set():
                statuses[server.ask("POST", "/v1/predict/Nap", 1, {"X-Request-Timeout": "0.3"}).status] += 1
            return statuses

        asked = [callers.submit(ask) for _ in range(8)]
        try:
            until(lambda: metric(server, 'inference_replicas{task="Nap"}') == 2, WAIT_MAX_S, "it grows")
            until(lambda: states(server) == {"ready": 2}, WAIT_MAX_S, "and serves")
        finally:
            over.set()
        statuses = sum((one.result() for one in asked), Counter())
        assert statuses[200] > 0
        assert statuses[429] > 0, "eight at once are more than one replica can do in time"
        assert "requests are refused that would wait too long" in server.log
        until(lambda: states(server) == {"ready": 1, "parked": 1}, WAIT_MAX_S, "the spare one is gone")
