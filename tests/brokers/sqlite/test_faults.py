"""Full disks, failing syncs, killed processes: what was acknowledged stays, what was not is said aloud."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import apsw
import pytest

from forebay.brokers.sqlite import SqliteBroker, committer, schema, standstill
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import Claim, Hold, Job, JobError
from forebay.core.lifecycle import State
from forebay.errors import ForebayError, StoreBrokenError, StoreFullError, StoreUnavailableError
from tests.brokers.sqlite.conftest import SmallDisk

CLOCK = SystemClock()
LIFE = Path(__file__).with_name("life.py")


def a_job(broker: SqliteBroker, size: int = 10) -> Job:
    now = CLOCK.now()
    return Job(broker.new_id(now), "t", os.urandom(size), now, now)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sync", ["full", "own"])
def test_a_full_disk_refuses_new_work_keeps_results_and_recovers_unaided(
    small_disk: SmallDisk, sync: committer.Sync
) -> None:
    data = small_disk.path / "data"
    ballast = small_disk.path / "ballast"
    ballast.write_bytes(bytes(2_000_000))

    async def go() -> None:
        broker = await SqliteBroker.open(data, clock=CLOCK, sync=sync)
        await broker.enqueue([a_job(broker) for _ in range(5)], now=CLOCK.now())
        leases = await broker.lease("t", limit=5, lease_s=600.0, worker="w", now=CLOCK.now())
        stored, refused = [], []
        while not refused:
            jobs = [a_job(broker, 20_000) for _ in range(3)]
            try:
                await broker.enqueue(jobs, now=CLOCK.now())
                stored += jobs
            except StoreFullError as error:
                assert error.retry_after_s is not None
                refused += jobs
        assert stored
        # Refused at once now, without trying the disk again and again.
        flushes = broker.stats()["flushes"]
        for _ in range(100):  # within the half second of its patience, on a busy machine too
            with pytest.raises(StoreFullError):
                await broker.enqueue([a_job(broker, 20_000)], now=CLOCK.now())
        assert broker.stats()["flushes"] - flushes < 10
        now = CLOCK.now()
        steps = [settle.complete(lease, output=os.urandom(30_000), now=now) for lease in leases]
        settled = asyncio.ensure_future(broker.commit(steps, now=now))
        for job in refused:
            assert await broker.get(job.id, now=now) is None, "nothing of a refused call is stored"
        swept = asyncio.ensure_future(broker.sweep(limit=10, now=now))
        await asyncio.wait([swept], timeout=10)
        assert swept.done(), "nobody waits for ever, even when nothing new is asked for"
        swept.exception()
        depth = broker.depth_now("t", now=now)
        assert depth.queued == len(stored)
        assert depth.bytes - 20_000 * len(stored) in (0, 50), "the five that ran may be settled by now"
        ballast.unlink()
        assert await asyncio.wait_for(settled, 10) == [True] * 5
        for _ in range(100):
            try:
                await broker.enqueue([a_job(broker, 20_000)], now=CLOCK.now())
                break
            except StoreFullError:
                await asyncio.sleep(0.05)
        else:
            pytest.fail("the store did not recover although there is room")
        for job in stored:
            record = await broker.get(job.id, now=now)
            assert record is not None
            assert record.job == job
        assert broker._book.shelf.connection.execute("PRAGMA integrity_check").get == "ok"
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 50))


@pytest.mark.timeout(60)
def test_a_store_closes_in_time_on_a_disk_that_stays_full(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "CLOSE_WAIT_MAX_S", 0.2)

    async def go() -> None:
        broker = await SqliteBroker.open(small_disk.path / "data", clock=CLOCK)
        await broker.enqueue([a_job(broker)], now=CLOCK.now())
        leases = await broker.lease("t", limit=5, lease_s=600.0, worker="w", now=CLOCK.now())
        with pytest.raises(StoreFullError):
            while True:
                await broker.enqueue([a_job(broker, 20_000)], now=CLOCK.now())
        now = CLOCK.now()
        steps = [settle.complete(lease, output=bytes(3_000_000), now=now) for lease in leases]
        settled = asyncio.ensure_future(broker.commit(steps, now=now))
        await asyncio.wait_for(broker.close(), 10)
        with pytest.raises(StoreUnavailableError):
            await settled

    asyncio.run(asyncio.wait_for(go(), 50))


def a_life(data: Path, seed: int, *prefix: str, sync: str = "full") -> "subprocess.Popen[str]":
    command = [*prefix, sys.executable, str(LIFE), str(data), sync, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read(process: "subprocess.Popen[str]", lines: int) -> list[list[str]]:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.split())
        if len(said) >= lines:
            break
    return said


def complete_lines(process: "subprocess.Popen[str]") -> list[list[str]]:
    assert process.stdout is not None
    with process.stdout as pipe:
        return [line.split() for line in pipe.read().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sync", ["full", "own"])
def test_a_failed_sync_ends_the_store_and_loses_nothing_acknowledged(tmp_path: Path, sync: str) -> None:
    strace = shutil.which("strace")
    if strace is None:
        assert os.environ.get("CI") != "true", "CI must have strace"
        pytest.skip("needs strace")
    calls = "fdatasync,fsync"
    inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO:when=40+"]
    process = a_life(tmp_path / "data", 1, strace, "-f", "-qq", "-o", "/dev/null", *inject, sync=sync)
    said = complete_lines(process)
    assert process.wait(timeout=30) == 3
    kinds = Counter(words[0] for words in said)
    if not kinds:
        pytest.skip("strace cannot trace here")
    assert kinds["stored"] > 10
    assert kinds["broken"] == 1, "the owner of the process is told once"
    assert "may or may not be stored" in " ".join(said[-1])
    assert said[-1][:2] == ["refused", "StoreBrokenError"]
    asyncio.run(verify(tmp_path / "data", said))


def test_a_broken_store_refuses_everything_and_calls_its_owner(tmp_path: Path) -> None:
    told: list[ForebayError] = []

    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK, sync="own", on_broken=told.append)

        def fails() -> None:
            raise OSError(5, "Input/output error")

        job = a_job(broker)
        broker._committer._sync_wal = fails  # type: ignore[method-assign]
        with pytest.raises(StoreBrokenError, match="may or may not be stored"):
            await broker.enqueue([job], now=CLOCK.now())
        with pytest.raises(StoreBrokenError):
            await broker.get(job.id, now=CLOCK.now())
        with pytest.raises(StoreBrokenError):
            await broker.lease("t", limit=1, lease_s=1.0, worker="w", now=CLOCK.now())
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))
    assert [type(error) for error in told] == [StoreBrokenError]


async def verify(data: Path, said: list[list[str]]) -> None:
    """Open the store after a crash: everything acknowledged must be there."""
    broker = await SqliteBroker.open(data, clock=CLOCK)
    now = CLOCK.now()
    overdue = {lease.job.id: lease.fence for lease in (await broker.sweep(limit=100_000, now=now)).overdue}
    final = {words[1]: words[2] for words in said if words[0] == "final"}
    for words in said:
        if words[0] not in ("stored", "granted"):
            continue
        record = await broker.get(words[1], now=now)
        assert record is not None, f"{words[1]} was acknowledged and is lost"
        state = record.standing.state
        if words[1] in final:
            assert state.value == final[words[1]], f"{words[1]} was {final[words[1]]} and is {state}"
        if words[0] == "granted":
            assert record.standing.fence >= int(words[2])
        if state is State.RUNNING:
            assert words[1] in overdue, "what ran when the process died is handed out again at once"
    assert broker._book.shelf.connection.execute("PRAGMA integrity_check").get == "ok"
    await broker.close()


def kill_again_and_again(data: Path, times: int, seed: int) -> int:
    draw = random.Random(seed)
    everything: list[list[str]] = []
    for life in range(times):
        process = a_life(data, seed + life, sync=draw.choice(("full", "own")))
        try:
            everything += read(process, draw.randrange(2, 400))
            time.sleep(draw.random() * 0.01)  # anywhere inside a flush
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        everything += complete_lines(process)
        assert process.returncode == -signal.SIGKILL, "it must have lived until it was killed"
        asyncio.run(asyncio.wait_for(verify(data, everything), 60))
    assert Counter(words[0] for words in everything)["stored"] > times
    return len(everything)


@pytest.mark.timeout(120)
def test_a_killed_owner_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", 3, 5)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_killed_owners_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    said = kill_again_and_again(tmp_path / "data", 40, 1000)
    print(f"killed 40 times, {said} acknowledgements, none lost")


def test_too_much_that_waits_for_the_disk_is_refused_with_a_time_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.brokers.sqlite.flush.WAITING_BYTES_MAX", 50_000)

    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        calls = [broker.enqueue([a_job(broker, 10_000)], now=CLOCK.now()) for _ in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, StoreUnavailableError)]
        assert 0 < len(refused) < 20
        assert all(error.retry_after_s for error in refused)
        depth = await broker.depth("t", now=CLOCK.now())
        assert depth.queued == 20 - len(refused)
        await broker.enqueue([a_job(broker, 10_000)], now=CLOCK.now())
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


def test_one_wrong_call_does_not_take_its_neighbours_down(tmp_path: Path) -> None:
    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        good, wrong = a_job(broker), a_job(broker)._replace(id="not-an-id")
        worse = a_job(broker)._replace(payload=object())  # type: ignore[arg-type]
        answers = await asyncio.gather(
            *(broker.enqueue([job], now=CLOCK.now()) for job in (good, wrong, worse)),
            broker.lease("t", limit=5, lease_s=5.0, worker="w", now=CLOCK.now()),
            return_exceptions=True,
        )
        assert isinstance(answers[1], ForebayError)
        assert isinstance(answers[2], Exception)
        assert [lease.job for lease in answers[3]] == [good]  # type: ignore[union-attr,index]
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


def test_nobody_hears_of_a_job_before_its_sync(tmp_path: Path) -> None:
    """The sync is held up: no answer, no listener, no reader may know of the job meanwhile."""

    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK, sync="own")
        loop, gate, heard = asyncio.get_running_loop(), asyncio.Event(), list[str]()
        plain = broker._committer._sync_wal
        waiting = loop.create_future()

        def held_up() -> None:
            loop.call_soon_threadsafe(waiting.set_result, None)
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20)
            plain()

        broker._committer._sync_wal = held_up  # type: ignore[method-assign]
        broker.on_change(lambda changes: heard.extend(change.job_id for change in changes))
        job = a_job(broker)
        answer = asyncio.ensure_future(broker.enqueue([job], now=CLOCK.now()))
        await asyncio.wait_for(waiting, 10)
        reader = asyncio.ensure_future(broker.get(job.id, now=CLOCK.now()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not answer.done()
        assert not reader.done()
        assert not heard
        assert broker.depth_now("t", now=CLOCK.now()).queued == 1, "admission counts what is on its way"
        broker._committer._sync_wal = plain  # type: ignore[method-assign]
        gate.set()
        assert (await answer)[0].job_id == job.id
        assert await reader is not None
        assert heard == [job.id]
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


def test_a_lease_asked_for_by_the_doorbell_shares_the_flush(tmp_path: Path) -> None:
    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        leases = []

        def ring(task: str) -> None:
            if not leases:
                call = broker.lease(task, limit=1, lease_s=5.0, worker="w", now=CLOCK.now())
                leases.append(asyncio.ensure_future(call))

        broker.on_work(ring)
        job = a_job(broker)
        await broker.enqueue([job], now=CLOCK.now())
        assert [lease.job for lease in await leases[0]] == [job]
        assert broker.stats()["flushes"] == 1
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


def test_the_file_levels_off_when_old_jobs_are_purged(tmp_path: Path) -> None:
    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK, retention_s=0.0)
        sizes = []
        for _ in range(12):
            await broker.enqueue([a_job(broker, 4000) for _ in range(100)], now=CLOCK.now())
            leases = await broker.lease("t", limit=100, lease_s=60.0, worker="w", now=CLOCK.now())
            now = CLOCK.now()
            await broker.commit([settle.complete(one, output=b"1", now=now) for one in leases], now=now)
            assert await broker.purge(limit=10_000, now=CLOCK.now()) == 100
            sizes.append(broker.stats()["file_bytes"] + broker.stats()["wal_bytes"])
        assert max(sizes[6:]) <= 1.1 * max(sizes[:6]) + 4 * schema.CHECKPOINT_PAGES * schema.PAGE_BYTES
        assert broker._book.shelf.connection.execute("PRAGMA page_count").get * schema.PAGE_BYTES < 3_000_000
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_the_last_error_of_a_lost_run_is_told_by_settle(tmp_path: Path) -> None:
    async def go() -> None:
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        job = a_job(broker)
        await broker.enqueue([job], now=CLOCK.now())
        await broker.lease("t", limit=1, lease_s=600.0, worker="w", now=CLOCK.now())
        await broker.close()
        broker = await SqliteBroker.open(tmp_path / "data", clock=CLOCK)
        (lease,) = (await broker.sweep(limit=10, now=CLOCK.now())).overdue
        step = settle.lose(lease, error=JobError("lost", "gone"), now=CLOCK.now())
        assert await broker.commit([step], now=CLOCK.now()) == [True]
        record = await broker.get(job.id, now=CLOCK.now())
        assert record is not None
        assert (record.standing.state, record.standing.suspect) == (State.QUEUED, True)
        await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["deleted", "moved", "replaced", "log deleted"])
def test_a_store_that_is_not_where_it_was_accepts_nothing_and_finishes_what_it_has(
    tmp_path: Path, what: str
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    heard: list[ForebayError] = []

    async def go() -> None:
        broker = await SqliteBroker.open(data, clock=CLOCK, on_gone=heard.append)
        await broker.enqueue([a_job(broker)], now=CLOCK.now())
        [lease] = await broker.lease("t", limit=1, lease_s=600.0, worker="w", now=CLOCK.now())
        if what == "deleted":
            shutil.rmtree(data)
        elif what == "log deleted":
            (data / f"{schema.FILE_NAME}-wal").unlink()
        else:
            data.rename(elsewhere)
        if what == "replaced":
            shutil.copytree(elsewhere, data)
        with pytest.raises(StoreUnavailableError, match="deleted, moved or replaced") as refused:
            await broker.enqueue([a_job(broker)], now=CLOCK.now())
        assert refused.value.retry_after_s
        with pytest.raises(StoreUnavailableError):
            await broker.redrive(lease.job.id, a_job(broker), now=CLOCK.now())
        heard.clear()
        await broker.sweep(limit=10, now=CLOCK.now())
        assert heard, "readiness hears of it although nobody submits"
        done = settle.complete(lease, output=b"1", now=CLOCK.now())
        assert await broker.commit([done], now=CLOCK.now()) == [True]
        record = await broker.get(lease.job.id, now=CLOCK.now())
        assert record is not None and record.standing.state is State.SUCCEEDED
        if what == "moved":
            elsewhere.rename(data)
            [receipt] = await broker.enqueue([a_job(broker)], now=CLOCK.now())
            assert receipt.job_id
        await broker.close()

    asyncio.run(go())


class HandClock(SystemClock):
    """Stands still until it is moved, so that no stall is one of the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.at = CLOCK.now()

    def now(self) -> float:
        return self.at


async def moved(clock: HandClock, broker: SqliteBroker, at: float) -> None:
    """Move the clock, and wait until the loop was seen to turn."""
    clock.at = at
    while broker._committer.standstill.beat_at != at:
        await asyncio.sleep(0)


@pytest.mark.timeout(60)
def test_a_full_disk_takes_no_lease_from_its_holder(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "BEAT_S", 0.005)
    data, ballast = small_disk.path / "data", small_disk.path / "ballast"

    async def go() -> None:
        clock = HandClock()
        broker = await SqliteBroker.open(data, clock=clock)
        await broker.enqueue([a_job(broker) for _ in range(2)], now=clock.at)
        [late] = await broker.lease("t", limit=1, lease_s=0.1, worker="w", now=clock.at)
        [lease] = await broker.lease("t", limit=1, lease_s=3.0, worker="w", now=clock.at)
        claim = Claim(lease.job.id, lease.fence)
        await moved(clock, broker, late.until + 0.1)
        pause_s = committer.FULL_RETRY_S + 0.1  # a full disk is left alone so long before the next try
        with pytest.raises(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(StoreFullError):
            while True:
                await broker.enqueue([a_job(broker, 4_000)], now=clock.at)
        while clock.at < lease.until:
            await moved(clock, broker, clock.at + pause_s)
            with pytest.raises(StoreFullError):
                await broker.extend([claim], lease_s=2.0, now=clock.at)
        ballast.unlink()
        await moved(clock, broker, clock.at + pause_s)
        swept = await broker.sweep(limit=10, now=clock.at)
        assert [one.job.id for one in swept.overdue] == [late.job.id], "what had lapsed before is not spared"
        assert await broker.extend([claim], lease_s=2.0, now=clock.at) == [Hold.HELD]
        await broker.close()

    asyncio.run(go())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("first", ["sweep", "extend"])
def test_a_process_that_stood_still_takes_no_lease_from_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    monkeypatch.setattr(standstill, "BEAT_S", 0.005)

    async def go() -> None:
        clock = HandClock()
        broker = await SqliteBroker.open(tmp_path / "data", clock=clock)
        await broker.enqueue([a_job(broker)], now=clock.at)
        [lease] = await broker.lease("t", limit=1, lease_s=5.0, worker="w", now=clock.at)
        claim = Claim(lease.job.id, lease.fence)
        clock.at = lease.until + 1.0  # the loop has not turned since, as in a stopped process
        if first == "sweep":
            assert not (await broker.sweep(limit=10, now=clock.at)).overdue
        assert await broker.extend([claim], lease_s=2.0, now=clock.at) == [Hold.HELD]
        until = clock.at + 2.0
        for at in (until - 1.5, until - 1.0, until - 0.5, until + 0.01):  # turning as it should
            assert not (await broker.sweep(limit=10, now=clock.at)).overdue
            await moved(clock, broker, at)
        swept = await broker.sweep(limit=10, now=clock.at)
        assert [one.job.id for one in swept.overdue] == [lease.job.id], (
            "time is given once, for the stall alone"
        )
        await broker.close()

    asyncio.run(go())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("first", ["sweep", "extend"])
def test_a_short_lease_is_not_lost_to_a_short_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The worst that may be: it was too young for a renewal, and the process stood when the next one was due."""
    late_s = standstill.BEAT_S + standstill.STALL_S  # under a long lease
    monkeypatch.setattr(standstill, "BEAT_S", 0.005)
    monkeypatch.setattr(standstill, "STALL_S", late_s - 0.005)

    async def go() -> None:
        clock = HandClock()
        broker = await SqliteBroker.open(tmp_path / "data", clock=clock)
        await broker.enqueue([a_job(broker)], now=clock.at)
        [lease] = await broker.lease("t", limit=1, lease_s=2.0, worker="w", now=clock.at)
        claim = Claim(lease.job.id, lease.fence)
        for _ in range(2):  # turning as it should
            await moved(clock, broker, clock.at + 0.49)
        clock.at = lease.until + 0.1
        if first == "sweep":
            assert not (await broker.sweep(limit=10, now=clock.at)).overdue
        assert await broker.extend([claim], lease_s=2.0, now=clock.at) == [Hold.HELD]
        await broker.close()

    asyncio.run(go())


def test_what_was_to_be_forgiven_by_a_flush_that_failed_is_owed_still() -> None:
    stood = standstill.Standstill(10.0)
    stood.look(12.0)
    assert stood.take() == 10.0
    stood.put_back()
    stood.deaf(11.0)  # it is known for longer
    assert stood.take() == 10.0
    stood.look(14.0)  # while that flush was on its way
    assert (stood.take(), stood.take()) == (12.0, None)


def test_a_flush_that_cannot_begin_owes_nothing_that_was_forgiven_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        clock = HandClock()
        broker = await SqliteBroker.open(tmp_path / "data", clock=clock)
        stood, shelf = broker._committer.standstill, broker._book.shelf
        stood.deaf(clock.at - 100.0)
        await broker.enqueue([a_job(broker)], now=clock.at)  # forgives that, and is stored

        def full() -> None:
            raise apsw.FullError("database or disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(shelf, "begin", full)
            with pytest.raises(StoreFullError):
                await broker.enqueue([a_job(broker)], now=clock.at)
        assert stood.take() == clock.at, "no lease could be renewed since this flush began, and no longer"
        await broker.close()

    asyncio.run(go())
