"""The servers that the rows share: PostgreSQL and Redis of the bench's own, what they were asked, what they cost."""

from typing import Any

import psutil

from tests.brokers.postgres.server import PostgresServer
from tests.brokers.redis.server import RedisServer

# As an operator would give to a server of this size; what is durable stays as it is. The same for all rows.
POSTGRES = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "autovacuum_naptime": "30s",
    "shared_preload_libraries": "pg_stat_statements",
}

Asked = dict[str, float]


class Postgres:
    """A PostgreSQL with full fsync that counts its statements."""

    name, synced = "postgres", "each commit"

    def __init__(self) -> None:
        self.server = PostgresServer().make().start(**POSTGRES)
        self.server.sql("CREATE EXTENSION pg_stat_statements")
        self._places = 0

    def fresh(self) -> dict[str, str]:
        """Return the environment that leads to a new and empty store, for Forebay and for peers."""
        self._places += 1
        return self._made(f"fresh{self._places}")

    def place(self, number: int) -> dict[str, str]:
        """Return the environment of a store of that number, beside others."""
        return self._made(f"place{number}")

    def _made(self, name: str) -> dict[str, str]:
        self.server.sql(f"CREATE DATABASE {name}")
        url = f"postgresql://postgres@127.0.0.1:{self.server.port}/{name}"
        return {"FOREBAY_BROKER": url, "PEER_POSTGRES": url}

    def beside(self) -> dict[str, str]:
        """Return the environment of one more store, empty too."""
        return self.fresh()

    def filled(self, env: dict[str, str]) -> None:
        """Do at once what its own housekeeping would do for minutes after a million inserts: it belongs to the
        filling, not to the rate beside what was filled."""
        name = env["FOREBAY_BROKER"].rpartition("/")[2]
        self.server.sql("VACUUM (ANALYZE)", "CHECKPOINT", database=name)

    def asked(self) -> Asked:
        """Return what was asked of it since it started: statements."""
        ((statements,),) = self.server.sql("SELECT sum(calls)::float8 FROM pg_stat_statements")
        return {"statements": statements}

    def pids(self) -> list[int]:
        """Return the processes of the server."""
        return [self.server.process.pid]

    def stop(self) -> None:
        """End it and remove everything."""
        self.server.stop()


class Redis:
    """A Redis with an append-only file."""

    def __init__(self, synced: str) -> None:
        self.name, self.synced = (
            f"redis-{synced}",
            {"always": "each write", "everysec": "each second"}[synced],
        )
        self.server = RedisServer().start(appendfsync=synced)

    def fresh(self) -> dict[str, str]:
        """Return the environment that leads to a new and empty store, for Forebay and for peers."""
        self.server.ask("FLUSHALL")
        return self.place(0)

    def place(self, number: int) -> dict[str, str]:
        """Return the environment of a store of that number, beside others."""
        return {
            "FOREBAY_BROKER": self.server.url(f"place{number}"),
            "PEER_REDIS": f"redis://127.0.0.1:{self.server.port}/{number}",
        }

    def beside(self) -> dict[str, str]:
        """Return the environment of one more store, empty too."""
        return self.place(1)

    def filled(self, env: dict[str, str]) -> None:
        """It has no housekeeping that would follow."""

    def asked(self) -> Asked:
        """Return what was asked of it since it started: reads of its sockets, and commands, scripts' included."""
        with self.server.client() as client:
            stats: Any = client.info("stats")
        return {
            "reads": float(stats["total_reads_processed"]),
            "commands": float(stats["total_commands_processed"]),
        }

    def pids(self) -> list[int]:
        """Return the processes of the server."""
        return [self.server.process.pid]

    def stop(self) -> None:
        """End it and remove everything."""
        self.server.stop()


class Elsewhere:
    """An engine that runs already, by its URL; with a store beside it where it is a message broker."""

    synced = "as it is set"

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name = name
        self._env = env

    def fresh(self) -> dict[str, str]:
        """Return the environment that leads to it: it is not emptied."""
        return dict(self._env)

    def beside(self) -> dict[str, str]:
        """There is one store at a URL."""
        raise SystemExit(f"{self.name}: a backlog needs two stores, and a URL names one")

    def filled(self, env: dict[str, str]) -> None:
        """Nothing is known of it."""

    def asked(self) -> Asked:
        """Nothing is known of it."""
        return {}

    def pids(self) -> list[int]:
        """Nothing is known of it."""
        return []

    def stop(self) -> None:
        """Leave it as it is."""


Server = Postgres | Redis | Elsewhere
STARTS = {
    "redis-everysec": lambda: Redis("everysec"),
    "redis-always": lambda: Redis("always"),
    "postgres": Postgres,
}


def cpu_s(pids: list[int]) -> dict[int, float]:
    """Return the processor seconds so far of each of these processes and their children."""
    found: dict[int, float] = {}
    for pid in pids:
        try:
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return found


def spent_s(before: dict[int, float], after: dict[int, float]) -> float:
    """Return what was spent between two looks; a process that began in between counts from its start."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
