"""The tables, their version, and how a connection to them is set up."""

import os
from pathlib import Path
from typing import Final

import apsw

from forebay.brokers.sqlite import spans
from forebay.errors import ForebayError, StoreBrokenError, StoreFullError, StoreVersionError

FILE_NAME: Final = "forebay.db"
VERSION: Final = 4
APPLICATION_ID: Final = 0x46424159  # "FBAY"
# Older ones can corrupt a database when its write-ahead log is reset.
SQLITE_LEAST: Final = (3, 51, 3)
PAGE_BYTES: Final = 8192
CACHE_KIB: Final = 16_384  # of database pages
CHECKPOINT_PAGES: Final = 1_000  # 8 MB of write-ahead log: more is faster by little and stalls for longer
CHECKED_BYTES_MAX: Final = 64 * 1024 * 1024  # a larger file is not checked as a whole at opening
BUSY_MS: Final = 2_000  # how long to wait for another process's lock before saying so

# What callbacks are owed. due_at is NULL when ended, so that the index holds what is still to be sent.
_DELIVERIES: Final = """
CREATE TABLE deliveries(
    seq INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, state INTEGER NOT NULL, tries INTEGER NOT NULL,
    tried_before INTEGER NOT NULL, since REAL NOT NULL, due_at REAL, ended_at REAL, log BLOB);
CREATE INDEX deliveries_due ON deliveries(endpoint, due_at, seq) WHERE due_at IS NOT NULL;
"""

# What a redrive of a dead letter takes in place of its payload.
_EDITS: Final = """
CREATE TABLE edits(seq INTEGER PRIMARY KEY, payload BLOB NOT NULL);
"""

# How far cron entries have come.
_CRONS: Final = """
CREATE TABLE crons(
    name TEXT PRIMARY KEY, schedule TEXT NOT NULL, due_at REAL NOT NULL, paused INTEGER NOT NULL,
    job_id TEXT, job_due_at REAL, skipped TEXT NOT NULL) WITHOUT ROWID;
"""

# What listings walk by (spans.py). Jobs that succeeded, nearly all, cost the index nothing.
_WALKS: Final = """
CREATE TABLE spans(
    kind INTEGER NOT NULL, value NOT NULL, block INTEGER NOT NULL,
    PRIMARY KEY(kind, value, block)) WITHOUT ROWID;
CREATE INDEX spans_by_block ON spans(block);
CREATE INDEX results_by_state ON results(state, seq) WHERE state <> 4;
"""

# Inputs that killed workers, a bounded number of each task (core/quarantine.py).
_DEADLY: Final = """
CREATE TABLE deadly_inputs(
    fingerprint BLOB PRIMARY KEY, task TEXT NOT NULL, version TEXT NOT NULL, tenant TEXT NOT NULL,
    deaths INTEGER NOT NULL, job_id TEXT NOT NULL, since REAL NOT NULL, at REAL NOT NULL,
    condemned_at REAL) WITHOUT ROWID;
"""

# Whose the jobs were that were removed (tombstones.py).
_TOMBSTONES: Final = """
CREATE TABLE tombstones_0(seq INTEGER PRIMARY KEY, tag INTEGER NOT NULL);
CREATE TABLE tombstones_1(seq INTEGER PRIMARY KEY, tag INTEGER NOT NULL);
"""

# Dead letters, kept longer, do not stand in the way of a purge of the others: past.py.
# Small columns first and the payload last: what lies behind a long value costs extra page reads.
# jobs is append-only. A queued job that was never leased has its jobs row and nothing else; every other
# open job also has a row in runs; a final one has a row in results.
DDL: Final = (
    """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE queues(
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, paused INTEGER NOT NULL DEFAULT 0,
    draining INTEGER NOT NULL DEFAULT 0, jobs INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0);
CREATE TABLE jobs(
    seq INTEGER PRIMARY KEY, ms INTEGER NOT NULL, task INTEGER NOT NULL, priority INTEGER NOT NULL,
    attempts_max INTEGER NOT NULL, created_at REAL NOT NULL, run_at REAL NOT NULL, expires_at REAL,
    deadline_at REAL, tenant TEXT NOT NULL, idempotency_key TEXT, body_hash BLOB NOT NULL,
    redriven_from TEXT, version TEXT NOT NULL, ordering_key TEXT, callback_url TEXT, fingerprint BLOB,
    cache_s REAL NOT NULL,
    metadata BLOB NOT NULL, payload BLOB NOT NULL);
CREATE UNIQUE INDEX jobs_by_key ON jobs(tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_by_fingerprint ON jobs(fingerprint) WHERE fingerprint IS NOT NULL;
CREATE TABLE joins(
    tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL, body_hash BLOB NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY(tenant, idempotency_key)) WITHOUT ROWID;
CREATE INDEX joins_by_job ON joins(seq);
CREATE TABLE runs(
    seq INTEGER PRIMARY KEY, state INTEGER NOT NULL, attempt INTEGER NOT NULL, fence INTEGER NOT NULL,
    deaths INTEGER NOT NULL, releases INTEGER NOT NULL, flags INTEGER NOT NULL, ready_at REAL NOT NULL,
    lease_until REAL, started_at REAL, worker TEXT NOT NULL, error BLOB, progress BLOB, attempts BLOB,
    checkpoint BLOB, cancel_at REAL);
CREATE TABLE results(
    seq INTEGER PRIMARY KEY, state INTEGER NOT NULL, attempt INTEGER NOT NULL, fence INTEGER NOT NULL,
    deaths INTEGER NOT NULL, releases INTEGER NOT NULL, flags INTEGER NOT NULL, ready_at REAL NOT NULL,
    finished_at REAL NOT NULL, started_at REAL, worker TEXT NOT NULL, error BLOB, attempts BLOB,
    output BLOB);
CREATE INDEX results_by_end ON results(finished_at) WHERE state <> 5;
CREATE INDEX results_by_death ON results(finished_at) WHERE state = 5;
CREATE TABLE redrives(seq INTEGER PRIMARY KEY, successor TEXT NOT NULL);
CREATE TABLE blob_refs(seq INTEGER NOT NULL, blob TEXT NOT NULL, PRIMARY KEY(seq, blob)) WITHOUT ROWID;
CREATE INDEX blob_refs_by_blob ON blob_refs(blob);
"""
    + _DELIVERIES
    + _EDITS
    + _CRONS
    + _WALKS
    + _DEADLY
    + _TOMBSTONES
)

# From version n to n + 1; forward only. Columns are named in every statement: their order may differ.
MIGRATIONS: Final[dict[int, str]] = {
    1: """
ALTER TABLE jobs ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN ordering_key TEXT;
ALTER TABLE jobs ADD COLUMN callback_url TEXT;
ALTER TABLE jobs ADD COLUMN fingerprint BLOB;
ALTER TABLE jobs ADD COLUMN cache_s REAL NOT NULL DEFAULT 0;
CREATE INDEX jobs_by_fingerprint ON jobs(fingerprint) WHERE fingerprint IS NOT NULL;
CREATE TABLE joins(
    tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL, body_hash BLOB NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY(tenant, idempotency_key)) WITHOUT ROWID;
CREATE INDEX joins_by_job ON joins(seq);
ALTER TABLE runs ADD COLUMN checkpoint BLOB;
DROP INDEX results_by_end;
CREATE INDEX results_by_end ON results(finished_at) WHERE state <> 5;
CREATE INDEX results_by_death ON results(finished_at) WHERE state = 5;
ALTER TABLE queues ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
CREATE TABLE blob_refs(seq INTEGER NOT NULL, blob TEXT NOT NULL, PRIMARY KEY(seq, blob)) WITHOUT ROWID;
CREATE INDEX blob_refs_by_blob ON blob_refs(blob);
"""
    + _DELIVERIES
    + _EDITS
    + _CRONS
    + _WALKS
    + """
INSERT INTO spans SELECT DISTINCT 0, task, seq / 1024 FROM jobs;
INSERT INTO spans SELECT DISTINCT 2, 0, seq / 1024 FROM jobs;
""",
    2: _DEADLY + "ALTER TABLE runs ADD COLUMN cancel_at REAL;",
    3: _TOMBSTONES,
}


def open_file(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open or create the database file, mode 0600, and leave it ready for use.

    Raises StoreVersionError, StoreFullError or StoreBrokenError with one line that names the file.
    """
    if path.is_dir():
        raise StoreBrokenError(f"{path} is a directory, not a database file")
    before = os.umask(0o077)  # the write-ahead log is made by SQLite with what is left over here
    try:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=200)
        try:
            prepare(connection, path)
            for directory in (path.parent, path.parent.parent):
                sync_directory(directory)
            for suffix in ("", "-wal"):
                if os.path.exists(f"{path}{suffix}"):
                    os.chmod(f"{path}{suffix}", 0o600)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise as_store_error(error, path) from None
    finally:
        os.umask(before)
    return connection


def sync_directory(directory: Path) -> None:
    """Make the names of the files durable, and the end of the rollback journal that making the database
    used: if it came back after a power cut, SQLite would roll the new file back to nothing.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare(connection: apsw.Connection, path: Path | None = None) -> None:
    """Set the pragmas and bring the tables to this version. Raises apsw errors and StoreVersionError."""
    connection.set_busy_timeout(BUSY_MS)
    # Or a statement of several tables is planned anew for every value, at ten times the cost of running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) < SQLITE_LEAST:
        least = ".".join(map(str, SQLITE_LEAST))
        raise StoreVersionError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt its file; {least} or newer is needed"
        )
    for pragma in (
        f"page_size={PAGE_BYTES}",
        "locking_mode=EXCLUSIVE",  # one owner: no reader can hold the write-ahead log back
        "journal_mode=WAL",
        "synchronous=FULL",
        f"cache_size=-{CACHE_KIB}",
        "mmap_size=0",
        f"wal_autocheckpoint={CHECKPOINT_PAGES}",
        f"journal_size_limit={4 * CHECKPOINT_PAGES * PAGE_BYTES}",
        "temp_store=MEMORY",
        "trusted_schema=OFF",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    _migrate(connection, path)


def _migrate(connection: apsw.Connection, path: Path | None) -> None:
    where = path or "the store"
    version, application = pragma(connection, "user_version"), pragma(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application != APPLICATION_ID and (tables or application or version):
        raise StoreBrokenError(f"{where} is a database, but not one of Forebay's")
    if version > VERSION:
        raise StoreVersionError(
            f"{where} was written by a newer Forebay (schema {version}, this one knows {VERSION})"
        )
    if version == VERSION:
        return
    with connection:  # one transaction: a crash in the middle leaves the old version
        if version == 0:
            connection.execute(DDL)
            connection.execute("INSERT INTO meta VALUES ('secret', ?)", (os.urandom(32),))
        else:
            for step in range(version, VERSION):
                connection.execute(MIGRATIONS[step])
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")


def check(connection: apsw.Connection, path: Path) -> None:
    """Look for damage where that is quick. A large file is only read as far as recovery reads it.

    Raises StoreBrokenError naming the file.
    """
    if path.exists() and path.stat().st_size > CHECKED_BYTES_MAX:
        return
    found = connection.execute("PRAGMA quick_check(1)").get
    if found != "ok":
        raise StoreBrokenError(f"{path} is damaged: {' '.join(str(found).split())}")


def spare_b(connection: apsw.Connection) -> int:
    """Return the bytes of the file that no row uses."""
    pages, page_b = (int(connection.pragma(name)) for name in ("freelist_count", "page_size"))
    return pages * page_b


def scrub(connection: apsw.Connection) -> None:
    """Write the file anew, so that nothing removed is left in it or in the write-ahead log, nor the name of a
    tenant that has no jobs any more.

    Needs free disk for the file once more. Raises apsw errors; the rows are there whatever happens.
    """
    connection.execute("PRAGMA secure_delete=ON").fetchall()
    try:
        connection.execute(spans.TIDY)
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.execute("PRAGMA secure_delete=OFF").fetchall()


def pragma(connection: apsw.Connection, name: str) -> int:
    """Return the value of a numeric pragma."""
    return int(connection.execute(f"PRAGMA {name}").get or 0)


def as_store_error(error: apsw.Error, path: "Path | str") -> ForebayError:
    """Return what an error of SQLite means for whoever runs the store, in one line."""
    if isinstance(error, apsw.FullError):
        return StoreFullError(f"the disk of {path} is full")
    if isinstance(error, apsw.NotADBError):
        return StoreBrokenError(f"{path} is not a database (or its first page is damaged)")
    if isinstance(error, apsw.CorruptError):
        return StoreBrokenError(f"{path} is damaged: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBrokenError(f"{path} is locked by a program that is not Forebay")
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return StoreBrokenError(f"{path} cannot be written: {error}")
    return StoreBrokenError(f"{path} failed: {error}")
