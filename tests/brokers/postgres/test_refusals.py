"""A store that cannot be used: one clear line, no password in it, and nothing made by halves."""

import asyncio
import builtins
import socket

import pytest

from forebay.brokers.postgres import PostgresBroker, address, opening
from forebay.config import Settings, shown
from forebay.errors import ConfigError, ForebayError, StoreUnavailableError, StoreVersionError
from tests.brokers.postgres.engines import StandingClock
from tests.ports import free_port

pytestmark = pytest.mark.engines


def refused(url):
    """Return the error of an opening that must fail, with one line and no secret."""

    async def opened():
        broker = await PostgresBroker.open(url, clock=StandingClock())
        await broker.close()

    with pytest.raises(ForebayError) as caught:
        asyncio.run(opened())
    text = str(caught.value)
    assert "\n" not in text and "hush" not in text and len(text) < 500, text
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush%zz@127.0.0.1:1/db",
        "postgresql://u:hush@[::1/db",
        "postgresql://u:hush@127.0.0.1:1/db?no_such_parameter=1",
        "postgresql://u:hush@127.0.0.1:1/db?schema=Upper",
        "postgresql://u:hush@127.0.0.1:1/db?schema=pg_mine",
        "postgresql://u:hush@127.0.0.1:1/db?schema=a%22b",
    ],
)
def test_a_url_that_cannot_be_read_is_a_mistake_of_settings(url):
    assert isinstance(refused(url), ConfigError)


def test_a_server_that_is_not_there_is_named():
    port = free_port()
    error = refused(f"postgresql://u:hush@127.0.0.1:{port}/db")
    assert isinstance(error, StoreUnavailableError)
    assert f"postgresql://127.0.0.1:{port}/db" in str(error) and "refused" in str(error)


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("forebay.brokers.postgres.connections.CONNECT_MAX_S", 0.3)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        error = refused(f"postgresql://u:hush@127.0.0.1:{deaf.getsockname()[1]}/db")
    assert "did not answer in time" in str(error)


def test_a_database_that_is_not_there_is_named(server):
    assert "nowhere" in str(refused(server.url(database="nowhere")))


def test_a_role_without_rights_is_told_so_and_leaves_nothing(server):
    server.sql("DROP ROLE IF EXISTS poor", "CREATE ROLE poor LOGIN")
    text = str(refused(server.url("not_mine", user="poor")))
    assert "'poor'" in text and "'not_mine'" in text and "permission denied" in text
    server.sql("CREATE SCHEMA IF NOT EXISTS half")
    server.sql("GRANT USAGE ON SCHEMA half TO poor")
    assert "permission denied" in str(refused(server.url("half", user="poor")))
    assert server.sql(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('half', 'not_mine')"
    ) == [(0,)]


def test_an_old_server_is_refused(server, monkeypatch):
    monkeypatch.setattr(opening, "SERVER_MIN", 99)
    error = refused(server.url("old"))
    assert isinstance(error, StoreVersionError) and "99 or newer" in str(error)
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'old'") == [(0,)]


def test_a_schema_of_a_newer_version_is_left_alone(server):
    async def made():
        await (await PostgresBroker.open(server.url("newer"), clock=StandingClock())).close()

    asyncio.run(made())
    server.sql("UPDATE newer.meta SET version = 1000")
    error = refused(server.url("newer"))
    assert isinstance(error, StoreVersionError) and "version 1000" in str(error)


def test_a_migration_that_fails_leaves_nothing(server, monkeypatch):
    monkeypatch.setattr(
        opening, "steps_from", lambda version, schema: "CREATE TABLE jobs (id int); SELECT 1 / 0"
    )
    assert "division by zero" in str(refused(server.url("broken")))
    assert server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'broken'") == [(0,)]


def test_servers_that_open_at_once_make_one_schema(server):
    async def opened():
        brokers = await asyncio.gather(
            *(PostgresBroker.open(server.url("together"), clock=StandingClock()) for _ in range(6))
        )
        for broker in brokers:
            await broker.close()

    asyncio.run(opened())
    assert server.sql("SELECT count(*) FROM together.meta") == [(1,)]


def test_without_the_driver_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "psycopg":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r'pip install "forebay\[postgres\]"'):
        address.Address.of("postgresql://127.0.0.1/db")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://u:hush@h:1/db", "postgresql://u:***@h:1/db"),
        ("postgresql://u@h/db?password=hush&x=1", "postgresql://u@h/db?password=***&x=1"),
        ("postgresql://h/db?sslpassword=hush", "postgresql://h/db?sslpassword=***"),
        ("sqlite:///x", "sqlite:///x"),
    ],
)
def test_settings_that_are_shown_keep_the_password(url, told):
    assert shown(Settings(broker=url))["broker"] == told
