"""Names that lead inside: refused when they are looked up, at every try, whatever they said before."""

import asyncio
from ipaddress import ip_address

import pytest

from forebay.core.callback import CallbackRules
from forebay.core.outbox import DeliveryState
from tests.webhooks.receivers import INSIDE, Post, Receiver, eventually
from tests.webhooks.test_sender import SLOW

PUBLIC = CallbackRules()
HOOK = "https://hooks.example/x"


def resolving(*answers):
    """Return a resolver that gives each answer in turn, the last one from then on."""
    asked = []

    async def resolve(_host, _port):
        asked.append(1)
        found = answers[min(len(asked), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return [ip_address(each) for each in found]

    return resolve


def first_try(*answers, url=HOOK, rules=PUBLIC):
    async def run():
        async with asyncio.timeout(30), Post(rules=rules, resolve=resolving(*answers), policy=SLOW) as office:
            job_id = await office.ended(url)
            await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
            return (await office.row(job_id)).log[0]

    return asyncio.run(run())


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
     "fe80::1%eth0", "fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "224.0.0.1"],
)  # fmt: skip
def test_a_name_that_leads_inside_is_refused(address):
    assert first_try([address]).detail.startswith("refused: ")


def test_one_bad_address_among_good_ones_refuses_the_name():
    assert first_try(["8.8.8.8", "127.0.0.1"]).detail == "refused: 127.0.0.1 is loopback"


@pytest.mark.parametrize("error", [OSError(-2, "Name or service not known"), UnicodeError("label too long")])
def test_a_name_that_cannot_be_resolved_is_a_failed_try(error):
    assert "cannot be resolved" in first_try(error).detail


def test_a_name_without_addresses_is_a_failed_try():
    assert "no address" in first_try([]).detail


def test_a_stored_url_that_the_rules_no_longer_allow_is_not_sent():
    async def run():
        async with asyncio.timeout(30), Receiver() as canary:
            async with Post(rules=PUBLIC, policy=SLOW) as office:
                job_id = await office.ended(canary.url)
                await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
                assert (await office.row(job_id)).log[0].detail.startswith("refused: the URL must")
            assert canary.connections == 0

    asyncio.run(run())


def test_a_name_that_is_looked_up_anew_cannot_be_bent_between_check_and_connection():
    """One look-up a connection: the checked address is the one that is connected to."""

    async def run():
        async with asyncio.timeout(30), Receiver() as receiver:
            resolve = resolving(["127.0.0.1"], ["169.254.169.254"])
            async with Post(rules=INSIDE, resolve=resolve) as office:
                row = await office.settled(await office.ended(f"http://bent.example:{receiver.port}/x"))
                assert row.state is DeliveryState.DELIVERED
                assert office.looked_up == ["bent.example"]
                ((headers, _),) = receiver.requests
                assert headers["host"] == f"bent.example:{receiver.port}"

    asyncio.run(run())


def test_a_name_is_checked_again_at_the_next_try():
    async def closing(_receiver, _reader, writer, _number):
        writer.write(b"HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run():
        async with asyncio.timeout(30), Receiver(closing) as receiver:
            resolve = resolving(["127.0.0.1"], ["169.254.169.254"])
            async with Post(rules=INSIDE, resolve=resolve) as office:
                row = await office.settled(await office.ended(f"http://bent.example:{receiver.port}/x"))
                assert row.state is DeliveryState.GIVEN_UP
                assert row.log[0].status == 500
                assert row.log[1].detail == "refused: 169.254.169.254 is link-local"
                assert receiver.connections == 1

    asyncio.run(run())


def test_a_look_up_that_hangs_is_left(monkeypatch):
    monkeypatch.setattr("forebay.webhooks.address.RESOLVE_S", 0.2)

    async def hangs(_host, _port):
        await asyncio.sleep(3600)

    async def run():
        async with asyncio.timeout(30), Post(rules=PUBLIC, resolve=hangs, policy=SLOW) as office:
            job_id = await office.ended(HOOK)
            await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
            assert "not resolved in" in (await office.row(job_id)).log[0].detail

    asyncio.run(run())


def test_the_second_address_is_tried_when_the_first_is_dead():
    async def run():
        async with asyncio.timeout(30), Receiver() as receiver:
            resolve = resolving(["127.0.0.2", "127.0.0.1"])  # nobody listens at the first
            async with Post(rules=INSIDE, resolve=resolve) as office:
                row = await office.settled(await office.ended(f"http://two.example:{receiver.port}/x"))
                assert row.state is DeliveryState.DELIVERED

    asyncio.run(run())


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async def run():
        async with asyncio.timeout(30), Receiver() as proxy, Receiver() as receiver:
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            async with Post() as office:
                await office.settled(await office.ended(receiver.url))
            assert (proxy.connections, len(receiver.requests)) == (0, 1)

    asyncio.run(run())
