"""RedisServer: a real server of its own in a directory of its own, on a free port; Valkey where there is that."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import redis
import redis.asyncio

from forebay.brokers.redis import RedisBroker
from forebay.brokers.redis.address import Address
from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 60.0
STOP_MAX_S = 20.0
# Nothing that was answered is lost with the power.
SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "bind": "127.0.0.1"}


def binary():
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    assert found, "there is no Redis server here: apt-get install redis-server"
    return found


class RedisServer:
    """Started by `start`; `stop` ends it and removes everything."""

    ENDS = {"stop": signal.SIGTERM, "crash": signal.SIGKILL}

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-redis-", dir="/tmp"))
        self.port = free_port()
        self.process = None

    def url(self, name="forebay", user="", **more):
        query = "&".join(f"{key}={value}" for key, value in {"name": name, **more}.items())
        return f"redis://{user}127.0.0.1:{self.port}/0?{query}"

    def start(self, **more):
        settings = {**SETTINGS, "port": self.port, "dir": self.root, **more}
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen([binary(), *options], cwd=self.root, stdout=log, stderr=log)
        until(self.answers, START_MAX_S, f"the server answers; its log: {self.log()[-2000:]}")
        return self

    def client(self):
        return redis.Redis(port=self.port)

    def answers(self):
        assert self.process.poll() is None, self.log()[-2000:]
        try:
            with self.client() as client:
                return client.ping()
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def ask(self, *command):
        with self.client() as client:
            return client.execute_command(*command)

    def log(self):
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def halt(self, how=signal.SIGKILL):
        """End the server where it stands."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(STOP_MAX_S)
            self.process = None

    def keys(self, name):
        """Return every key of a store and what it holds, by its name behind the prefix."""
        prefix = f"{{{name}}}:"
        with self.client() as client:
            return {
                key.decode(errors="replace").removeprefix(prefix): client.type(key)
                for key in client.keys(f"{prefix}*")
            }

    def empty(self, name):
        """Leave nothing of a store but that it is there."""
        with self.client() as client:
            keys = client.keys(f"{{{name}}}:*")
            if keys:
                client.delete(*keys)

    def make(self):
        """Nothing has to be made before the start."""
        return self

    def drop(self, name):
        """Leave nothing of a store."""
        self.empty(name)

    async def broker(self, name, clock):
        """Return an engine on a store of this server."""
        return await RedisBroker.open(self.url(name), clock=clock)

    def jobs(self, name):
        """Return how many jobs a store holds."""
        return self.ask("ZCARD", f"{{{name}}}:ids")

    def cut(self):
        """Cut every connection."""
        self.ask("CLIENT", "KILL", "TYPE", "normal")
        self.ask("CLIENT", "KILL", "TYPE", "pubsub")

    @contextlib.asynccontextmanager
    async def ear(self, name):
        """Yield what tells all that was said in a store since, up to now."""
        channel = Address.of(self.url(name)).channel
        async with redis.asyncio.Redis(port=self.port) as client, client.pubsub() as hearer:
            await hearer.subscribe(channel)
            await hearer.get_message(timeout=START_MAX_S)

            async def said():
                await client.publish(channel, "up to now")
                texts = []
                while "up to now" not in texts:
                    message = await hearer.get_message(timeout=START_MAX_S)
                    texts.append(message["data"].decode())
                return texts[:-1]

            yield said

    def check_counts(self, name):
        """The counts are what is there, and every index names the jobs it should and no other."""
        kept, counted = {}, Counter()
        prefix = f"{{{name}}}:"
        indexed = Counter()
        with self.client() as client:
            for key in client.keys(f"{prefix}j:*"):
                job = client.hgetall(key)
                counted[job[b"task"], job[b"prio"], job[b"st"], job[b"tenant"]] += 1
                indexed[key.decode().removeprefix(f"{prefix}j:")] += 1
            for key in client.keys(f"{prefix}n:*"):
                task = key.removeprefix(f"{prefix}n:".encode())
                for field, count in client.hgetall(key).items():
                    kept[task, *field.split(b"\0", 2)] = int(count)
            assert kept == counted
            for member in client.zrange(f"{prefix}ids", 0, -1):
                indexed[member.decode()] -= 1
            assert not any(indexed.values())
            placed = Counter()
            for state, keys in (("1", "qa:*"), ("2", "run"), ("4", "f:*"), ("5", "fd:*")):
                for key in client.keys(prefix + keys):
                    for member in client.zrange(key, 0, -1):
                        assert client.hget(f"{prefix}j:{member.decode()}", "st") in (
                            {b"4", b"6", b"7"} if state == "4" else {state.encode()}
                        )
                        placed[member] += 1
            assert set(placed.values()) <= {1}

    def stop(self):
        try:
            self.halt()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
