"""What the benches beside other queues share: a peer's environment, its driver and workers, servers for a while."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

BENCH = Path(__file__).parent
PEERS = BENCH / "peers"
VENVS = BENCH / ".peers"
STEP_MAX_S = 180.0  # one answer of a driver
START_MAX_S = 10.0

Figures = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """One row: whose environment, what runs its two workers, and what it promises."""

    name: str
    synced: str
    death: str
    venv: str = ""
    module: str = "forebay_peer"
    command: tuple[str, ...] = ()
    redis: bool = False
    workers: int = 2
    processes: int = 1  # times the command is started
    jobs: int = 5_000  # of one run of `through`
    env: dict[str, str] = field(default_factory=dict)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def end(process: subprocess.Popen[bytes] | asyncio.subprocess.Process) -> None:
    """Kill a process that leads its own group, and the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def reachable(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when something listens."""
    late = time.perf_counter() + START_MAX_S
    while time.perf_counter() < late and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        await asyncio.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not start")


@contextlib.asynccontextmanager
async def server(command: Sequence[str], port: int, cwd: Path) -> AsyncIterator[None]:
    """Run a server for a while."""
    with (cwd / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=cwd, stdout=log, stderr=log, start_new_session=True)
    try:
        await reachable(port, process)
        yield
    finally:
        end(process)
        process.wait()


class Driver:
    """A `peers/drive.py` in the peer's environment, and the peer's workers."""

    def __init__(self, peer: Peer, env: dict[str, str]) -> None:
        self._peer, self._env = peer, env
        self._log = Path(env["PEER_DATA"]) / "log"
        self._bin = VENVS / peer.venv / "bin" if peer.venv else Path(sys.executable).parent
        self._running: list[subprocess.Popen[bytes]] = []
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(str(self._bin / "python"), str(PEERS / "drive.py")),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                start_new_session=True,
                limit=1 << 24,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill_workers()
        assert self._process
        end(self._process)
        await self._process.wait()

    async def ask(self, *request: object) -> Figures:
        """Return the driver's answer."""
        process = self._process
        assert process and process.stdin and process.stdout
        process.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            answer = await asyncio.wait_for(process.stdout.readline(), STEP_MAX_S)
        except TimeoutError:
            answer = b""
        if not answer:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{self._peer.name} {request[0]}: no answer\n{tail}")
        return dict(json.loads(answer))

    def start_workers(self) -> None:
        """Start the peer's two worker processes and what leads them."""
        command = [str(self._bin / self._peer.command[0]), *self._peer.command[1:]]
        env = {**self._env, "PATH": f"{self._bin}:{os.environ['PATH']}"}
        with self._log.open("ab") as log:
            for _ in range(self._peer.processes):
                self._running.append(
                    subprocess.Popen(
                        command, cwd=PEERS, env=env, stdout=log, stderr=log, start_new_session=True
                    )
                )

    def pids(self, *, workers_alone: bool = False) -> list[int]:
        """Return the leading processes: the workers', and the driver's."""
        assert self._process
        return [process.pid for process in self._running] + [self._process.pid] * (not workers_alone)

    def kill_workers(self) -> None:
        """Kill them as they are."""
        for process in self._running:
            end(process)
            process.wait()
        self._running.clear()


def environment(name: str) -> None:
    """Make one environment if it is missing or its pins changed; CalledProcessError where that fails."""
    pins = PEERS / "requirements" / f"{name}.txt"
    stamp = VENVS / name / "pins"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return
    print(f"installing {name} into {stamp.parent}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(stamp.parent)], check=True)
    subprocess.run([str(stamp.parent / "bin" / "pip"), "install", "-q", "-r", str(pins)], check=True)
    stamp.write_text(pins.read_text())


def prepare(peers: Sequence[Peer]) -> None:
    """Make the environments that are missing or whose pins changed; install redis where it is missing."""
    for name in sorted({peer.venv for peer in peers if peer.venv}):
        environment(name)
    if any(peer.redis for peer in peers) and shutil.which("redis-server") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise SystemExit(
                "redis-server is missing: apt-get install redis-server, or leave saq and celery out"
            )
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=True,
        )
