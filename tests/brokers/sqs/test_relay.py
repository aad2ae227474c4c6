"""SQS in front of Redis is an engine: checks of the contract hold, and what a job costs is counted."""

import asyncio
import json
import subprocess
import sys

import pytest

from forebay.brokers.relay import RelayTrial
from forebay.brokers.sqs import SqsTransport
from forebay.clock import SystemClock
from forebay.conformance import CHECKS, run_checks
from tests.brokers.relay.behind import Behind, check_report

pytestmark = pytest.mark.engines
PARTS = 4
RUN = (0,)  # `forebay conform sqs://…` runs all; the lane has time for one in four
WAIT_MAX_S = 60.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", RUN)
def test_checks_of_the_contract_hold_with_sqs_before_redis(moto, prefix, redis, part):
    url = f"sqs://eu-central-1/{prefix}?endpoint={moto.endpoint}"
    made, behind = [], Behind(redis)

    async def connect():
        made.append(await SqsTransport.open(url, clock=SystemClock()))
        return made[-1]

    async def run():
        relay = RelayTrial(behind, connect, clock=SystemClock())
        try:
            return await run_checks(relay.open, reopen=relay.reopen, checks=CHECKS[part::PARTS])
        finally:
            for transport in made:  # also of those that crashed
                await transport.close()
            await behind.remove()

    check_report(asyncio.run(run()))
    assert sum(transport.requests["SendMessageBatch"] for transport in made)


def test_forebay_conform_takes_a_store_behind_it_and_leaves_no_queue(gate, prefix, redis):
    gate.deleted_s = 0.0
    asked = [sys.executable, "-m", "forebay", "conform", gate.url(prefix), "--store", redis.url("mine")]
    done = subprocess.run(
        [*asked, "--only", "an_old_fence", "--json"], capture_output=True, text=True, timeout=WAIT_MAX_S
    )
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["failed"]) == (0, "", []) and report["passed"]
    assert gate.count["SendMessageBatch"]
    assert not gate.forward("ListQueues", {"QueueNamePrefix": prefix}).get("QueueUrls")


@pytest.mark.parametrize(
    "behind,code,line",
    [
        (False, 2, "store: Amazon SQS delivers, and needs a store beside it"),
        (True, 3, "no AWS credentials in the environment, a profile or a role"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(gate, prefix, monkeypatch, redis, behind, code, line):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    asked = [sys.executable, "-m", "forebay", "conform", gate.url(prefix), "--only", "an_old_fence"]
    asked += ["--store", redis.url("mine")] if behind else []
    done = subprocess.run(asked, capture_output=True, text=True, timeout=WAIT_MAX_S)
    told = done.stderr.strip()
    assert done.returncode == code and line in told and "Traceback" not in told, told
    assert not gate.count
