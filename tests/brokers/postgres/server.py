"""PostgresServer: a real server of its own in a directory of its own, on a free port, as nobody important."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import psycopg

from forebay.brokers.postgres import PostgresBroker
from forebay.brokers.postgres.wire import channel_of
from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 60.0
STOP_MAX_S = 20.0
# Small and quick to start; what is durable stays as it is.
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


def binaries():
    """Return the directory of the newest server on this machine."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    known = shutil.which("initdb")
    assert known, "there is no PostgreSQL server here: apt-get install postgresql"
    return Path(known).parent


class PostgresServer:
    """Started by `start`; `stop` ends it and removes everything."""

    ENDS = {"stop": signal.SIGINT, "crash": signal.SIGQUIT}

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-pg-", dir="/tmp"))
        self.port = free_port()
        self.process = None
        self.user = None
        if os.getuid() == 0:  # the server refuses to run as root
            self.user = pwd.getpwnam("postgres")
            os.chown(self.root, self.user.pw_uid, self.user.pw_gid)

    def url(self, schema="forebay", user="postgres", database="postgres", **more):
        query = "&".join(f"{name}={value}" for name, value in {"schema": schema, **more}.items())
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}?{query}"

    def run(self, *command):
        demoted = (
            {}
            if self.user is None
            else {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        )
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, timeout=START_MAX_S, **demoted
        )

    def make(self):
        self.run(
            str(binaries() / "initdb"),
            "-D",
            str(self.root / "data"),
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        )
        return self

    def start(self, **more):
        options = [part for name, value in {**SETTINGS, **more}.items() for part in ("-c", f"{name}={value}")]
        demoted = (
            {}
            if self.user is None
            else {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        )
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    str(binaries() / "postgres"),
                    "-D",
                    str(self.root / "data"),
                    "-p",
                    str(self.port),
                    "-k",
                    str(self.root),
                    "-c",
                    "listen_addresses=127.0.0.1",
                    *options,
                ],
                cwd=self.root,
                stdout=log,
                stderr=log,
                **demoted,
            )
        until(self.answers, START_MAX_S, f"the server answers; its log: {self.log()[-2000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, self.log()[-2000:]
        try:
            with psycopg.connect(self.url().partition("?")[0], connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def log(self):
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def halt(self, how=signal.SIGINT):
        """End the server: SIGINT cuts every connection, SIGQUIT is as good as a crash."""
        if self.process is None:
            return
        children = (
            psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        )
        self.process.send_signal(how)
        self.process.wait(STOP_MAX_S)
        psutil.wait_procs(children, timeout=STOP_MAX_S)
        self.process = None

    def sql(self, *statements, database="postgres"):
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/{database}", autocommit=True
        ) as connection:
            rows = None
            for statement in statements:
                cursor = connection.execute(statement)
                rows = cursor.fetchall() if cursor.description else None
            return rows

    def empty(self, schema):
        """Leave nothing in the tables of a schema, where there is one."""
        rows = self.sql(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename NOT IN ('meta', 'tallies')"
        )
        names = [*(name for (name,) in rows), *(["tallies"] if rows else [])]
        if names:
            self.sql(*(f'DELETE FROM "{schema}".{name}' for name in names))

    def drop(self, schema):
        """Leave nothing of a store."""
        self.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")

    async def broker(self, schema, clock):
        """Return an engine on a store of this server."""
        return await PostgresBroker.open(self.url(schema), clock=clock)

    def jobs(self, schema):
        """Return how many jobs a store holds."""
        if not self.sql(f"SELECT to_regclass('{schema}.jobs') IS NOT NULL")[0][0]:
            return 0
        return self.sql(f"SELECT count(*) FROM {schema}.jobs")[0][0]

    def cut(self):
        """Cut every connection of ours."""
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forebay'")

    @contextlib.asynccontextmanager
    async def ear(self, schema):
        """Yield what tells all that was said in a store since, up to now."""
        channel = channel_of(schema)
        place = self.url().partition("?")[0]
        async with await psycopg.AsyncConnection.connect(place, autocommit=True) as ear:
            await ear.execute(f'LISTEN "{channel}"')

            async def said():
                await ear.execute(f"SELECT pg_notify('{channel}', 'up to now')")
                texts = []
                while "up to now" not in texts:
                    texts += [notice.payload async for notice in ear.notifies(stop_after=1)]
                return texts[:-1]

            yield said

    def check_counts(self, schema):
        """The sums of the differences are what is there."""
        kept = self.sql(
            f"SELECT task, tenant, priority, state, sum(jobs)::int, sum(bytes)::int FROM {schema}.tallies"
            " GROUP BY 1, 2, 3, 4 HAVING sum(jobs) <> 0 OR sum(bytes) <> 0 ORDER BY 1, 2, 3, 4"
        )
        counted = self.sql(
            f"SELECT task, tenant, priority, state, count(*)::int, sum(size)::int FROM {schema}.jobs"
            " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        )
        assert kept == counted

    def stop(self):
        try:
            self.halt(signal.SIGQUIT)  # nobody needs a checkpoint of what is removed
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
