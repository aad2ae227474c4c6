"""A store that cannot be used: one clear line, no password in it, and nothing made by halves."""

import asyncio
import socket
import sys

import pytest

from forebay.brokers.redis import RedisBroker, address, opening
from forebay.brokers.redis.address import Address
from forebay.clock import SystemClock
from forebay.config import Settings, shown
from forebay.errors import ConfigError, ForebayError, StoreUnavailableError, StoreVersionError
from tests.brokers.postgres.engines import StandingClock
from tests.brokers.redis.server import RedisServer
from tests.brokers.shared.faults import WAIT_MAX_S
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.engines


def refused(url):
    """Return the error of an opening that must fail, with one line and no secret."""
    with pytest.raises(ForebayError) as caught:
        asyncio.run(opened(url))
    text = str(caught.value)
    assert "\n" not in text and "hush" not in text and len(text) < 500, text
    return caught.value


async def opened(url):
    """Open a store, close it, and return what it can do."""
    broker = await RedisBroker.open(url, clock=StandingClock())
    await broker.close()
    return broker.capabilities


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hush@[::1/0",
        "redis://u:hush@127.0.0.1:port/0",
        "redis://u:hush@127.0.0.1:1/db",
        "redis://u:hush@127.0.0.1:1/0?no_such_parameter=1",
        "redis://u:hush@127.0.0.1:1/0?name=a%7Db",
        "redis://u:hush@127.0.0.1:1/0?name=",
        "redis:///0",
        "redis:",
    ],
)
def test_a_url_that_cannot_be_read_is_a_mistake_of_settings(url):
    assert isinstance(refused(url), ConfigError)


def test_a_server_that_is_not_there_is_named():
    port = free_port()
    error = refused(f"redis://u:hush@127.0.0.1:{port}/0")
    assert isinstance(error, StoreUnavailableError)
    assert f"redis://127.0.0.1:{port}/0" in str(error) and "refused" in str(error).lower()


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("forebay.brokers.redis.connections.CONNECT_MAX_S", 0.3)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        error = refused(f"redis://u:hush@127.0.0.1:{deaf.getsockname()[1]}/0")
    assert isinstance(error, StoreUnavailableError)


def test_a_wrong_password_is_told(server):
    text = str(refused(server.url("not_mine", user="nobody:hush@")))
    assert "username-password" in text
    assert server.keys("not_mine") == {}


def test_a_database_that_is_not_there_is_told(server):
    assert "DB index" in str(refused(server.url().replace("/0?", "/999?")))


def test_a_user_without_rights_is_told_so_and_leaves_nothing(server):
    server.ask("ACL", "SETUSER", "poor", "on", ">hush", "~*", "&*", "+@all", "-zadd")
    server.ask("ACL", "SETUSER", "deaf", "on", ">hush", "~*", "resetchannels", "+@all")
    server.ask("ACL", "SETUSER", "apart", "on", ">hush", "~other*", "&*", "+@all")
    for user in ("poor", "deaf", "apart"):
        text = str(refused(server.url("not_mine", user=f"{user}:hush@")))
        assert "may not do what is needed" in text, text
        assert server.keys("not_mine") == {}


def test_an_old_server_is_refused(server, monkeypatch):
    monkeypatch.setattr(opening, "SERVER_MIN", 99)
    error = refused(server.url("old"))
    assert isinstance(error, StoreVersionError) and "99 or newer" in str(error)
    assert server.keys("old") == {}


def test_a_store_of_a_newer_version_is_left_alone(server):
    asyncio.run(opened(server.url("newer")))
    server.ask("HSET", "{newer}:meta", "version", "1000")
    error = refused(server.url("newer"))
    assert isinstance(error, StoreVersionError) and "version 1000" in str(error)


def test_a_replica_is_refused(server):
    one = RedisServer()
    try:
        one.start(replicaof=f"127.0.0.1 {server.port}")
        assert "a replica takes no jobs" in str(refused(one.url()))
    finally:
        one.stop()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_server_that_throws_keys_away_is_refused(policy):
    one = RedisServer()
    try:
        one.start(**{"maxmemory-policy": policy})
        assert policy in str(refused(one.url())) and one.keys("forebay") == {}
    finally:
        one.stop()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, ""),
        ({"appendfsync": "everysec"}, "second or two"),
        ({"appendfsync": "no"}, "appendfsync is no"),
        ({"appendonly": "no"}, "appendonly is off"),
    ],
)
def test_what_a_crash_loses_is_said(settings, named):
    one = RedisServer()
    try:
        one.start(**settings)
        can = asyncio.run(opened(one.url()))
        assert can.durable is (not named) and named in can.lost and bool(can.lost) is bool(named)
    finally:
        one.stop()


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r'pip install "forebay\[redis\]"'):
        address.Address.of("redis://127.0.0.1/0")


def test_settings_that_are_shown_keep_the_password():
    assert shown(Settings(broker="redis://u:hush@h:1/0"))["broker"] == "redis://u:***@h:1/0"


def test_stores_of_one_name_in_two_databases_do_not_hear_each_other():
    def channel(path):
        return Address.of(f"redis://127.0.0.1:6379{path}").channel

    assert channel("") == channel("/0") == channel("/00") == "{forebay}:bells"
    assert channel("/5") == channel("/05") == "{forebay}:bells:5"
    assert channel("/5?name=jobs") == "{jobs}:bells:5"


def test_servers_on_two_databases_listen_on_a_channel_each(server):
    clock = SystemClock()

    async def run():
        other = await RedisBroker.open(server.url().replace("/0?", "/7?"), clock=clock)
        here = await RedisBroker.open(server.url(), clock=clock)
        try:
            channels = ["{forebay}:bells", "{forebay}:bells:7"]
            asked = ("PUBSUB", "NUMSUB", *channels)
            await asyncio.to_thread(
                until, lambda: server.ask(*asked)[1::2] == [1, 1], WAIT_MAX_S, "both listen"
            )
        finally:
            await here.close()
            await other.close()

    asyncio.run(run())
