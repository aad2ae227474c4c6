"""Pub/Sub when things go wrong: state that is lost, deadlines that pass, forged messages, what cannot be used."""

import asyncio

import google.auth
import pytest
from google.auth.exceptions import DefaultCredentialsError

from forebay.brokers.pubsub import PubSubTransport
from forebay.brokers.pubsub import transport as module
from forebay.conformance.hinting import bodies, none_left, received, same, seconds
from forebay.errors import DeliveryUnavailableError
from forebay.ports.transport import BODY_MAX, Hint
from tests.brokers.pubsub.places import PubSubPlace
from tests.brokers.pubsub.servers import Server
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(120)]


def on(server, test, url="pubsub://basin"):
    async def run():
        async with PubSubPlace(server, url) as place:
            await test(place)

    asyncio.run(run())


async def until(condition, what, wait_max_s=60.0):
    ends_at = seconds() + wait_max_s
    while not await condition():
        assert seconds() < ends_at, what
        await asyncio.sleep(0.05)


@pytest.fixture
def mortal(service):
    one = type(service)()
    try:
        yield one.start()
    finally:
        one.stop()


def test_no_more_pulls_wait_at_once_than_leave_room_for_other_requests(service, monkeypatch):
    monkeypatch.setattr(module, "PULLS_MAX", 2)

    async def check(place):
        transport = await place.open()
        tasks = [place.task() for _ in range(5)]
        for task in tasks:
            await transport.send(task, bodies(1))
            assert await received(transport, task, 1)
        at_once, most, pull = 0, 0, transport._service.pull

        async def counted(name, limit):
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return await pull(name, limit)
            finally:
                at_once -= 1

        monkeypatch.setattr(transport._service, "pull", counted)
        waits = [transport.receive(task, limit=1, wait_s=1.0) for task in tasks]
        assert await asyncio.gather(*waits) == [[]] * 5
        assert most == 2

    on(service, check)


def test_a_service_that_lost_everything_is_gone_on_with(mortal):
    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(3))
        held = await received(transport, task, 3)
        mortal.halt()
        with pytest.raises(DeliveryUnavailableError) as caught:
            await transport.send(task, bodies(1))
        assert "\n" not in str(caught.value)
        await asyncio.to_thread(mortal.start)

        async def sent():
            try:
                await transport.send(task, bodies(1, start=7))
            except DeliveryUnavailableError:
                return False
            return True

        await until(sent, "it sends again")
        await ignored(transport.ack(task, held))
        await ignored(transport.give_back(task, held, delay_s=0))
        found = set()

        async def came():
            try:
                hints = await transport.receive(task, limit=10, wait_s=0.5)
            except DeliveryUnavailableError:
                return False
            await transport.ack(task, hints)
            found.update(hint.body for hint in hints)
            return b"hint 7" in found

        await until(came, "what is sent arrives")

    on(mortal, check)


async def ignored(verb):
    """Hints of a service that forgot them are passed over, or refused; both are allowed."""
    try:
        await verb
    except DeliveryUnavailableError:
        return


def test_a_topic_that_somebody_removed_is_made_again_with_a_subscription_that_hears_it(service):
    async def check(place):
        task, transport = place.task(), await place.open()
        await transport.send(task, bodies(1))
        topic = transport._address.topic(transport._address.name(task))
        await transport._service._publisher.delete_topic(request={"topic": topic}, timeout=5)
        await transport.send(task, bodies(2, start=1))
        hints = await received(transport, task, 2)
        assert {hint.body for hint in hints} >= set(bodies(2, start=1))

    on(service, check)


def test_a_hint_whose_deadline_passed_comes_again_and_its_old_acknowledgement_is_passed_over(service):
    async def check(place):
        task, opened = place.task(), await place.open()
        address = opened._address._replace(deadline_s=10.0)
        transport = PubSubTransport(address, service.address)
        place.opened.append(transport)
        await transport._service.connect()
        await transport.send(task, bodies(1))
        held = await received(transport, task, 1)
        again = await received(transport, task, 1)
        same(again, bodies(1), "what came again")
        assert again[0].token != held[0].token
        await transport.ack(task, held)
        await transport.ack(task, [*again, Hint(b"", object())])
        await none_left(transport, task)

    on(service, check)


def test_what_is_no_hint_or_came_twice_is_handed_out_and_done_with(service):
    async def check(place):
        task, transport = place.task(), await place.open()
        forged = [b"", b"x" * 200_000, b"same", b"same"]
        await transport.send(task, forged)
        hints = []
        while len(hints) < 4:
            hints += await transport.receive(task, limit=10, wait_s=1.0)
        assert sorted(len(hint.body) for hint in hints) == [0, 4, 4, BODY_MAX + 1]
        await transport.ack(task, hints)
        await transport.ack(task, hints)
        await transport.give_back(task, [Hint(b"", object())], delay_s=0.0)
        await none_left(transport, task)

    on(service, check)


def test_what_came_for_somebody_who_asks_no_more_goes_back(service, monkeypatch):
    monkeypatch.setattr(module, "UNASKED_S", 0.1)

    async def check(place):
        task, transport, other = place.task(), await place.open(), await place.open()
        await transport.receive(task, limit=1, wait_s=0.0)  # its pull goes on
        await transport.send(task, bodies(1))
        hints = await received(other, task, 1)
        await other.ack(task, hints)

    on(service, check)


def refused(url, server):
    with pytest.raises(DeliveryUnavailableError) as caught:
        asyncio.run(PubSubTransport.open(url, server))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500 and text.startswith("pubsub://"), text
    return text


def test_a_service_that_is_not_there_is_one_line():
    assert "refused" in refused("pubsub://basin", f"127.0.0.1:{free_port()}")


def test_a_project_that_may_not_be_used_or_is_unknown_is_one_line(service):
    if not is_fake(service):  # the emulator allows everything
        return
    assert "not authorized" in refused("pubsub://forbidden", service.address)
    assert "project not found" in refused("pubsub://unknown", service.address)


def is_fake(server: Server):
    return server.name == "fake"


def test_without_credentials_it_says_so(monkeypatch):
    def default():
        raise DefaultCredentialsError("Your default credentials were not found.\nTo set them up …")

    monkeypatch.setattr(google.auth, "default", default)
    assert "credentials were not found. To set" in refused("pubsub://basin", None)
