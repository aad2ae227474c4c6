"""A NATS server that cannot be used: one clear line, no password in it, and nothing made by halves."""

import asyncio
import socket
import sys

import pytest

from forebay.brokers.nats import Address, NatsTransport, link, streams
from forebay.config import Settings, shown
from forebay.errors import ConfigError, DeliveryUnavailableError, ForebayError
from tests.brokers.nats.server import NatsServer
from tests.ports import free_port

pytestmark = pytest.mark.engines


def refused(url):
    """Return the error of an opening that must fail, with one line and no secret."""
    with pytest.raises(ForebayError) as caught:
        asyncio.run(opened(url))
    text = str(caught.value)
    assert "\n" not in text and "hush" not in text and len(text) < 500, text
    return caught.value


async def opened(url):
    """Open and close."""
    transport = await NatsTransport.open(url)
    await transport.close()


@pytest.mark.parametrize(
    "url",
    [
        "nats://u:hush@[::1",
        "nats://u:hush@127.0.0.1:port",
        "nats://u:hush@127.0.0.1:1/path",
        "nats://u:hush@127.0.0.1:1?no_such_parameter=1",
        "nats://u:hush@127.0.0.1:1?prefix=a.b",
        "nats://u:hush@127.0.0.1:1?prefix=",
        "nats://u:hush@127.0.0.1:1?replicas=0",
        "nats://u:hush@127.0.0.1:1?replicas=many",
        "nats://u:hush@127.0.0.1:1?ca=file",
        "tls://u:hush@127.0.0.1:1?ca=/no/such/file",
        "nats://u:hush@a:1,:2",
        "nats://u:hush@a:1,u:hush@b:2",
        "nats://",
        "nats:",
    ],
)
def test_a_url_that_cannot_be_read_is_a_mistake_of_settings(url):
    assert isinstance(refused(url), ConfigError)


def test_a_url_names_servers_and_who_we_are_there():
    one = Address.of("nats://me:p%40ss@a:1,b,[::1]:3?prefix=mine&replicas=3")
    assert one.servers == ("a:1", "b:4222", "[::1]:3")
    assert (one.user, one.password, one.prefix, one.replicas) == ("me", "p@ss", "mine", 3)
    assert one.label == "nats://a:1,b:4222,[::1]:3"
    assert Address.of("nats://token@a").user == "token" and Address.of("nats://token@a").password is None


def test_names_of_tasks_are_told_apart_in_subjects():
    names = [
        "a.b",
        "a-b",
        "a_b",
        "a.b.c",
        "ab",
        "A.b",
        "a..b",
        "_a",
        "a.",
        ".a",
        "a=b",
        "a%b",
        "a%3Db",
        "a%%b",
    ]
    names += [
        "a*",
        ">",
        "a b",
        "a/b",
        "a\\b",
        "\u00e9",
        "\U0001f98a",
        "a\n",
        "a\0b",
        "a~b",
        "x" * 300,
        "y" * 300,
    ]
    tokens = [streams.token(name) for name in names]
    assert len(set(tokens)) == len(names) and all(0 < len(token) <= 200 for token in tokens)
    assert not [c for token in tokens for c in token if not (c.isascii() and c.isalnum()) and c not in "_-=~"]
    assert streams.token("vision.read_page-2") == "vision=read_page-2"


def test_a_server_that_is_not_there_is_named():
    port = free_port()
    error = refused(f"nats://u:hush@127.0.0.1:{port}")
    assert isinstance(error, DeliveryUnavailableError)
    assert f"nats://127.0.0.1:{port}" in str(error) and "refused" in str(error).lower()


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(link, "CONNECT_MAX_S", 0.3)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        error = refused(f"nats://u:hush@127.0.0.1:{deaf.getsockname()[1]}")
    assert isinstance(error, DeliveryUnavailableError) and "in time" in str(error)


def test_what_is_no_nats_server_is_told():
    async def run():
        async def greet(reader, writer):
            writer.write(b"220 mail.example\r\n")
            await reader.read()
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as mail:
            with pytest.raises(DeliveryUnavailableError, match="INFO"):
                await opened("nats://127.0.0.1:%d" % mail.sockets[0].getsockname()[1])

    asyncio.run(run())


def test_a_server_without_jetstream_is_told_so(each):
    one = NatsServer(each.program, jetstream=None)
    try:
        one.start()
        assert "JetStream is not enabled" in str(refused(one.url()))
    finally:
        one.stop()


def test_wrong_credentials_and_a_user_without_rights_are_told_and_leave_nothing(each):
    api = ["$JS.API.INFO", "$JS.API.STREAM.INFO.>", "_INBOX.>"]
    users = [
        {"user": "all", "password": "hush"},
        {"user": "poor", "password": "hush", "permissions": {"publish": api, "subscribe": ["_INBOX.>"]}},
        {"user": "deaf", "password": "hush", "permissions": {"publish": [">"], "subscribe": ["other"]}},
        {
            "user": "half",
            "password": "hush",
            "permissions": {"publish": {"deny": "$JS.API.STREAM.CREATE.forebay-dead"}},
        },
    ]
    one = NatsServer(each.program, authorization={"users": users})
    try:
        one.start()
        assert "uthorization" in str(refused(one.url(user="nobody:hush@")))
        assert "uthorization" in str(refused(one.url()))
        for user, line in (("poor", "stream.create"), ("deaf", "subscription"), ("half", "forebay-dead")):
            text = str(refused(one.url(user=f"{user}:hush@")))
            assert "permissions violation" in text.lower() and line in text.lower(), text
            assert one.streams("all:hush@") == []
        asyncio.run(opened(one.url(user="all:hush@")))
        assert one.streams("all:hush@") == ["forebay", "forebay-dead"]
    finally:
        one.stop()


def test_a_token_stands_in_the_place_of_a_user():
    one = NatsServer(authorization={"token": "hush"})
    try:
        one.start()
        asyncio.run(opened(one.url(user="hush@")))
        assert "uthorization" in str(refused(one.url(user="other@")))
    finally:
        one.stop()


def test_the_rights_that_the_docs_name_are_enough():
    publish = ["$JS.API.>", "$JS.ACK.>", "forebay.hint.>", "forebay.dead.>"]
    rights = {"publish": publish, "subscribe": ["_INBOX.>"]}
    users = [{"user": "just", "password": "hush", "permissions": rights}]
    one = NatsServer(authorization={"users": users})

    async def run():
        transport = await NatsTransport.open(one.url(user="just:hush@"))
        await transport.send("a.b", [b"1", b"2"])
        await transport.bury("a.b", [b"3"])
        hints = await transport.receive("a.b", limit=2, wait_s=10.0)
        await transport.give_back("a.b", hints[:1], delay_s=0.0)
        hints = [*hints[1:], *await transport.receive("a.b", limit=2, wait_s=10.0)]
        await transport.ack("a.b", hints)
        while await transport.depth("a.b"):
            pass
        await transport.forget("a.b")
        await transport.close()

    try:
        one.start()
        asyncio.run(run())
    finally:
        one.stop()


def test_an_old_server_is_refused(server, monkeypatch):
    monkeypatch.setattr(streams, "SERVER_MIN", (99, 0))
    error = refused(server.url("old"))
    assert isinstance(error, DeliveryUnavailableError) and "99.0 or newer" in str(error)
    assert "old" not in server.streams()


def test_more_replicas_than_servers_are_refused_and_leave_nothing(each):
    text = str(refused(each.url("three", replicas=3)))
    assert "replicas" in text
    assert "three" not in each.streams()


def test_a_stream_of_somebody_elses_is_left_alone(own):
    own.api("STREAM.CREATE.forebay", {"name": "forebay", "subjects": ["other.>"]})
    text = str(refused(own.url()))
    assert "another stream 'forebay'" in text and "prefix=" in text
    own.api("STREAM.CREATE.wide", {"name": "wide", "subjects": ["mine.>"]})
    assert "overlap" in str(refused(own.url("mine")))
    own.api("STREAM.CREATE.both-dead", {"name": "both-dead", "subjects": ["third.>"]})
    assert "another stream 'both-dead'" in str(refused(own.url("both")))
    assert own.streams() == ["both-dead", "forebay", "wide"]


def test_a_consumer_that_would_take_hints_elsewhere_is_refused(own):
    async def run():
        one = await NatsTransport.open(own.url())
        await one.depth("kept")
        config = {"durable_name": "echo", "filter_subject": "forebay.hint.echo", "ack_policy": "none"}
        for settings in (
            {**config, "ack_policy": "explicit", "deliver_subject": "elsewhere"},
            {**config, "ack_policy": "explicit", "filter_subject": "forebay.hint.other"},
        ):
            made = await asyncio.to_thread(
                own.api,
                "CONSUMER.DURABLE.CREATE.forebay.echo",
                {"stream_name": "forebay", "config": settings},
            )
            assert "error" not in made
            with pytest.raises(DeliveryUnavailableError, match="another consumer 'echo'"):
                await one.receive("echo", limit=1, wait_s=0.0)
            await one.forget("echo")
        assert await one.receive("echo", limit=1, wait_s=0.0) == []
        await one.close()

    asyncio.run(run())


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigError, match=r'pip install "forebay\[nats\]"'):
        Address.of("nats://127.0.0.1")


def test_settings_that_are_shown_keep_the_password():
    assert shown(Settings(broker="nats://u:hush@h:1"))["broker"] == "nats://u:***@h:1"
    assert shown(Settings(broker="nats://hush@h:1,i:2"))["broker"] == "nats://***@h:1,i:2"
