"""Counts on PostgreSQL are differences that are summed up, and a place far back in a line is an estimate."""

import asyncio

import psycopg
import pytest

from forebay.brokers.postgres.schema import STEPS
from forebay.brokers.postgres.store import SELECT_TALLIES
from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines


READ = "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'tallies'::regclass"


def entries_read(server, schema):
    """Return how many entries of indexes it takes to read the counts, gone ones too."""
    with psycopg.connect(server.url().partition("?")[0]) as reader:
        reader.execute(f"SET search_path TO {schema}")
        reader.execute("SET enable_seqscan = off")
        reader.execute("SET enable_bitmapscan = off")
        reader.execute(SELECT_TALLIES)
        return reader.execute(READ).fetchone()[0]


def test_long_lists_of_differences_are_summed_up_and_stay_true(server):
    async def body(first, second, _):
        for broker in (first, second) * 100:
            await broker.enqueue([a_job(broker)], now=clock.now())
            await finish(broker, await lease(broker))
        while server.sql("SELECT count(*) FROM sums.tallies")[0][0] > 400:
            await asyncio.sleep(0.05)
        assert (await first.depth("echo", now=clock.now())).queued == 0

    shared(server, "sums", body, count=3)


def test_counts_are_not_read_past_what_an_old_transaction_keeps_from_being_cleared_away(server, monkeypatch):
    monkeypatch.setattr("forebay.brokers.postgres.upkeep.DIFFERENCES_MAX", 20)

    async def body(broker):
        with psycopg.connect(server.url().partition("?")[0]) as old:
            old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM pg_class")  # as a backup does: from now on nothing goes away
            for _ in range(8):
                await broker.enqueue([a_job(broker, tenant=f"t{n}") for n in range(100)], now=clock.now())
                await finish(broker, await lease(broker, limit=100))
                await broker._upkeep._sum_up()
            assert (await broker.depth("echo", now=clock.now())).queued == 0
            assert entries_read(server, "old_counts") < 200

    shared(server, "old_counts", body, count=1)


def test_a_place_in_a_long_line_is_counted_near_its_ends_and_estimated_between(server, monkeypatch):
    async def body(broker, *_):
        jobs = [a_job(broker) for _ in range(40)]
        await broker.enqueue(jobs, now=clock.now())
        exact = [await broker.position(job.id, now=clock.now()) for job in jobs]
        assert exact == list(range(1, 41))
        monkeypatch.setattr("forebay.brokers.postgres.reads.COUNTED_MAX", 10)
        about = [await broker.position(job.id, now=clock.now()) for job in jobs]
        assert about[:5] == [1, 2, 3, 4, 5] and about[-5:] == [36, 37, 38, 39, 40]
        assert set(about[5:-5]) == {21}

    shared(server, "long_line", body, count=1)


def test_a_store_of_the_version_before_its_sums_were_noted_is_counted_on(server):
    name, before = "counted_on", "".join(STEPS[:5]).replace("SCHEMA.", '"counted_on".')
    a_row = (
        "INSERT INTO jobs (id, task, payload, created_at, run_at, priority, attempts_max, tenant, body_hash,"
        " metadata, version, cache_s, state, ready_at, size) SELECT gen_random_uuid(), 'echo', '1', 1, 1, 5, 3,"
        " '', '', '', '', 0, 1, 1, 1 FROM generate_series(1, 7)"
    )
    server.drop(name)
    server.sql(f"CREATE SCHEMA {name}", f"SET search_path TO {name}", "CREATE TABLE meta (version int4 NOT NULL)",
               "INSERT INTO meta VALUES (5)", before, a_row, "UPDATE jobs SET priority = 4")  # fmt: skip

    async def run():
        broker = await server.broker(name, clock)
        try:
            assert (await broker.depth("echo", now=clock.now())).queued == 7
            assert len(await lease(broker, limit=5)) == 5
            assert (await broker.depth("echo", now=clock.now()))[:1] == (2,)
        finally:
            await broker.close()

    asyncio.run(run())
    server.check_counts(name)
