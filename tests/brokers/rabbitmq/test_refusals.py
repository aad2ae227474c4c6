"""What cannot be used is said in one line, without a password."""

import asyncio

import pytest

from forebay.brokers.rabbitmq import RabbitTransport
from forebay.brokers.rabbitmq.address import Address
from forebay.config import Settings
from forebay.engines import open_engine
from forebay.errors import ConfigError, DeliveryUnavailableError
from tests.ports import free_port

pytestmark = pytest.mark.timeout(180)


def refused(url, kind):
    with pytest.raises(kind) as caught:
        asyncio.run(RabbitTransport.open(url))
    text = str(caught.value)
    assert "\n" not in text and "secret" not in text, text
    return text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://", "write amqp://"),
        ("amqp://host:port/", "write amqp://"),
        ("amqp://u:secret@host/?colour=red", "no parameter 'colour'"),
        ("amqp://u:secret@host/?prefix=a.b", "prefix must be"),
        ("amqp://u:secret@host/?dead_max=0", "dead_max must be"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(url, said):
    assert said in refused(url, ConfigError)


def test_nobody_there_is_said():
    port = free_port()
    told = refused(f"amqp://u:secret@127.0.0.1:{port}/", DeliveryUnavailableError)
    assert told.startswith(f"broker: amqp://127.0.0.1:{port}/: ") and "Connect" in told, told


def test_a_name_that_nobody_knows_is_said():
    told = refused("amqp://u:secret@nowhere.invalid/", DeliveryUnavailableError)
    assert told.startswith("broker: amqp://nowhere.invalid/: ") and "Unexpected" not in told, told


@pytest.mark.parametrize("name", ["cafile", "certfile"])
def test_a_file_of_the_url_that_cannot_be_read_is_said(name):
    told = refused(f"amqps://u:secret@127.0.0.1:1/?{name}=/nowhere", ConfigError)
    assert "cafile, certfile or keyfile: No such file" in told, told


@pytest.mark.engines
@pytest.mark.parametrize("where", ["vhost", "user"])
def test_a_virtual_host_that_is_not_there_and_a_wrong_password_are_said(rabbit, where):
    url = rabbit.url(vhost="nowhere") if where == "vhost" else rabbit.url(user="guest:secret@")
    told = refused(url, DeliveryUnavailableError)
    assert ("nowhere" if where == "vhost" else "uthentication") in told or "refused" in told, told


class Clock:
    def now(self):
        return 0.0


@pytest.mark.parametrize(
    ("broker", "store", "said"),
    [
        ("amqp://host/", None, "needs a store"),
        ("amqp://host/", "sqlite:here", "has one owner"),
        ("amqp://host/", "kafka://host", "is no store"),
        ("postgresql://host/db", "redis://host", "leave store out"),
        (None, "redis://host", "leave store out"),
    ],
)
def test_a_broker_without_a_store_and_a_store_without_a_broker_are_refused(tmp_path, broker, store, said):
    settings = Settings(broker=broker, store=store, data=str(tmp_path / "data"))
    with pytest.raises(ConfigError, match=said):
        asyncio.run(open_engine(settings, Clock()))
    assert not (tmp_path / "data").exists()


def test_a_session_that_is_let_go_is_closed_to_its_end_though_who_waits_for_it_is_cancelled():
    class Slow:
        def __init__(self):
            self.begun, self.may_end, self.closed = asyncio.Event(), asyncio.Event(), False

        async def close(self):
            self.begun.set()
            await self.may_end.wait()
            self.closed = True

    async def body():
        session = Slow()
        transport = RabbitTransport(Address.of("amqp://127.0.0.1"), session)
        verb = asyncio.ensure_future(transport._end(session))
        await session.begun.wait()
        verb.cancel()
        await asyncio.gather(verb, return_exceptions=True)
        session.may_end.set()
        await transport.close()
        assert session.closed

    asyncio.run(body())
