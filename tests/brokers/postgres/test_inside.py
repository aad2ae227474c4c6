"""A job in somebody's own transaction: with their rows or not at all, heard of at the commit, harmless when refused."""

import asyncio
import threading

import psycopg
import pytest
from psycopg.rows import dict_row

import forebay
from forebay.brokers.postgres import PostgresBroker
from forebay.brokers.postgres.schema import VERSION
from forebay.clock import SystemClock
from forebay.errors import (
    ConfigError,
    ForebayError,
    IdempotencyConflictError,
    InvalidError,
    StoreVersionError,
)
from tests.waiting import until

pytestmark = pytest.mark.engines
WAIT_MAX_S = 60.0
SCHEMA = "inside"
clock = SystemClock()


@pytest.fixture
def url(server):
    """Return the address of a database with an empty store, and a table of the user's own."""
    server.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", "DROP TABLE IF EXISTS invoices")
    on_broker(server, lambda broker: asyncio.sleep(0))
    server.sql("CREATE TABLE invoices (id int)")
    return server.url().partition("?")[0]


def on_broker(server, work):
    async def run():
        broker = await PostgresBroker.open(server.url(SCHEMA), clock=clock)
        try:
            async with asyncio.timeout(WAIT_MAX_S):
                return await work(broker)
        finally:
            await broker.close()

    return asyncio.run(run())


def submit(connection, payload="hi", **more):
    return forebay.postgres.submit(connection, "echo", payload, schema=SCHEMA, **more)


def counted(server):
    return server.sql(f"SELECT (SELECT count(*) FROM {SCHEMA}.jobs), (SELECT count(*) FROM invoices)")[0]


def test_the_job_and_the_row_are_stored_together_or_not_at_all(server, url):
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO invoices VALUES (1)")
        assert submit(connection).new
        assert counted(server) == (0, 0), "nobody sees it before the commit"
        connection.rollback()
        assert counted(server) == (0, 0)
        connection.execute("INSERT INTO invoices VALUES (1)")
        done = submit(connection, {"n": [1, "ä"]}, priority="high", metadata={"a": "b"}, tenant="t", ttl="1h")
    assert counted(server) == (1, 1)

    async def look(broker):
        (lease,) = await broker.lease("echo", limit=5, lease_s=30.0, worker="w", now=clock.now())
        depth = await broker.depth("echo", now=clock.now())
        return lease.job, depth.running

    job, running = on_broker(server, look)
    assert (job.id, job.priority, job.tenant, running) == (done.job_id, 2, "t", 1)
    assert (job.payload.decode(), job.metadata) == ('{"n":[1,"ä"]}', b'{"a":"b"}')
    assert job.expires_at == pytest.approx(job.created_at + 3600)


def test_nodes_hear_of_it_when_it_is_committed(server, url):
    async def hear(broker):
        rung = asyncio.Event()
        broker.on_work(lambda task: rung.set() if task == "echo" else None)
        while not rung.is_set():  # nobody is heard before the connection listens
            await asyncio.to_thread(committed)
            await asyncio.sleep(0.05)

    def committed():
        with psycopg.connect(url) as connection:
            submit(connection)

    on_broker(server, hear)


def test_a_key_means_one_job_and_another_body_leaves_the_transaction_as_it_was(server, url):
    with psycopg.connect(url, row_factory=dict_row) as connection:
        path = connection.execute("SHOW search_path").fetchone()
        first = submit(connection, idempotency_key="k")
        connection.execute("INSERT INTO invoices VALUES (1)")
        again = submit(connection, idempotency_key="k")
        assert (again.job_id, first.new, again.new) == (first.job_id, True, False)
        with pytest.raises(IdempotencyConflictError):
            submit(connection, "other", idempotency_key="k")
        assert connection.execute("SHOW search_path").fetchone() == path
    assert counted(server) == (1, 1)


def test_one_key_in_two_transactions_at_once_makes_one_job(server, url):
    found = []

    def other():
        with psycopg.connect(url) as connection:
            found.append(submit(connection, idempotency_key="k"))

    with psycopg.connect(url) as connection:
        mine = submit(connection, idempotency_key="k")
        thread = threading.Thread(target=other)
        thread.start()
        until(lambda: waiting(server), WAIT_MAX_S, "the other one waits for the end of mine")
    thread.join(WAIT_MAX_S)
    (theirs,) = found
    assert (theirs.job_id, mine.new, theirs.new) == (mine.job_id, True, False)
    assert counted(server)[0] == 1


def waiting(server):
    return server.sql("SELECT count(*) FROM pg_locks WHERE NOT granted")[0][0]


def test_an_async_connection_does_the_same(server, url):
    async def run():
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await forebay.postgres.submit_async(connection, "echo", "hi", schema=SCHEMA)

    assert asyncio.run(run()).new and counted(server)[0] == 1


@pytest.mark.parametrize(
    ("fields", "kind", "told"),
    [
        ({"priorty": 1}, InvalidError, "priorty"),
        ({"priority": 12}, InvalidError, "priority"),
        ({"payload": object()}, InvalidError, "not JSON"),
        ({"ttl": "soon"}, InvalidError, "ttl"),
        ({"schema": "no_such"}, ConfigError, "no_such"),
    ],
)
def test_what_is_refused_leaves_the_transaction_as_it_was(server, url, fields, kind, told):
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO invoices VALUES (1)")
        with pytest.raises(kind) as caught:
            forebay.postgres.submit(connection, "echo", **{"payload": 1, "schema": SCHEMA, **fields})
        problem = caught.value
        assert told in f"{problem} {problem.errors}" and isinstance(problem, ForebayError)
    assert counted(server) == (0, 1)


def test_a_connection_without_a_transaction_and_another_schema_version_are_refused(server, url):
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(ConfigError, match="autocommit"):
            submit(connection)
        with connection.transaction():
            assert submit(connection).new
    with pytest.raises(ConfigError, match="must be a psycopg.Connection"):
        submit(object())
    server.sql(f"UPDATE {SCHEMA}.meta SET version = {VERSION + 1}")
    with psycopg.connect(url) as connection, pytest.raises(StoreVersionError):
        submit(connection)
    assert counted(server)[0] == 1
