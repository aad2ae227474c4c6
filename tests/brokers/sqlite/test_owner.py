"""Who may open a store, what its files look like, and one clear line for everything that cannot be opened."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from forebay.brokers.sqlite import SqliteBroker, lock, schema
from forebay.clock import SystemClock
from forebay.core.job import Job, Query
from forebay.errors import ConfigError, ForebayError, StoreBrokenError, StoreLockedError, StoreVersionError
from tests.brokers.sqlite.conftest import SmallDisk

CLOCK = SystemClock()


def opened(directory: Path, use: Callable[[SqliteBroker], Awaitable[None]] | None = None) -> None:
    """Open a store, use it, close it."""

    async def go() -> None:
        broker = await SqliteBroker.open(directory, clock=CLOCK)
        try:
            if use is not None:
                await use(broker)
        finally:
            await broker.close()

    asyncio.run(asyncio.wait_for(go(), 30))


async def store_one(broker: SqliteBroker) -> None:
    now = CLOCK.now()
    await broker.enqueue([Job(broker.new_id(now), "t", b"{}", now, now)], now=now)


def refused(directory: Path, kind: type[ForebayError]) -> str:
    with pytest.raises(kind) as raised:
        opened(directory)
    text = str(raised.value)
    assert "\n" not in text
    assert str(directory) in text
    return text


def test_a_second_owner_is_refused_with_the_first_one_s_process_id(tmp_path: Path) -> None:
    async def second(_: SqliteBroker) -> None:
        with pytest.raises(StoreLockedError, match=f"is owned by process {os.getpid()}; .* another --data"):
            await SqliteBroker.open(tmp_path / "data", clock=CLOCK)

    opened(tmp_path / "data", second)
    opened(tmp_path / "data")


def test_another_process_is_refused_while_the_owner_lives(tmp_path: Path) -> None:
    async def second(_: SqliteBroker) -> None:
        code = (
            "import asyncio, sys\nfrom pathlib import Path\nfrom forebay.brokers.sqlite import SqliteBroker\n"
            "from forebay.clock import SystemClock\nfrom forebay.errors import StoreLockedError\n"
            "try: asyncio.run(SqliteBroker.open(Path(sys.argv[1]), clock=SystemClock()))\n"
            "except StoreLockedError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert f"is owned by process {os.getpid()}" in done.stdout

    opened(tmp_path / "data", second)


def test_a_lock_file_that_was_left_behind_means_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / lock.LOCK_NAME).write_text("1 0\n")

    async def look(_: SqliteBroker) -> None:
        pid, started = (data / lock.LOCK_NAME).read_text().split()
        assert (int(pid), started) == (os.getpid(), lock.started_at(os.getpid()))

    opened(data, look)


def test_a_refused_second_owner_leaves_the_first_one_s_name(tmp_path: Path) -> None:
    async def twice(_: SqliteBroker) -> None:
        for _attempt in range(2):
            with pytest.raises(StoreLockedError, match=f"process {os.getpid()}"):
                await SqliteBroker.open(tmp_path / "data", clock=CLOCK)

    opened(tmp_path / "data", twice)


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"

    async def look(broker: SqliteBroker) -> None:
        await store_one(broker)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}
        expected = {schema.FILE_NAME, f"{schema.FILE_NAME}-wal", lock.LOCK_NAME}
        assert modes == dict.fromkeys(expected, 0o600)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700

    before = os.umask(0)
    try:
        opened(data, look)
    finally:
        os.umask(before)


def test_a_directory_that_everybody_can_write_to_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    assert "chmod o-w" in refused(data, ConfigError)


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "is a file" in refused(tmp_path / "data", ConfigError)


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / schema.FILE_NAME).mkdir(parents=True)
    (tmp_path / "data").chmod(0o700)
    assert "is a directory" in refused(tmp_path / "data", StoreBrokenError)


def test_a_directory_that_cannot_be_written_is_refused(small_disk: SmallDisk) -> None:
    small_disk.remount("ro")
    assert "cannot be written: Read-only file system" in refused(small_disk.path, ConfigError)
    assert "cannot be made: Read-only file system" in refused(small_disk.path / "data", ConfigError)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened(data)
    connection = apsw.Connection(str(data / schema.FILE_NAME))
    connection.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    connection.close()
    assert f"schema {schema.VERSION + 1}" in refused(data, StoreVersionError)


def test_an_older_schema_is_brought_forward_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    opened(data, store_one)
    now = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", now + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {now: "CREATE TABLE added(x); SELECT broken syntax"})
    refused(data, StoreBrokenError)
    monkeypatch.setattr(schema, "MIGRATIONS", {now: "CREATE TABLE added(x)"})

    async def look(broker: SqliteBroker) -> None:
        assert len((await broker.find(Query(), now=CLOCK.now())).records) == 1

    opened(data, look)


def test_a_store_of_the_first_version_is_brought_forward_with_its_jobs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened(data, store_one)
    connection = apsw.Connection(str(data / schema.FILE_NAME))
    added = {
        "jobs": ("version", "ordering_key", "callback_url", "fingerprint", "cache_s"),
        "runs": ("checkpoint", "cancel_at"),
        "queues": ("draining",),
    }
    for gone in ("INDEX jobs_by_fingerprint", "TABLE joins", "TABLE spans", "INDEX results_by_state"):
        connection.execute(f"DROP {gone}")
    for table, columns in added.items():
        for column in columns:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("DROP TABLE blob_refs")
    connection.execute("DROP TABLE deliveries")
    connection.execute("DROP TABLE edits")
    connection.execute("DROP TABLE crons")
    connection.execute("DROP INDEX results_by_death")
    for table in ("deadly_inputs", "tombstones_0", "tombstones_1"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version=1")
    connection.close()

    async def run_it(broker: SqliteBroker) -> None:
        (record,) = (await broker.find(Query(), now=CLOCK.now())).records
        for query in (Query(task=record.job.task), Query(tenant=record.job.tenant)):
            assert (await broker.find(query, now=CLOCK.now())).records == (record,)
        assert (record.job.version, record.job.callback_url) == ("", None)
        (lease,) = await broker.lease(record.job.task, limit=1, lease_s=9.0, worker="w", now=CLOCK.now())
        assert lease.job == record.job

    opened(data, run_it)


def test_a_store_of_the_second_version_is_brought_forward(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened(data, store_one)
    connection = apsw.Connection(str(data / schema.FILE_NAME))
    connection.execute("ALTER TABLE runs DROP COLUMN cancel_at")
    for table in ("deadly_inputs", "tombstones_0", "tombstones_1"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version=2")
    connection.close()

    async def run_it(broker: SqliteBroker) -> None:
        now = CLOCK.now()
        (record,) = (await broker.find(Query(), now=now)).records
        (lease,) = await broker.lease(record.job.task, limit=1, lease_s=9.0, worker="w", now=now)
        await broker.cancel([lease.job.id], now=now)
        found = await broker.get(lease.job.id, now=now)
        assert found is not None and found.standing.cancel_at == now
        assert await broker.quarantine.listed(limit=9, now=now) == []

    opened(data, run_it)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / schema.FILE_NAME).write_bytes(b"this is a text, and a long one at that. " * 100)
    assert "not a database" in refused(data, StoreBrokenError)


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    connection = apsw.Connection(str(data / schema.FILE_NAME))
    connection.execute("CREATE TABLE theirs(x)")
    connection.close()
    assert "not one of Forebay's" in refused(data, StoreBrokenError)
    connection = apsw.Connection(str(data / schema.FILE_NAME))
    assert connection.execute("SELECT name FROM sqlite_schema").get == "theirs"
    connection.close()


def test_a_damaged_page_is_found_at_opening(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def fill(broker: SqliteBroker) -> None:
        now = CLOCK.now()
        jobs = [Job(broker.new_id(now), "t", b"x" * 5000, now, now) for _ in range(100)]
        await broker.enqueue(jobs, now=now)

    opened(data, fill)
    content = bytearray((data / schema.FILE_NAME).read_bytes())
    at = len(content) // 2 // schema.PAGE_BYTES * schema.PAGE_BYTES
    content[at : at + schema.PAGE_BYTES] = os.urandom(schema.PAGE_BYTES)
    (data / schema.FILE_NAME).write_bytes(content)
    assert "damaged" in refused(data, StoreBrokenError)


def test_an_sqlite_with_the_log_reset_bug_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreVersionError, match=r"3\.51\.2 can corrupt"):
        opened(tmp_path / "data")


def test_no_reader_from_outside_can_hold_the_log_back(tmp_path: Path) -> None:
    """One owner, exclusively: a long reader elsewhere is refused, and ours leave no transaction open."""

    async def look(broker: SqliteBroker) -> None:
        await store_one(broker)
        outside = apsw.Connection(str(tmp_path / "data" / schema.FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
        with pytest.raises((apsw.BusyError, apsw.CantOpenError)):
            outside.execute("SELECT count(*) FROM jobs").fetchall()
        outside.close()
        now = CLOCK.now()
        for _ in range(5):
            await store_one(broker)
        page = await broker.find(Query(limit=2), now=now)
        assert page.next_after is not None
        assert not broker._book.shelf.connection.in_transaction
        assert broker._book.shelf.connection.txn_state() == apsw.SQLITE_TXN_NONE

    opened(tmp_path / "data", look)


def test_the_log_stays_bounded_under_steady_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "CHECKPOINT_PAGES", 100)

    async def write(broker: SqliteBroker) -> None:
        for _ in range(60):
            now = CLOCK.now()
            jobs = [Job(broker.new_id(now), "t", os.urandom(8000), now, now) for _ in range(20)]
            await broker.enqueue(jobs, now=now)
        stats = broker.stats()
        assert stats["file_bytes"] > 60 * 20 * 8000 * 0.7
        assert stats["wal_bytes"] < 3 * 100 * schema.PAGE_BYTES

    opened(tmp_path / "data", write)
