"""No statement goes through all jobs of a store, whatever moment its statistics are of, and however it was planned."""

import psycopg
import pytest

from forebay.core.fairness import Share
from forebay.core.job import Claim, Query
from tests.brokers.shared.sharing import a_job, clock, finish, lease, shared

pytestmark = pytest.mark.engines

COUNT = 3_000
SCHEDULED, QUEUED, RUNNING, RETRYING, SUCCEEDED, DEAD = range(6)
OPEN = "lease_until = NULL, started_at = NULL, finished_at = NULL"
# What most jobs were when the statistics were taken, and what they are now.
ENDED = f"state = {SUCCEEDED}, finished_at = 1e9 + created_at, lease_until = NULL"
MOMENTS = {
    "queued": (f"state = {QUEUED}, waits_until = 1, {OPEN}", ENDED),
    "chained": (f"state = {QUEUED}, ordering_key = 'a', fingerprint = 'f', {OPEN}", ENDED),
    "running": (f"state = {RUNNING}, ordering_key = 'a', lease_until = 1, started_at = 1", ENDED),
    "due": (f"state = {SCHEDULED}, ready_at = 1, {OPEN}", ENDED),
    "ended": (ENDED, f"state = {QUEUED}, {OPEN}"),
    "dead": (f"state = {DEAD}, finished_at = 1", ENDED),
}


TABLES = {"jobs", "keys", "links", "deliveries", "purged"}
FILL = (
    "INSERT INTO keys SELECT 'bulk', id::text::bytea, id, '' FROM jobs",
    "INSERT INTO links SELECT id::text, id, 'p' FROM jobs",
    "INSERT INTO deliveries SELECT id, '', 'e', 2, 1, 1, NULL, 0, 1 FROM jobs",
    "INSERT INTO purged SELECT gen_random_uuid(), 't', extract(epoch FROM now()) FROM jobs",
)


@pytest.mark.parametrize("moment", MOMENTS)
def test_no_statement_goes_through_all_jobs(server, asked, moment):
    then, now = MOMENTS[moment]

    async def body(broker):
        await broker._upkeep.close()
        server.sql("ALTER TABLE walks.jobs SET (autovacuum_enabled = false)")
        await broker.enqueue([a_job(broker, task="bulk") for _ in range(COUNT)], now=clock.now())
        server.sql(
            "SET search_path TO walks", f"UPDATE jobs SET {then}", "ANALYZE", f"UPDATE jobs SET {now}", *FILL
        )
        asked.clear()
        await _use(broker)
        walks = [*_walks(server, asked, "custom"), *_walks(server, asked, "generic")]
        assert not walks, "\n\n".join(walks)

    shared(server, "walks", body, count=1)


async def _use(broker):
    """Do whatever can be done with a store."""
    now = clock.now()
    for _ in range(2):
        await broker.enqueue([a_job(broker)], now=now)
        (held,) = await lease(broker)
        await broker.extend([Claim(held.job.id, held.fence)], lease_s=30.0, now=now)
        await finish(broker, [held])
    jobs = [
        a_job(broker, idempotency_key=f"k{n}", fingerprint=b"g%d" % n, ordering_key="o") for n in range(3)
    ]
    jobs.append(a_job(broker, tenant="b", callback_url="http://h/", expires_at=now + 60))
    await broker.enqueue(jobs, now=now)
    await broker.recall(jobs, now=now)
    await broker.position(jobs[0].id, now=now)
    await broker.waits_for(jobs[1].id, now=now)
    await broker.depth("echo", now=now)
    broker.set_shares({"c": Share(running_max=1)})
    await finish(broker, await lease(broker))
    await broker.cancel([jobs[1].id], now=now)
    await broker.sweep(limit=10, now=now)
    await broker._committer.alone(lambda tx: broker._endings.sweep(tx, limit=10), now)
    page = await broker.find(Query(limit=2), now=now)
    await broker.find(Query(limit=2, after=page.next_after, task="echo"), now=now)
    await broker.leaving.page(None, 10)
    await broker.leaving.page(jobs[0].id, 10)
    await broker.outbox.claim(limit=5, each_max=5, rooms={}, lease_s=9.0, now=now)
    await broker.hinted.queued("echo", limit=5)
    await broker.hinted.still_queued([jobs[0].id])
    await broker.purge([jobs[1].id], limit=5, now=now)
    await broker.purge(limit=5, now=now)
    await broker.was_purged(jobs[1].id, now=now)


def _walks(server, asked, how):
    """Return the statements, each with its plan, that read a table without knowing which rows."""
    found = []
    with psycopg.connect(server.url().partition("?")[0], autocommit=True) as reader:
        for setting in ("search_path TO walks", "enable_seqscan = off", "enable_bitmapscan = off"):
            reader.execute(f"SET {setting}")
        reader.execute(f"SET plan_cache_mode = force_{how}_plan")
        cursor = psycopg.ClientCursor(reader)
        for query, params in asked.items():
            if not params or ";" in query or "pg_notify" in query:
                continue
            parts = query.split("%s")
            numbered = "".join(f"{part}${at}" for at, part in enumerate(parts[:-1], 1)) + parts[-1]
            cursor.execute(f"PREPARE asked AS {numbered}")
            cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked({', '.join(['%s'] * len(params))})", params)
            ((plans,),) = cursor.fetchall()
            cursor.execute("DEALLOCATE asked")
            bad = [node for node in _nodes(plans[0]["Plan"]) if _reads(node) and not _goes_straight(node)]
            found += [f"{how}: {query}\n{node}" for node in bad]
    return found


def _nodes(node):
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)


def _reads(node):
    return node.get("Relation Name") in TABLES and "Scan" in node["Node Type"]


def _goes_straight(node):
    """It reads a part of an index, or one that holds no more than what runs."""
    return "Index Cond" in node or node["Index Name"] == "jobs_chained"


def test_a_long_chain_is_gone_past_once_and_not_asked_job_by_job(server):
    async def body(broker):
        chain = [a_job(broker, ordering_key="k") for _ in range(3_000)]
        others = [a_job(broker, tenant=f"t{n}", ordering_key="k") for n in range(2)]
        free = a_job(broker)
        await broker.enqueue([*chain, *others, free], now=clock.now())

        async def work(tx):
            leases = await broker._grants.lease(tx, "echo", limit=9, lease_s=30.0, worker="w")
            ((read,),) = await tx.rows(
                "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::int8 FROM pg_index"
                " WHERE indrelid = 'jobs'::regclass"
            )
            return leases, read

        leases, read = await broker._committer.alone(work, clock.now())
        assert {one.job.id for one in leases} == {chain[0].id, free.id, *(one.id for one in others)}
        assert read < 2 * len(chain)
        await finish(broker, leases)
        (held,) = await lease(broker)
        assert held.job.id == chain[1].id
        assert await lease(broker) == []

    shared(server, "long_chain", body, count=1)


def test_retention_reads_no_more_ended_jobs_than_it_removes(server):
    async def body(broker):
        await broker._upkeep.close()
        jobs = [a_job(broker, task=f"t{n % 2}") for n in range(2_000)]
        await broker.enqueue(jobs, now=clock.now())
        ended = "finished_at = extract(epoch FROM now()) - 1e6 * (task = 't0')::int"
        server.sql(f"UPDATE past.jobs SET state = {SUCCEEDED}, {ended}", "ANALYZE past.jobs")

        async def work(tx):
            removed = await broker._changes.purge(tx, None, 10)
            return removed, await read(tx)

        async def read(tx):
            ((count,),) = await tx.rows(
                "SELECT pg_stat_get_xact_tuples_returned('jobs_finals'::regclass)::int8"
            )
            return count

        removed, entries = await broker._committer.alone(work, clock.now())
        assert removed == 10
        assert entries < 100  # of t1 all stay

    shared(server, "past", body, count=1)
