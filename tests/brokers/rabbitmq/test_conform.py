"""Checks of the contract of an engine, with Redis behind and RabbitMQ before it."""

import json
import subprocess
import sys

import pytest

from tests.brokers.relay.behind import holds

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
PARTS = 12  # `forebay conform amqp://…` runs all; the lane has time for one in twelve
WAIT_MAX_S = 90.0


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_checks_of_the_contract_hold_behind_rabbitmq_and_leave_no_queue(server, rabbit):
    holds(rabbit.url(prefix="contract"), server, 3, PARTS)
    assert "contract" not in rabbit.ctl("list_queues", "name", "--silent")


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_the_command_prints_the_checks_of_rabbitmq_before_a_store(server, rabbit):
    command = [
        sys.executable,
        "-m",
        "forebay",
        "conform",
        rabbit.url(prefix="said"),
        "--store",
        server.url("said"),
    ]
    asked = subprocess.run(
        [*command, "--only", "an_old_fence", "--json"], capture_output=True, text=True, timeout=WAIT_MAX_S
    )
    report = json.loads(asked.stdout)
    assert (asked.returncode, asked.stderr, report["failed"]) == (0, "", []) and report["passed"]
