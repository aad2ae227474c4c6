"""A spool whose disk fails: who repeats hears the truth, nothing stands in the way for good, the end is an end."""

import asyncio
import threading

import pytest

from forebay.brokers.spooled import Bounds, spooled
from forebay.brokers.spooled.file import open_files
from forebay.brokers.spooled.spool import Spool
from forebay.clock import SystemClock
from forebay.core.job import Job, Verdict
from forebay.errors import ConfigError, StoreUnavailableError

WAIT_MAX_S = 20.0
BOUNDS = Bounds(1_000, 1 << 20, 60.0)
clock = SystemClock()


def a_job(number, **fields):
    now = clock.now()
    made = {"id": f"id{number}", "task": "echo", "payload": b"1", "created_at": now, "run_at": now}
    return Job(**{**made, **fields})


class Held:
    """A file whose verbs wait, and fail as they are told."""

    def __init__(self, file):
        self.file = file
        self.begun, self.go = threading.Event(), threading.Event()
        self.error = None
        self.closed_within = False
        self.busy = False

    def add(self, rows):
        self._wait()
        self.file.add(rows)

    def remove(self, upto):
        self._wait()
        self.file.remove(upto)

    def close(self):
        self.closed_within = self.busy
        self.file.close()

    def _wait(self):
        self.busy = True
        self.begun.set()
        assert self.go.wait(WAIT_MAX_S)
        self.busy = False
        if self.error is not None:
            raise self.error


def with_spool(tmp_path, body):
    async def run():
        (file,) = open_files(tmp_path / "spool")
        held = Held(file)
        spool = Spool([file], BOUNDS)
        spool._files[0] = held
        async with asyncio.timeout(WAIT_MAX_S):
            await body(spool, held)
            held.go.set()
            await spool.close()
        assert not held.closed_within

    asyncio.run(run())


async def begun(held):
    await asyncio.to_thread(held.begun.wait, WAIT_MAX_S)


@pytest.mark.parametrize(
    "error", [StoreUnavailableError("no disk"), RuntimeError("odd")], ids=["told", "odd"]
)
def test_who_repeats_what_never_reaches_the_disk_hears_so_and_later_ones_go_on(tmp_path, error):
    async def body(spool, held):
        held.error = error
        first = a_job(1, idempotency_key="k", body_hash=b"1")
        again = a_job(2, idempotency_key="k", body_hash=b"1")
        putting = asyncio.ensure_future(spool.put([first], why="away", now=clock.now()))
        await begun(held)
        calls = [
            putting,
            asyncio.ensure_future(spool.put([again], why="away", now=clock.now())),
            asyncio.ensure_future(spool.recall([again])),
            asyncio.ensure_future(spool.put([again, a_job(3)], why="away", now=clock.now())),
        ]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        held.go.set()
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert told == [error] * 4 and not spool and spool.bytes == 0
        held.error = None
        (receipt,) = await spool.put([again], why="away", now=clock.now())
        assert receipt.verdict is Verdict.SPOOLED
        assert [job.id for job in spool.first(10, 1 << 20)] == ["id2"], "nothing stands before it"

    with_spool(tmp_path, body)


def test_what_is_known_is_told_only_when_it_is_on_the_disk(tmp_path):
    async def body(spool, held):
        first = a_job(1, idempotency_key="k", body_hash=b"1")
        putting = asyncio.ensure_future(spool.put([first], why="away", now=clock.now()))
        await begun(held)
        recalling = asyncio.ensure_future(
            spool.recall([a_job(2, idempotency_key="k", body_hash=b"1"), a_job(3)])
        )
        await asyncio.sleep(0)
        assert not recalling.done()
        held.go.set()
        known, unknown = await recalling
        assert (known.verdict, known.job_id, unknown) == (Verdict.REPLAYED, "id1", None)
        await putting

    with_spool(tmp_path, body)


def test_a_file_is_not_closed_while_what_was_handed_over_is_removed_from_it(tmp_path):
    async def body(spool, held):
        held.go.set()
        await spool.put([a_job(1)], why="away", now=clock.now())
        held.go.clear()
        held.begun.clear()
        removing = asyncio.ensure_future(spool.remove(spool.first(10, 1 << 20)))
        await begun(held)
        removing.cancel()
        await asyncio.gather(removing, return_exceptions=True)
        closing = asyncio.ensure_future(spool.close())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not closing.done()
        held.go.set()
        await closing
        spool._files = []  # it was closed

    with_spool(tmp_path, body)
    (file,) = open_files(tmp_path / "spool")
    assert file.load() == []
    file.close()


@pytest.mark.parametrize("damage", ["row", "page"])
def test_a_spool_that_cannot_be_read_is_said_in_one_line(tmp_path, damage):
    (file,) = open_files(tmp_path)
    file.add([(number, a_job(number)) for number in range(200)])
    if damage == "row":
        file._connection.execute("UPDATE jobs SET job = x'ff00'")
    file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    if damage == "page":
        path = tmp_path / "0.db"
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))

    async def run():
        await spooled(None, tmp_path, BOUNDS, clock)

    with pytest.raises(ConfigError) as caught:
        asyncio.run(run())
    assert str(caught.value).startswith(f"spool: {tmp_path / '0.db'} cannot be used: ")
    assert "\n" not in str(caught.value)


class Odd:
    """An engine that is away, and then fails in a way of its own, and then does not."""

    def __init__(self):
        self.error = StoreUnavailableError("away")
        self.taken = []

    async def enqueue(self, jobs, *, now):
        if self.error is not None:
            raise self.error
        self.taken += jobs
        return [type("Receipt", (), {"job_id": job.id}) for job in jobs]

    async def close(self):
        return


def test_why_the_handing_over_fails_is_told_and_it_goes_on(tmp_path):
    async def run():
        engine, heard = Odd(), []
        broker = await spooled(
            engine, tmp_path, BOUNDS, clock, on_failure=lambda verb, error: heard.append((verb, str(error)))
        )
        await broker.enqueue([a_job(1)], now=clock.now())
        engine.error = RuntimeError("odd")
        async with asyncio.timeout(WAIT_MAX_S):
            while not heard:
                await asyncio.sleep(0.01)
            engine.error = None
            while broker.spool:
                await asyncio.sleep(0.01)
        assert heard[0] == ("hand_over", "odd") and [job.id for job in engine.taken] == ["id1"]
        await broker.close()

    asyncio.run(run())
