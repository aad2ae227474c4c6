"""How PostgreSQL goes about what it is asked: a table that grew since its statistics were taken misleads nobody."""

import pytest

from forebay.core.fairness import Share
from forebay.core.job import Claim
from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines

NAMED = ("::uuid", "id = ANY(%s")  # a statement that says which jobs it is about
GOOD = {"jobs_pkey", "jobs_chains", "jobs_chained"}


def test_what_names_its_jobs_goes_to_them_by_their_ids_and_not_along_all_that_run_or_wait(server, asked):
    async def body(broker):
        await broker.enqueue([a_job(broker) for _ in range(2_000)], now=clock.now())
        server.sql("ANALYZE plans.jobs")  # of a moment when nothing runs
        leases = await lease(broker, limit=512)
        claims = [Claim(one.job.id, one.fence) for one in leases]
        await broker.extend(claims, lease_s=30.0, now=clock.now())
        await finish(broker, leases[:1])
        await finish(broker, leases[1:256])
        broker.set_shares({"other": Share(running_max=1)})  # from now on leases are chosen, then granted
        assert len(await lease(broker, limit=256)) == 256
        waiting = [a_job(broker, ordering_key="a") for _ in range(2)]
        await broker.enqueue(waiting, now=clock.now())
        assert await broker.waits_for(waiting[1].id, now=clock.now()) == waiting[0].id
        await broker.hinted.still_queued([waiting[0].id])
        await broker.cancel([one.id for one in waiting], now=clock.now())
        await _check(broker, asked)

    shared(server, "plans", body, count=1)


async def _check(broker, asked):
    named = {query: params for query, params in asked.items() if any(mark in query for mark in NAMED)}
    assert len(named) > 8
    connection = await broker._store.connections.connect()
    try:
        for query, params in named.items():
            cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) {query}", params, prepare=False)
            ((plans,),) = await cursor.fetchall()
            used = {node.get("Index Name") for node in _nodes(plans[0]["Plan"]) if _reads_jobs(node)}
            assert used <= GOOD, query
    finally:
        await connection.close()


def _nodes(node):
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _reads_jobs(node):
    return node.get("Relation Name") == "jobs" and "Scan" in node["Node Type"]
