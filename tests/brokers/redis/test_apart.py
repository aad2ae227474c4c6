"""`forebay api` and `forebay work`, real processes on one Redis: they find and outlive each other."""

import contextlib

import pytest

from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
WAIT_MAX_S = 90.0


@contextlib.contextmanager
def apart(server, root, name, *, apis=1, nodes=2, workers=1):
    """Serve with so many processes of each kind on a new store; yield both lists."""
    server.empty(name)
    env = {"FOREBAY_BROKER": server.url(name), **SHORT}
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
        with server.client() as client:
            states = [client.hget(key, "st") for key in client.keys("{apart_kill}:j:*")]
        assert states == [b"4"] * len(ids), "each ended once, with a result"
        until(lambda: len(nodes_shown(api)) == 1, WAIT_MAX_S, "the dead one is shown no more")


def test_a_node_that_left_is_not_shown_and_a_new_start_is_another_one(server, tmp_path):
    with apart(server, tmp_path, "apart_left", nodes=1) as ((api,), (node,)):
        (before,) = until(lambda: nodes_shown(api), WAIT_MAX_S, "it is shown")
        assert node.stop() == 0
        until(lambda: nodes_shown(api) == set(), WAIT_MAX_S, "a node that left is not shown")
        node.start()
        (after,) = until(lambda: nodes_shown(api), WAIT_MAX_S, "it is there again")
        assert after != before
