"""Moving a store: everything arrives as it stood, once, whatever kills the move, and nothing is served twice."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.crons import CronMark
from forebay.core.job import Claim, Job, JobError, Query, Verdict
from forebay.core.lifecycle import State
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from tests.waiting import until

pytestmark = [pytest.mark.engines, pytest.mark.timeout(180)]
WAIT_MAX_S = 90.0
KEPT_S = 1e9
BLOB = "0123456789abcdef" * 3 + "01234567"
BOOM = JobError("handler_error", "boom", "ValueError", 1)
POLICY = SettlePolicy(retry=RetryPolicy(base_s=1e6, factor=2.0, cap_s=1e6), quarantine_deaths=1)
clock = SystemClock()


def command(*argv, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "forebay", "migrate", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")},
        **how,
    )


def migrated(*argv, code=0):
    asked = command(*argv)
    out, err = asked.communicate(timeout=WAIT_MAX_S)
    assert asked.returncode == code, (out, err)
    assert "Traceback" not in err
    return (json.loads(out) if code == 0 else None), err


async def filled(directory, count=40):
    """Make a store with jobs in every state; return it open."""
    broker = await SqliteBroker.open(directory, clock=clock, retention_s=KEPT_S)
    now = clock.now()

    def job(**fields):
        made = {
            "id": broker.new_id(now),
            "task": "echo",
            "payload": b'{"n":1}',
            "created_at": now,
            "run_at": now,
        }
        return Job(**{**made, **fields})

    def named(n):
        blob = json.dumps({"$blob": BLOB}).encode()
        return {
            "idempotency_key": f"k{n}",
            "body_hash": b"h%d" % n,
            "tenant": f"t{n % 3}",
            "metadata": b'{"n":%d}' % n,
            "callback_url": "https://example.org/ends" if n % 2 else None,
            "fingerprint": b"f%d" % n,
            "cache_s": 1e6,
            "payload": blob if n == 7 else b'{"n":%d}' % n,
            "attempts_max": 5,
            "version": "2",
        }

    first = [job(**named(n)) for n in range(count)]
    await broker.enqueue(first, now=now)
    joined = job(**{**named(0), "idempotency_key": "other", "body_hash": b"o"})
    (receipt,) = await broker.enqueue([joined], now=now)
    assert receipt.verdict is Verdict.JOINED
    leases = await broker.lease("echo", limit=count - 10, lease_s=600.0, worker="w", now=now)
    steps = []
    for place, one in enumerate(leases[:-5]):
        at = clock.now()
        steps.append(
            [
                settle.complete(one, output=b'{"done":%d}' % place, now=at),
                settle.fail(one, error=BOOM, policy=POLICY, now=at, jitter=0.0),
                settle.fail(one, error=BOOM, policy=POLICY, now=at, jitter=0.0, permanent=True),
                settle.die(one, error=BOOM, policy=POLICY, now=at, jitter=0.0),
            ][place % 4]
        )
    assert all(await broker.commit(steps, now=clock.now()))
    held = leases[-5:]
    claims = [Claim(one.job.id, one.fence, b'{"share":0.5}', b'{"page":3}') for one in held]
    await broker.extend(claims, lease_s=600.0, now=clock.now())
    dead = [step.job_id for step in steps if step.state is State.DEAD]
    await broker.edit(dead[0], b'{"n":"edited"}', now=clock.now())
    await broker.redrive(dead[1], job(redriven_from=dead[1]), now=clock.now())
    await broker.cancel([first[-1].id], now=clock.now())
    later = [job(run_at=now + 1e6, ordering_key="chain", task="other") for _ in range(3)]
    await broker.enqueue(later, now=clock.now())
    await broker.pause("other", paused=True, now=clock.now())
    await broker.crons.fire("nightly", now, job(task="cron"), when="0 3 * * *", now=clock.now())
    return broker


async def seen(broker):
    """Return all that can be asked of a store, comparable over engines."""
    now = clock.now()
    jobs, after = {}, None
    while True:
        page = await broker.find(Query(limit=50, after=after), now=now)
        for listed in page.records:
            record = await broker.get(listed.job.id, now=now)
            delivery = await broker.outbox.get(record.job.id, now=now)
            jobs[record.job.id] = (record, delivery)
        after = page.next_after
        if after is None:
            break
    marks: list[CronMark] = await broker.crons.marks()
    depths = {}
    for task in await broker.tasks():
        depth = await broker.depth(task, now=now)
        depths[task] = (depth.open, depth.queued, depth.running, depth.bytes, depth.paused)
    (held,) = await broker.held([BLOB], now=now)
    deadly = await broker.quarantine.listed(limit=5_000, now=now)
    return jobs, (marks, deadly), depths, held


def in_store(directory, work):
    async def run():
        broker = await SqliteBroker.open(directory, clock=clock, retention_s=KEPT_S)
        try:
            return await work(broker)
        finally:
            await broker.close()

    return asyncio.run(run())


def in_database(url, work):
    async def run():
        broker = await PostgresBroker.open(url, clock=clock, retention_s=KEPT_S)
        try:
            return await work(broker)
        finally:
            await broker.close()

    return asyncio.run(run())


@pytest.fixture
def store(tmp_path):
    """Return the directory of a store that was closed."""

    async def make():
        await (await filled(tmp_path / "data")).close()

    asyncio.run(make())
    return tmp_path / "data"


@pytest.fixture
def url(server, request):
    schema = "to_" + request.node.name.split("[")[0][-40:]
    server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    return server.url(schema)


def promoted(record, now):
    """Return a job that waited for a time as it is after it, when that has come meanwhile."""
    due = record.standing.state is State.RETRYING and record.standing.ready_at <= clock.now()
    if due and now.standing.state is State.QUEUED:
        return record._replace(standing=record.standing._replace(state=State.QUEUED))
    return record


def same_but_what_ran(before, after):
    """Compare two stores; what ran when the first was left is lost once, as a restart would have it."""
    (jobs, rest, depths, held), (moved, rest_now, depths_now, held_now) = before, after
    assert set(moved) == set(jobs)
    assert rest[0] and rest[1] and (rest_now, held_now) == (rest, held)
    for job_id, (record, delivery) in jobs.items():
        record_now, delivery_now = moved[job_id]
        if record.standing.state is State.RUNNING:
            now = record_now.standing
            assert record_now.job == record.job
            assert (now.state, now.attempt, now.suspect) == (State.QUEUED, record.standing.attempt, True)
            assert now.checkpoint == record.standing.checkpoint == b'{"page":3}'
            assert now.attempts[-1].error.code == "worker_lost"
        else:
            assert record_now == promoted(record, record_now)
        assert delivery_now == delivery
    for task, (opened, queued, running, size, paused) in depths.items():
        assert depths_now[task] == (opened, *depths_now[task][1:2], 0, size, paused)
        assert depths_now[task][1] >= queued + running


def test_everything_arrives_as_it_stood_and_is_not_served_twice(server, store, url):
    before = in_store(store, seen)
    states = {record.standing.state for record, _ in before[0].values()}
    assert states == set(State) - {State.EXPIRED} and before[3] is True
    counted, _ = migrated("--from", f"sqlite:{store}", "--dry-run", "--json")
    assert counted["jobs"] == len(before[0]) and counted["states"]["running"] == 5
    assert in_store(store, seen) == before, "a dry run changes nothing"

    found, _ = migrated("--from", f"sqlite:{store}", "--to", url, "--json")
    assert (found["moved"], found["jobs"]) == (len(before[0]), counted["jobs"])
    same_but_what_ran(before, in_database(url, seen))
    assert (store / "forebay.db.moved").is_file() and not (store / "forebay.db").exists()
    _, told = migrated("--from", f"sqlite:{store}", "--to", url, code=2)
    assert "it was moved before" in told

    async def repeat(broker):
        some = [record.job for record, _ in before[0].values() if record.job.idempotency_key]
        receipts = await broker.enqueue(
            [job._replace(id=broker.new_id(clock.now())) for job in some], now=clock.now()
        )
        joined = some[0]._replace(
            id=broker.new_id(clock.now()), tenant="t0", idempotency_key="other", body_hash=b"o"
        )
        (other,) = await broker.enqueue([joined], now=clock.now())
        return (
            [receipt.verdict for receipt in receipts],
            [receipt.job_id for receipt in receipts],
            other.verdict,
        )

    verdicts, ids, other = in_database(url, repeat)
    assert set(verdicts) == {Verdict.REPLAYED} and set(ids) <= set(before[0]) and other is Verdict.REPLAYED


@pytest.mark.parametrize("seed", range(3))
def test_a_move_that_is_killed_is_begun_again_and_loses_and_doubles_nothing(server, tmp_path, seed):
    chance, data = random.Random(seed), tmp_path / "data"
    schema = f"to_killed_{seed}"
    server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    url = server.url(schema)

    async def make():
        broker = await filled(data, count=2_000)
        await broker.close()

    asyncio.run(make())
    before = in_store(data, seen)
    kills = 0
    for _ in range(20):
        asked = command("--from", f"sqlite:{data}", "--to", url)
        wanted = chance.randrange(1, len(before[0]))

        def far_enough(asked=asked, wanted=wanted):
            return asked.poll() is not None or jobs_in(server, schema) >= wanted

        until(far_enough, WAIT_MAX_S, "so many are moved")
        if asked.poll() is None:
            asked.send_signal(signal.SIGKILL)
            kills += 1
        asked.communicate()
        if (data / "forebay.db.moved").exists():
            break
    else:
        migrated("--from", f"sqlite:{data}", "--to", url, "--json")
    assert kills
    same_but_what_ran(before, in_database(url, seen))


def jobs_in(server, schema):
    if not server.sql(f"SELECT to_regclass('{schema}.jobs') IS NOT NULL")[0][0]:
        return 0
    return server.sql(f"SELECT count(*) FROM {schema}.jobs")[0][0]


def test_a_schema_that_holds_other_jobs_is_refused_and_left_as_it_is(server, store, url, tmp_path):
    async def put(broker):
        now = clock.now()
        await broker.enqueue([Job(broker.new_id(now), "echo", b"1", now, now)], now=now)

    in_database(url, put)
    before = in_database(url, seen)
    _, told = migrated("--from", f"sqlite:{store}", "--to", url, code=2)
    assert "holds jobs of another store" in told and told.count("\n") == 1
    assert in_database(url, seen) == before and (store / "forebay.db").is_file()


def test_a_second_store_is_refused_where_a_first_one_is_on_its_way(server, store, url, tmp_path):
    async def begun(broker):
        await broker.arriving.begin("another")

    in_database(url, begun)
    _, told = migrated("--from", f"sqlite:{store}", "--to", url, code=2)
    assert "holds jobs of another store" in told


def test_a_store_that_is_served_is_refused(server, url, tmp_path):
    async def run():
        broker = await filled(tmp_path / "data")
        try:
            return await asyncio.to_thread(
                migrated, "--from", f"sqlite:{tmp_path / 'data'}", "--to", url, code=3
            )
        finally:
            await broker.close()

    _, told = asyncio.run(run())
    assert told.count("\n") == 1 and "data" in told


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--from", "redis://x", "--to", "postgresql://h/d"), "'redis' cannot be left"),
        (("--from", "sqlite:{tmp}/none", "--to", "postgresql://h/d"), "there is no store in"),
        (("--from", "sqlite:{tmp}"), "--to is needed"),
    ],
)
def test_what_cannot_be_moved_is_one_line_and_code_2(tmp_path, argv, told):
    _, err = migrated(*(part.replace("{tmp}", str(tmp_path)) for part in argv), code=2)
    assert told in err and err.count("\n") == 1
