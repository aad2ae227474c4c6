"""What is purged on Redis, where all that is kept costs memory."""

import pytest

from forebay.core.retention import Retention
from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines


def test_what_is_purged_leaves_no_key_behind(server):
    async def body(broker, *_):
        jobs = [
            a_job(
                broker,
                tenant="a",
                idempotency_key=f"k{n}",
                ordering_key="o",
                fingerprint=b"f%d" % n,
                callback_url="http://h/x",
                payload=b'{"$blob":"%s"}' % (b"0" * 56),
            )
            for n in range(5)
        ]
        await broker.enqueue(jobs, now=clock.now())
        while leases := await lease(broker):
            assert all(await finish(broker, leases))
        assert await broker.purge([job.id for job in jobs], limit=1, now=clock.now()) == 5
        # Ids are remembered for a week, and whose they were; nothing else is.
        assert set(server.keys("left_over")) == {"meta", "gone", "gone:n"}

    shared(server, "left_over", body, count=1)


def test_a_job_that_very_many_keys_mean_does_not_grow_and_is_purged_in_parts(server):
    async def body(broker):
        now = clock.now()

        def same(n):
            return a_job(broker, fingerprint=b"f", idempotency_key=f"k{n}", body_hash=b"1", cache_s=60.0)

        first = same(0)
        await broker.enqueue([first], now=now)
        assert await finish(broker, await lease(broker)) == [True]
        small = server.client().memory_usage("{joined}:j:" + first.id)
        again = await broker.enqueue([same(n) for n in range(1, 2_500)], now=now)
        assert {one.job_id for one in again} == {first.id}
        assert server.client().memory_usage("{joined}:j:" + first.id) == small
        assert len(await broker.leaving.keys([first.id])) == 2_500
        broker._keeping.of_all = Retention(0.0, 0.0)  # its time is over
        assert [await broker.purge(limit=10, now=now) for _ in range(3)] == [0, 1, 0]
        assert set(server.keys("joined")) == {"meta", "gone"}

    shared(server, "joined", body, count=1)
