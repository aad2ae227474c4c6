"""What is purged on Redis, where all that is kept costs memory."""

import pytest

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
