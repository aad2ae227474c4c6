"""Counts on PostgreSQL are differences that are summed up, and a place far back in a line is an estimate."""

import asyncio

import pytest

from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines


def test_long_lists_of_differences_are_summed_up_and_stay_true(server):
    async def body(first, second, _):
        for broker in (first, second) * 100:
            await broker.enqueue([a_job(broker)], now=clock.now())
            await finish(broker, await lease(broker))
        while server.sql("SELECT count(*) FROM sums.tallies")[0][0] > 400:
            await asyncio.sleep(0.05)
        assert (await first.depth("echo", now=clock.now())).queued == 0

    shared(server, "sums", body, count=3)


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
