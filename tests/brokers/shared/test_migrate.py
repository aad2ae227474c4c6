"""Moving a store: everything arrives as it stood, once, whatever kills the move, and nothing is served twice."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from forebay import moving
from forebay.blobs.copying import PIECE_B, EndedError, copy_blobs
from forebay.blobs.local import LocalBlobs
from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.crons import CronMark
from forebay.core.job import Claim, Job, JobError, Query, Verdict
from forebay.core.lifecycle import State
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.errors import ConfigError, StoreUnavailableError
from tests.brokers.shared.conftest import SERVERS, started
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


async def filled(broker, count=40):
    """Put jobs in every state into a store; return it."""
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


class Directory:
    """A store of its own in a directory."""

    def __init__(self, path):
        self.path = path
        self.url = f"sqlite:{path}"
        self.file, self.aside = path / "forebay.db", path / "forebay.db.moved"

    async def open(self):
        return await SqliteBroker.open(self.path, clock=clock, retention_s=KEPT_S)

    def check_left(self):
        assert self.aside.is_file() and not self.file.exists()
        with pytest.raises(ConfigError, match="its jobs were moved to another engine by `forebay migrate`"):
            run(self, seen)
        assert not self.file.exists(), "no other store was begun in its place"

    def is_left(self):
        return self.aside.exists()


class Shared:
    """A store of a server."""

    def __init__(self, server, name):
        server.drop(name)
        self.server, self.name = server, name
        self.url = server.url(name)

    async def open(self):
        return await self.server.broker(self.name, clock)

    def check_left(self):
        with pytest.raises(ConfigError, match="its jobs were moved to another engine by `forebay migrate`"):
            run(self, seen)

    def is_left(self):
        try:
            run(self, nothing)
        except ConfigError as error:
            return "were moved" in str(error)
        return False


async def nothing(broker):
    """Do nothing with a store."""


def run(place, work):
    """Open a store, work on it, close it; return what the work returns."""

    async def doing():
        broker = await place.open()
        try:
            return await work(broker)
        finally:
            await broker.close()

    return asyncio.run(doing())


@pytest.fixture(scope="module")
def servers():
    """Return a server of each kind."""
    with contextlib.ExitStack() as ends:
        yield {kind: ends.enter_context(started(kind)) for kind in SERVERS}


PAIRS = [("sqlite", "postgres"), ("sqlite", "redis"), ("postgres", "redis"), ("redis", "postgres")]
SHARED = [pair for pair in PAIRS if pair[0] != "sqlite"]


@pytest.fixture
def pair(request, servers, tmp_path):
    """Return a place with a store and one that is to take it in."""
    left, taking = request.param
    source = Directory(tmp_path / "data") if left == "sqlite" else Shared(servers[left], "leaves")
    return source, Shared(servers[taking], "taking")


def pairs(which):
    return pytest.mark.parametrize("pair", which, indirect=True, ids="-to-".join)


def to(pair):
    source, target = pair
    return "--from", source.url, "--to", target.url


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


@pairs(PAIRS)
def test_everything_arrives_as_it_stood_and_is_not_served_twice(pair):
    source, target = pair
    run(source, filled)
    before = run(source, seen)
    states = {record.standing.state for record, _ in before[0].values()}
    assert states == set(State) - {State.EXPIRED} and before[3] is True
    counted = asyncio.run(moving.survey(source.url, clock=clock))
    assert counted.jobs.total() == len(before[0]) and counted.jobs["running"] == 5
    assert run(source, seen) == before, "a dry run changes nothing"

    found, _ = migrated(*to(pair), "--json")
    assert found["moved"] == found["jobs"] == len(before[0])
    same_but_what_ran(before, run(target, seen))
    source.check_left()
    with pytest.raises(ConfigError, match="moved before"):
        asyncio.run(moving.move(source.url, target.url, clock=clock, told=stop))

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

    verdicts, ids, other_key = run(target, repeat)
    assert set(verdicts) == {Verdict.REPLAYED} and set(ids) <= set(before[0])
    assert other_key is Verdict.REPLAYED
    target.server.check_counts(target.name)


@pairs(PAIRS)
def test_a_job_that_was_removed_before_is_still_known_to_have_been_there_by_its_tenant_alone(pair, tmp_path):
    source, target = pair
    first = source if isinstance(source, Directory) else Directory(tmp_path / "first")
    run(first, filled)
    ids, nobodys, mine = run(first, removed)
    if source is not first:  # what the first store knew goes along, and more is removed where it is now
        asyncio.run(moving.move(first.url, source.url, clock=clock, told=lambda _: None))
        more, nobodys, mine = run(source, removed)
        ids += more
    found, _ = migrated(*to(pair), "--json")
    assert found["removed_remembered"] >= len(ids)

    async def told(broker):
        now = clock.now()

        def asked(job_id, tenant):
            return broker.was_purged(job_id, tenant=tenant, now=now)

        return {
            "own": [await asked(job_id, tenant) for job_id, tenant in ids],
            "others": [await asked(job_id, "else") for job_id, _ in ids],
            "all": [await asked(job_id, None) for job_id in [*(one for one, _ in ids), nobodys]],
            "never": [await asked(job_id, None) for job_id in (mine, altered(ids[0][0]), broker.new_id(now))],
        }

    answers = run(target, told)
    assert all(answers["own"]) and all(answers["all"])
    assert not any(answers["others"]) and not any(answers["never"])


async def removed(broker):
    """Remove some ended jobs; return ids and tenants, one of no tenant, and an id that is not given out."""
    now = clock.now()
    page = await broker.find(Query(limit=100, states=frozenset({State.SUCCEEDED})), now=now)
    gone = [record.job for record in page.records if record.job.tenant][:2]
    now = clock.now()
    nobodys = Job(broker.new_id(now), "echo", b"1", now, now)
    await broker.enqueue([nobodys], now=now)
    await broker.cancel([nobodys.id], now=now)
    assert await broker.purge([job.id for job in gone] + [nobodys.id], limit=10, now=clock.now()) == 3
    return [(job.id, job.tenant) for job in gone], nobodys.id, broker.new_id(clock.now())


def altered(job_id):
    return job_id[:-1] + ("0" if job_id[-1] != "0" else "1")


@pairs(PAIRS[:2])
def test_blobs_stay_and_are_told_of_or_are_copied_and_checked(pair, tmp_path):
    source, _ = pair
    run(source, filled)
    here = LocalBlobs(str(source.path / "blobs"))
    for blob_id in (BLOB, BLOB[::-1]):
        writer = here.begin(blob_id, "text/plain")
        writer.write(blob_id.encode())
        writer.commit()
    counted, told = migrated("--from", source.url, "--dry-run", "--json")
    assert counted["blobs"] == 2 and f"stay in {source.path}/blobs" in told

    path = source.path / "blobs" / BLOB[:12] / BLOB
    kept = path.read_bytes()
    path.write_bytes(b"x" * len(kept))
    _, told = migrated(*to(pair), "--blobs", str(tmp_path / "there"), code=3)
    assert "is not what was stored" in told and source.file.is_file()
    path.write_bytes(kept)
    found, told = migrated(*to(pair), "--blobs", str(tmp_path / "there"), "--json")
    assert (found["blobs"], "stay in" in told) == (2, False)
    copies = LocalBlobs(str(tmp_path / "there"))
    assert {copies.read(one, 0, 100) for one in copies.ids()} == {BLOB.encode(), BLOB[::-1].encode()}
    assert here.head(BLOB) == copies.head(BLOB)


@pytest.mark.parametrize(
    ("pair", "seed"),
    [*((pair, seed) for pair in PAIRS[:2] for seed in range(3)), *((pair, 3) for pair in SHARED)],
    indirect=["pair"],
    ids=lambda value: str(value) if isinstance(value, int) else "-to-".join(value),
)
def test_a_move_that_is_killed_is_begun_again_and_loses_and_doubles_nothing(pair, seed):
    source, target = pair
    chance = random.Random(seed)
    count = 2_000 if isinstance(source, Directory) else 500
    run(source, lambda broker: filled(broker, count=count))
    before = run(source, seen)
    kills = 0
    for _ in range(20 if isinstance(source, Directory) else 2):
        asked = command(*to(pair))
        wanted = chance.randrange(1, len(before[0]) // 2)  # it must be caught before its end

        def far_enough(asked=asked, wanted=wanted):
            return asked.poll() is not None or target.server.jobs(target.name) >= wanted

        until(far_enough, WAIT_MAX_S, "so many are moved")
        if asked.poll() is None:
            asked.send_signal(signal.SIGKILL)
            kills += 1
        asked.communicate()
        if source.is_left():
            break
    else:
        migrated(*to(pair), "--json")
    assert kills
    same_but_what_ran(before, run(target, seen))


@pairs(PAIRS)
def test_a_store_that_another_is_still_on_its_way_to_is_not_served(pair):
    source, target = pair
    run(source, filled)

    def cut(_):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        asyncio.run(moving.move(source.url, target.url, clock=clock, told=cut))
    with pytest.raises(ConfigError, match="the jobs of another engine are on their way there") as caught:
        run(target, nothing)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="are on their way there"):
        asyncio.run(moving.survey(target.url, clock=clock))
    migrated(*to(pair), "--json")
    run(target, nothing)


def test_blobs_are_copied_no_further_when_whoever_wanted_them_is_gone(tmp_path):
    here, there = (LocalBlobs(str(tmp_path / name)) for name in ("here", "there"))
    for blob_id in (BLOB, BLOB[::-1]):
        writer = here.begin(blob_id, "text/plain")
        writer.write(b"x" * (PIECE_B + 1))
        writer.commit()
    asked = iter([False, False, True])  # in the middle of the second
    with pytest.raises(EndedError):
        copy_blobs(here, there, lambda: next(asked))
    assert len(list(there.ids())) == 1
    assert copy_blobs(here, there) == 1


@pairs(PAIRS)
def test_a_store_that_holds_other_jobs_is_refused_and_both_are_left_as_they_are(pair):
    source, target = pair
    run(source, filled)

    async def put(broker):
        now = clock.now()
        await broker.enqueue([Job(broker.new_id(now), "echo", b"1", now, now)], now=now)

    run(target, put)
    before = run(target, seen_jobs)
    _, told = migrated(*to(pair), code=2)
    assert "holds jobs of another store" in told and told.count("\n") == 1
    assert run(target, seen_jobs) == before
    run(source, put)  # it takes jobs as before


@pairs(SHARED)
def test_a_wrong_target_does_not_take_back_a_store_of_which_a_part_was_moved_elsewhere(pair):
    source, target = pair
    run(source, filled)
    before = run(source, seen)
    with pytest.raises(Interrupted):
        asyncio.run(moving.move(source.url, target.url, clock=clock, told=stop))
    other = Shared(target.server, "other")
    run(other, filled)
    with pytest.raises(ConfigError, match="holds jobs of another store"):
        asyncio.run(moving.move(source.url, other.url, clock=clock, told=stop))
    with pytest.raises(ConfigError, match="its jobs are being moved to another engine"):
        run(source, seen)
    asyncio.run(moving.move(source.url, target.url, clock=clock, told=lambda _: None))
    same_but_what_ran(before, run(target, seen))


async def seen_jobs(broker):
    jobs, *_ = await seen(broker)
    return jobs


@pairs(PAIRS[:2])
def test_a_second_store_is_refused_where_a_first_one_is_on_its_way(pair):
    source, target = pair
    run(source, filled)

    async def begun(broker):
        await broker.arriving.begin("another")

    run(target, begun)
    _, told = migrated(*to(pair), code=2)
    assert "holds jobs of another store" in told


@pairs(PAIRS)
def test_a_store_that_is_served_is_refused_and_goes_on(pair):
    source, _ = pair

    async def doing(broker):
        now = clock.now()
        await filled(broker)
        told = await asyncio.to_thread(migrated, *to(pair), code=3)
        await broker.enqueue([Job(broker.new_id(now), "echo", b"1", now, now)], now=now)
        return told

    async def heard(broker):  # a process counts as soon as it hears the others
        await asyncio.to_thread(until, lambda: in_use(source), WAIT_MAX_S, "it is seen")
        return await doing(broker)

    _, told = run(source, doing if isinstance(source, Directory) else heard)
    assert told.count("\n") == 1 and ("data" in told or "is in use by 1 process: stop them first" in told)


def in_use(source):
    server, name = source.server, source.name
    if "redis" in source.url:
        return server.ask("PUBSUB", "NUMSUB", f"{{{name}}}:bells")[1]
    return server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")[0][0]


class Interrupted(Exception):
    """The move ends here."""


def stop(_):
    raise Interrupted


@pairs(PAIRS[:1])
def test_a_store_that_was_served_again_after_a_move_had_begun_is_not_gone_on_with_where_jobs_stood_still(
    pair,
):
    source, target = pair
    run(source, filled)
    for _ in range(2):  # nobody served it in between
        with pytest.raises(Interrupted):
            asyncio.run(moving.move(source.url, target.url, clock=clock, told=stop))
        asyncio.run(moving.survey(source.url, clock=clock))
    before = run(source, seen)
    with pytest.raises(ConfigError, match="holds jobs of another store"):
        asyncio.run(moving.move(source.url, target.url, clock=clock, told=stop))
    target.server.drop(target.name)
    asyncio.run(moving.move(source.url, target.url, clock=clock, told=lambda _: None))
    same_but_what_ran(before, run(target, seen))


@pairs(SHARED)
def test_a_store_whose_move_was_begun_takes_nothing_from_anybody_until_it_is_taken_back(pair):
    source, target = pair
    run(source, filled)
    before = run(source, seen)

    async def cut_short():
        broker = await source.open()
        await broker._wire.close()  # a process that hears nobody, and so is not seen
        with pytest.raises(Interrupted):
            await moving.move(source.url, target.url, clock=clock, told=stop)
        now = clock.now()
        writes = [
            lambda: broker.enqueue([Job(broker.new_id(now), "echo", b"1", now, now)], now=now),
            lambda: broker.lease("echo", limit=1, lease_s=60.0, worker="w", now=now),
            lambda: broker.pause("echo", paused=True, now=now),
            lambda: broker.cancel([next(iter(before[0]))], now=now),
            lambda: broker.sweep(limit=10, now=now),
            lambda: broker.purge(limit=10, now=now),
        ]
        for write in writes:
            with pytest.raises(StoreUnavailableError, match="its jobs are moved to another engine"):
                await write()
        await broker.close()

    asyncio.run(cut_short())
    with pytest.raises(
        ConfigError, match="its jobs are being moved to another engine: let `forebay migrate`"
    ):
        run(source, seen)
    migrated_back = command("--from", source.url, "--give-up")
    out, err = migrated_back.communicate(timeout=WAIT_MAX_S)
    assert (migrated_back.returncode, err) == (0, "") and out.startswith("it can be served again")
    assert run(source, seen) == before
    with pytest.raises(ConfigError, match="holds jobs of another store"):
        asyncio.run(moving.move(source.url, target.url, clock=clock, told=stop))

    target.server.drop(target.name)
    asyncio.run(moving.move(source.url, target.url, clock=clock, told=lambda _: None))
    same_but_what_ran(before, run(target, seen))
    with pytest.raises(ConfigError, match="all of it was moved, and may have been run since"):
        asyncio.run(moving.give_up(source.url, clock=clock))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--from", "amqp://x", "--to", "postgresql://h/d"), "'amqp' cannot be left"),
        (("--from", "sqlite:{tmp}", "--to", "amqp://h/d"), "'amqp' takes no store in"),
        (("--from", "sqlite:{tmp}/none", "--to", "postgresql://h/d"), "there is no store in"),
        (("--from", "sqlite:{tmp}"), "--to is needed"),
    ],
)
def test_what_cannot_be_moved_is_one_line_and_code_2(tmp_path, argv, told):
    _, err = migrated(*(part.replace("{tmp}", str(tmp_path)) for part in argv), code=2)
    assert told in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "target", "blobs", "told"),
    [
        ("redis://h/0", "redis://h:6379/0?name=forebay", None, "that is what --from names"),
        ("postgresql://a@h/d", "postgres://b:x@h/d?schema=forebay", None, "that is what --from names"),
        ("redis://h/0", "sqlite:there", None, "'sqlite' takes no store in"),
        ("redis://h/0", "postgresql://h/d", "blobs", "those of a shared engine are not in it"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_opened(source, target, blobs, told, tmp_path):
    place = None if blobs is None else str(tmp_path / blobs)
    with pytest.raises(ConfigError, match=told):
        asyncio.run(moving.move(source, target, clock=clock, told=print, blobs=place))


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_store_that_is_not_there_is_not_made_to_be_left(servers, kind):
    place = Shared(servers[kind], "nowhere")
    with pytest.raises(ConfigError, match="there is no store in"):
        asyncio.run(moving.survey(place.url, clock=clock))
    assert place.server.jobs(place.name) == 0
