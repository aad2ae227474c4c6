"""What cannot be used is told in one line, and nothing is made by halves."""

import asyncio
import os
import subprocess
import sys

import pytest

from forebay.brokers.sqs import SqsTransport
from forebay.brokers.sqs.calls import Bounds
from forebay.clock import SystemClock
from forebay.conformance.hinting import bodies
from forebay.errors import ConfigError, DeliveryUnavailableError
from tests.brokers.sqs.gate import SECRET
from tests.ports import free_port

pytestmark = pytest.mark.engines
SOON = Bounds(pause_min_s=0.01, away_min_s=0.01, away_max_s=0.02)


def opened(url):
    async def main():
        transport = await SqsTransport.open(url, clock=SystemClock(), bounds=SOON)
        await transport.close()

    asyncio.run(main())


def refused(url, *parts, error=DeliveryUnavailableError):
    with pytest.raises(error) as told:
        opened(url)
    line = str(told.value)
    assert "\n" not in line and line.startswith("broker: ") and SECRET not in line
    for part in parts:
        assert part in line, line


def test_opening_asks_one_thing_and_makes_nothing(gate, prefix):
    opened(gate.url(prefix))
    assert dict(gate.count) == {"GetQueueUrl": 1}


def test_without_credentials_it_says_where_they_are_looked_for(gate, prefix, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    refused(gate.url(prefix), "no AWS credentials in the environment, a profile or a role")
    assert not gate.count


def test_without_a_region_it_says_how_to_name_one(gate, prefix):
    refused(f"sqs:///{prefix}", "no region", "AWS_DEFAULT_REGION", error=ConfigError)


def test_a_region_from_the_environment_is_taken(gate, prefix, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    opened(f"sqs:///{prefix}?endpoint={gate.endpoint}")


def test_an_endpoint_from_the_environment_is_taken(gate, prefix, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", gate.endpoint)
    opened(f"sqs://eu-central-1/{prefix}")
    assert gate.count["GetQueueUrl"] == 1


def test_a_profile_that_is_not_there_is_named(gate, prefix, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    refused(gate.url(prefix), "nobody", error=ConfigError)


def test_keys_that_the_service_does_not_know(gate, prefix, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER")
    refused(gate.url(prefix), "AWS does not know these credentials")


def test_a_wrong_secret(gate, prefix, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    refused(gate.url(prefix), "is the secret key right?")


@pytest.mark.parametrize("ahead_s,side", [(900.0, "behind"), (-900.0, "ahead of")])
def test_a_clock_that_is_wrong_is_told_with_by_how_much(gate, prefix, ahead_s, side):
    gate.ahead_s = ahead_s
    refused(gate.url(prefix), "this machine's clock is ", f" s {side} the service's")


def test_a_clock_that_is_a_little_wrong_does_no_harm(gate, prefix):
    gate.ahead_s = 120.0
    opened(gate.url(prefix))


def test_credentials_that_have_ended_are_read_again(gate, prefix):
    gate.fail("GetQueueUrl", "ExpiredToken", times=1)
    opened(gate.url(prefix))
    gate.fail("GetQueueUrl", "ExpiredToken", times=None)
    refused(gate.url(prefix), "ExpiredToken")


def test_who_may_not_ask_is_told_what(gate, prefix):
    gate.denied.add("GetQueueUrl")
    refused(gate.url(prefix), "the credentials may not do GetQueueUrl")


def test_nobody_at_the_endpoint(prefix):
    refused(f"sqs://eu-central-1/{prefix}?endpoint=http://127.0.0.1:{free_port()}", "cannot be reached")


def test_a_name_that_leads_nowhere(prefix):
    refused(f"sqs://eu-central-1/{prefix}?endpoint=http://nowhere.invalid:1", "cannot be reached")


@pytest.mark.parametrize("denied", ["CreateQueue", "GetQueueAttributes"])
def test_who_may_not_make_queues_is_told_so_and_none_is_left(gate, prefix, denied):
    """Rights of a role end where they end: also between a queue of dead letters and the queue itself."""

    def fault(verb, what):
        from tests.brokers.sqs.gate import Refusal

        if verb == denied and "-dead-" not in what.get("QueueName", ""):
            return Refusal("AccessDeniedException", "is not authorized")

    gate.faults.append(fault)

    async def main():
        transport = await SqsTransport.open(gate.url(prefix), clock=SystemClock(), bounds=SOON)
        with pytest.raises(DeliveryUnavailableError, match=f"the credentials may not do {denied}"):
            await transport.send("echo", bodies(1))
        await transport.close()

    asyncio.run(main())
    assert not gate.forward("ListQueues", {"QueueNamePrefix": prefix}).get("QueueUrls")


@pytest.mark.parametrize("missing", ["botocore", "aiohttp"])
def test_without_its_libraries_the_extra_is_named(missing):
    run = (
        f"import sys, asyncio; sys.modules[{missing!r}] = None\n"
        "from forebay.brokers.sqs import SqsTransport\n"
        "from forebay.clock import SystemClock\n"
        "try: asyncio.run(SqsTransport.open('sqs://eu-central-1/x', clock=SystemClock()))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.stdout.strip() == 'ConfigError broker: sqs:// needs an extra: pip install "forebay[sqs]"', (
        done.stderr
    )
