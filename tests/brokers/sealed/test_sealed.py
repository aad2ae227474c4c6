"""What jobs hold, encrypted at rest: the contract holds behind it, and nothing readable reaches the engine."""

import asyncio
import json

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.brokers.sealed import Vault, sealed
from forebay.brokers.sqlite import SqliteBroker
from forebay.conformance import CHECKS, run_checks
from forebay.conformance.fixtures import LEASE_S, POLICY, RETENTION_S, T0, a_job
from forebay.core import settle
from forebay.core.evidence import witnessed
from forebay.core.job import Claim, JobError, Query
from forebay.core.lifecycle import State
from forebay.core.quarantine import fingerprint_of
from forebay.core.settle import SettlePolicy
from forebay.errors import ConfigError, SealedError
from forebay.keys import new_payload_key, payload_keys
from tests.conformance.engines import StandingClock

(KEY,), (OTHER,) = (payload_keys(new_payload_key()) for _ in range(2))
MARK = "marker-77ab"
BLOB = "0" * 12 + "1" * 12 + "2" * 32


def test_the_contract_holds_behind_the_seal_but_for_sizes():
    async def open_one():
        return sealed(MemoryBroker(retention_s=RETENTION_S), Vault([KEY]))

    report = asyncio.run(run_checks(open_one, checks=[check for check in CHECKS if not check.reopens]))
    wrong = [
        (name, text)
        for name, text in report.failed
        if not any(word in text for word in ("bytes", "Held(", "depth: "))
    ]
    assert not wrong and len(report.failed) < 10 and len(report.passed) > 100, str(report)


def marked(broker, **fields):
    payload = json.dumps({"text": MARK, "image": {"$blob": BLOB}}).encode()
    return a_job(broker, payload=payload, tenant="a", **fields)


async def a_life(broker):
    """Bring marked texts into every place a job has; returns ids by what became of them."""
    ids = {}
    for end in ("done", "dead", "retrying", "running", "queued"):
        job = marked(broker)
        ids[end] = job.id
        await broker.enqueue([job], now=T0)
        if end == "queued":
            break
        (lease,) = await broker.lease("echo", limit=1, lease_s=LEASE_S, worker="w", now=T0)
        assert lease.job == job
        claim = Claim(job.id, lease.fence, f'{{"message":"{MARK}"}}'.encode(), f'"{MARK}"'.encode())
        await broker.extend([claim], lease_s=LEASE_S, now=T0)
        error = JobError("handler_error", f"could not read {MARK}", "ValueError", 1)
        step = {
            "done": lambda lease=lease: settle.complete(lease, output=f'"{MARK}"'.encode(), now=T0),
            "dead": lambda lease=lease, error=error: settle.fail(
                lease, error=error, policy=POLICY, now=T0, jitter=0.0, permanent=True
            ),
            "retrying": lambda lease=lease, error=error: settle.fail(
                lease, error=error, policy=POLICY, now=T0, jitter=0.0
            ),
        }.get(end)
        if step is not None:
            told = witnessed(step(), log=f"printed {MARK}", mates=())
            assert await broker.commit([told], now=T0) == [True]
        if end == "dead":
            assert await broker.edit(job.id, f'"mended {MARK}"'.encode(), now=T0)
    return ids


def everything(path):
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


def on_disk(tmp_path, *keys):
    async def open_one(inner_clock=T0):
        inner = await SqliteBroker.open(
            tmp_path / "data", clock=StandingClock(inner_clock), retention_s=RETENTION_S
        )
        return sealed(inner, Vault(keys)) if keys else inner

    return open_one


def test_no_byte_of_it_is_readable_in_the_files_and_all_of_it_is_read_back(tmp_path):
    async def run():
        broker = await on_disk(tmp_path, KEY)()
        ids = await a_life(broker)
        texts = everything(tmp_path)
        assert MARK.encode() not in texts and b"$sealed" in texts
        done = await broker.get(ids["done"], now=T0)
        assert (json.loads(done.job.payload)["text"], done.standing.output) == (MARK, f'"{MARK}"'.encode())
        for name in ("dead", "retrying"):
            record = await broker.get(ids[name], now=T0)
            assert MARK in record.standing.error.message and MARK in record.standing.attempts[0].error.message
            assert record.standing.attempts[0].log == f"printed {MARK}"
        assert (await broker.get(ids["dead"], now=T0)).edited == f'"mended {MARK}"'.encode()
        running = await broker.get(ids["running"], now=T0)
        assert MARK.encode() in running.standing.progress and MARK.encode() in running.standing.checkpoint
        page = await broker.find(Query(limit=10), now=T0)
        assert all(MARK.encode() in record.job.payload for record in page.records) and len(page.records) == 5
        assert await broker.held([BLOB], now=T0) == [True], "the store still knows which blobs are named"
        await broker.close()
        assert MARK.encode() not in everything(tmp_path)

    asyncio.run(run())


def test_a_checkpoint_and_old_errors_come_back_with_the_next_lease_and_are_sealed_once(tmp_path):
    async def run():
        broker = await on_disk(tmp_path, KEY)()
        ids = await a_life(broker)
        await broker.sweep(limit=10, now=T0 + 20)
        leases = await broker.lease("echo", limit=9, lease_s=LEASE_S, worker="w", now=T0 + 20)
        lease = next(lease for lease in leases if lease.job.id == ids["retrying"])
        assert lease.checkpoint == f'"{MARK}"'.encode() and MARK in lease.attempts[0].error.message
        error = JobError("handler_error", MARK, "", 2)
        again = settle.fail(lease, error=error, policy=POLICY, now=T0 + 21, jitter=0.0)
        assert await broker.commit([again], now=T0 + 21) == [True]
        record = await broker.get(ids["retrying"], now=T0 + 21)
        assert [
            MARK in one.error.message and "sealed:" not in one.error.message
            for one in record.standing.attempts
        ] == [True] * 2
        swept = await broker.sweep(limit=10, now=T0 + 100)
        lost = [settle.lose(lease, error=error, now=T0 + 100) for lease in swept.overdue]
        assert all(await broker.commit(lost, now=T0 + 100)) and lost
        assert MARK.encode() not in everything(tmp_path)
        await broker.close()

    asyncio.run(run())


def test_keys_are_rotated_and_what_was_stored_in_plain_is_still_read(tmp_path):
    async def run():
        plain = await on_disk(tmp_path)()
        before = marked(plain)
        await plain.enqueue([before], now=T0)
        await plain.close()
        ids = [before.id]
        for keys in ((OTHER,), (KEY, OTHER)):
            broker = await on_disk(tmp_path, *keys)()
            job = marked(broker)
            ids.append(job.id)
            await broker.enqueue([job], now=T0)
            for one in ids:
                assert MARK.encode() in (await broker.get(one, now=T0)).job.payload
            await broker.close()

    asyncio.run(run())


def test_a_job_whose_key_is_gone_says_so_and_harms_no_other(tmp_path):
    async def run():
        broker = await on_disk(tmp_path, OTHER)()
        shut = marked(broker)
        await broker.enqueue([shut], now=T0)
        await broker.close()
        broker = await on_disk(tmp_path, KEY)()
        good = marked(broker)
        await broker.enqueue([good], now=T0)
        with pytest.raises(
            SealedError,
            match=r"^this job is encrypted with key [0-9a-f]{8}, which is not among payload_keys$",
        ):
            await broker.get(shut.id, now=T0)
        listed = {r.job.id: r for r in (await broker.find(Query(limit=9), now=T0)).records}
        assert listed[shut.id].standing.error.code == "sealed" and listed[shut.id].job.payload == b"null"
        assert MARK.encode() in listed[good.id].job.payload
        leases = await broker.lease("echo", limit=9, lease_s=LEASE_S, worker="w", now=T0)
        assert [lease.job.id for lease in leases] == [good.id]
        await broker.close()
        broker = await on_disk(tmp_path, KEY, OTHER)()
        record = await broker.get(shut.id, now=T0)
        assert (record.standing.state, record.standing.error.code) == (State.DEAD, "sealed")
        assert "not among payload_keys" in record.standing.error.message
        again = record.job._replace(id=broker.new_id(T0))
        assert (await broker.redrive(shut.id, again, now=T0)).job_id == again.id
        await broker.close()

    asyncio.run(run())


def test_a_sealed_text_opens_in_its_own_place_and_under_its_tenants_key_alone():
    vault = Vault([KEY])
    text = vault.seal(b'"secret"', tenant="a", bound="job-1 payload")
    assert text != vault.seal(b'"secret"', tenant="a", bound="job-1 payload")
    assert vault.open(text, tenant="a", bound="job-1 payload") == b'"secret"'
    for tenant, bound in (("b", "job-1 payload"), ("a", "job-2 payload"), ("a", "job-1 output")):
        with pytest.raises(SealedError, match="was changed or moved"):
            vault.open(text, tenant=tenant, bound=bound)
    bent = text[:40] + (b"A" if text[40:41] != b"A" else b"B") + text[41:]
    with pytest.raises(SealedError):
        vault.open(bent, tenant="a", bound="job-1 payload")


@pytest.mark.parametrize("text", ["x", "A" * 42, ",", " , ", "é" * 43, ",".join([new_payload_key()] * 17)])
def test_what_is_no_payload_key_is_refused_without_showing_it(text):
    with pytest.raises(ConfigError) as refused:
        payload_keys(text)
    assert "payload_keys" in str(refused.value) and (text.strip(" ,") == "" or text not in str(refused.value))


def test_a_deadly_input_is_known_by_a_keyed_hash_through_rotations(tmp_path):
    policy = SettlePolicy(deaths_max=1, quarantine_deaths=2)
    lost = JobError("worker_lost", "SIGSEGV", "signal", 1)

    async def die(broker):
        job = marked(broker)
        await broker.enqueue([job], now=T0)
        (lease,) = await broker.lease("echo", limit=1, lease_s=LEASE_S, worker="w", now=T0)
        death = settle.die(lease, error=lost, policy=policy, now=T0, jitter=0.0)
        assert await broker.commit([death], now=T0) == [True]
        return job

    async def run():
        broker = await on_disk(tmp_path, OTHER)()
        await die(broker)
        job = await die(broker)
        held = broker.quarantine.held(marked(broker), now=T0)
        assert (held.deaths, held.job_id) == (2, job.id)
        assert broker.quarantine.held(marked(broker)._replace(payload=b"1"), now=T0) is None
        plain = fingerprint_of(job)
        assert held.fingerprint != plain and plain not in everything(tmp_path)
        await broker.close()
        broker = await on_disk(tmp_path, KEY, OTHER)()
        assert broker.quarantine.held(marked(broker), now=T0) == held, "the old key still tells"
        (row,) = await broker.quarantine.listed(limit=9, now=T0)
        assert row == held
        await broker.close()
        broker = await on_disk(tmp_path, KEY)()
        assert broker.quarantine.held(marked(broker), now=T0) is None, "its key is gone"
        await broker.close()

    asyncio.run(run())


def test_what_was_deadly_before_there_were_keys_still_is(tmp_path):
    policy = SettlePolicy(deaths_max=1, quarantine_deaths=1)

    async def run():
        broker = await on_disk(tmp_path)()
        job = marked(broker)
        await broker.enqueue([job], now=T0)
        (lease,) = await broker.lease("echo", limit=1, lease_s=LEASE_S, worker="w", now=T0)
        error = JobError("worker_lost", "SIGSEGV", "signal", 1)
        await broker.commit([settle.die(lease, error=error, policy=policy, now=T0, jitter=0.0)], now=T0)
        await broker.close()
        broker = await on_disk(tmp_path, KEY)()
        assert broker.quarantine.held(job, now=T0) is not None
        await broker.close()

    asyncio.run(run())
