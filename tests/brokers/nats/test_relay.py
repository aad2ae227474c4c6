"""JetStream before a store is an engine: checks of the contract, and what is lost of the broker loses no job."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from forebay.conformance import CHECKS, run_checks
from forebay.engines import subject_for
from tests.brokers.relay.behind import check_report
from tests.e2e.harness import SHORT, Served
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
PARTS = 4
RUN = (1, 3)  # `forebay conform nats://…` runs all; the lane has time for one in two
WAIT_MAX_S = 90.0


@pytest.mark.parametrize("part", RUN)
def test_checks_of_the_contract_hold(server, store, part):
    async def run():
        subject = subject_for(server.url(prefix), store=store.url())
        try:
            return await run_checks(subject.open, reopen=subject.reopen, checks=CHECKS[part::PARTS])
        finally:
            await subject.remove()
            assert not [name for name in await asyncio.to_thread(server.streams) if name.startswith(prefix)]

    prefix = f"conform{part}"
    check_report(asyncio.run(run()))


def test_jobs_are_taken_and_run_by_other_processes_and_outlive_the_loss_of_all_hints(own, store, tmp_path):
    env = {"FOREBAY_BROKER": own.url(), "FOREBAY_STORE": store.url("apart"), **SHORT}
    gate = tmp_path / "gate"
    with (
        Served(tmp_path / "api", "gated.py", env=env, verb="api") as api,
        Served(tmp_path / "work", "gated.py", env=env, verb="work", workers=1) as node,
    ):
        assert api.submit("echo", "hi", wait=30)["status"] == "COMPLETED"
        jobs = [{"task": "hold", "payload": [f"n{n}", str(gate)]} for n in range(12)]
        ids = [verdict["job_id"] for verdict in api.submit_many(jobs)]
        until(node.runs, WAIT_MAX_S, "the node works")
        own.halt()
        own.lose_streams()
        late = api.submit("echo", "while it is away")
        gate.touch()
        own.start()
        records = api.finals([*ids, late["job_id"]], WAIT_MAX_S)
        assert {record["status"] for record in records.values()} == {"COMPLETED"}
        assert api.submit("echo", "after", wait=30)["status"] == "COMPLETED"
        until(lambda: "forebay" in own.streams(), WAIT_MAX_S, "the streams are made again")
        assert (node.stop(), api.stop()) == (0, 0)


def test_the_command_prints_the_checks_of_jetstream_before_a_store(server, store):
    command = [sys.executable, "-m", "forebay", "conform", server.url("said"), "--store", store.url()]
    asked = subprocess.run(
        [*command, "--only", "what_was", "--json"], capture_output=True, text=True, timeout=WAIT_MAX_S
    )
    report = json.loads(asked.stdout)
    assert (asked.returncode, asked.stderr, report["failed"]) == (0, "", [])
    assert report["passed"] and "said" not in server.streams()


@pytest.mark.parametrize(
    ("broker", "code", "line"),
    [
        ("nats://u:hush@127.0.0.1:1", 3, "refused"),
        ("nats://u:hush@127.0.0.1:1?prefix=a.b", 2, "prefix"),
    ],
)
def test_a_broker_that_cannot_be_used_is_one_line_and_a_code(store, tmp_path, broker, code, line):
    command = [sys.executable, "-m", "forebay", "conform", broker, "--store", store.url()]
    env = {**os.environ, "NO_COLOR": "1"}
    asked = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_MAX_S, env=env, cwd=tmp_path)
    assert asked.returncode == code and line in asked.stderr.lower(), asked
    assert asked.stderr.count("\n") == 1 and "hush" not in asked.stderr
