"""What the job benches share: a served application, a lock on the machine, quantiles, a table and JSON."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
LOCK = Path(os.environ.get("BENCH_LOCK", "/tmp/bench.lock"))
START_MAX_S = 120.0
PAYLOAD = {"id": 0, "text": "x" * 980}  # 1 KB as JSON


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine for one measurement: benches never run beside each other."""
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Served:
    """A `forebay serve` in a directory of its own; or `api`, or `work`, on an engine that processes share."""

    def __init__(
        self,
        app: str = "noop.py",
        *,
        workers: int = 1,
        data: Path | None = None,
        queue_max: int = 5_000_000,
        verb: str = "serve",
        **env: str,
    ) -> None:
        self._own = data is None
        self.env = env
        self.data = data or Path(tempfile.mkdtemp(prefix="forebay-bench-"))
        self.log = (self.data.parent / f"{self.data.name}.log").open("a+")
        command = [sys.executable, "-m", "forebay", verb, str(BENCH / app), "--port", "0"]
        command += ["--data", str(self.data / "store")]
        command += ["--workers", str(workers)] if verb != "api" else []
        command += ["--queue-max", str(queue_max), "--queue-bytes-max", "64GiB"] if verb != "work" else []
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stderr=self.log,
            stdout=self.log,
            cwd=BENCH,
            env={**os.environ, "FOREBAY_LOG_LEVEL": "warning", **env},
        )
        self.port = self._port()
        self.ready_s = 0.0

    def _port(self) -> int:
        while self.process.poll() is None and time.perf_counter() - self.began < START_MAX_S:
            found = re.search(
                r"http://[^:]+:(\d+)", Path(self.log.name).read_text().rpartition("forebay 0")[2]
            )
            if found:
                return int(found[1])
            time.sleep(0.005)
        raise SystemExit(f"the server did not start: {Path(self.log.name).read_text()}")

    def wait_ready(self) -> "Served":
        """Return when a replica serves."""
        while time.perf_counter() - self.began < START_MAX_S:
            with contextlib.suppress(OSError):
                if self.get("/readyz")["status"] == "ready":
                    self.ready_s = time.perf_counter() - self.began
                    return self
            time.sleep(0.005)
        raise SystemExit("the server did not get ready")

    def get(self, path: str) -> Any:
        """Return the JSON of one GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def queue(self) -> Any:
        """Return the queue of the task."""
        return self.get("/v1/queues/echo")

    def rss_mb(self) -> float:
        """Return the resident megabytes of the server process, without its children."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def cpu_s(self) -> float:
        """Return processor seconds of the server and its children so far."""
        total = 0.0
        for pid in [self.process.pid, *self.children()]:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def children(self) -> list[int]:
        """Return the process ids of the worker processes."""
        return [one["pid"] for one in self.get("/v1/workers")["items"] if one["pid"]]

    def kill(self) -> None:
        """SIGKILL the server."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it and remove its data."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()
        Path(self.log.name).unlink(missing_ok=True)
        if self._own:
            shutil.rmtree(self.data, ignore_errors=True)


class Caller(asyncio.Protocol):
    """One keep-alive connection: writes prepared requests, counts and times the answers."""

    def __init__(self) -> None:
        self.buffer = b""
        self.waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Cut one answer."""
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            if len(rest) < int(length[1]):
                return
        elif not rest.endswith(b"0\r\n\r\n"):
            return
        self.buffer = b""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result((int(head[9:12]), rest))

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError("connection lost"))

    async def call(self, request: bytes) -> tuple[int, bytes]:
        """Send one request; return status and body."""
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiting


async def connect(port: int, count: int) -> list[Caller]:
    """Return open connections."""
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Caller, "127.0.0.1", port))[1] for _ in range(count)]


def post(body: bytes, *, ndjson: bool = False, extra: str = "") -> bytes:
    """Return a prepared submission."""
    kind = "application/x-ndjson" if ndjson else "application/json"
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def submission(number: int = 0) -> bytes:
    """Return one job of 1 KB as JSON."""
    return json.dumps({"task": "echo", "payload": {**PAYLOAD, "id": number}}, separators=(",", ":")).encode()


def wrk(url: str, body: bytes | str, *, expected: int, seconds: int) -> list[str]:
    """Return the command that posts one body with 64 calls in flight and counts answers of other statuses."""
    text = body if isinstance(body, str) else body.decode()
    script = ["-t1", "-c64", f"-d{seconds}s", "-s", str(BENCH / "post.lua")]
    return ["wrk", *script, url, "--", str(expected), text]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value at a share of the sorted values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(title: str, rows: Sequence[tuple[str, str, str]], figures: dict[str, Any], out: str | None) -> None:
    """Print a table of (what, measured, bar) and, after it, the same as one line of JSON."""
    print(f"\n{title}")
    width = max(len(row[0]) for row in rows)
    for what, measured, bar in rows:
        print(f"  {what:<{width}}  {measured:>14}  {bar}")
    print(json.dumps(figures))
    if out:
        Path(out).write_text(json.dumps(figures, indent=1) + "\n")
