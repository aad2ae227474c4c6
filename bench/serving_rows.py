"""The servers of serving_peers.py: what each is set to, how it is started, asked, weighed and ended."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.openloop import Due, OpenLoop
from bench.peering import PEERS, VENVS, free_port
from bench.serving import SIZE_B, right

ADAPTERS = PEERS / "serving"
START_MAX_S = 90.0
END_MAX_S = 1.0  # what a server gets between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Row:
    """One server: whose environment ("": the project's own), what starts it, where it is asked, what is set."""

    name: str
    command: tuple[str, ...]
    venv: str = ""
    path: str = "/predict"
    listed: bool = False  # a request carries a list of items
    settings: dict = field(default_factory=dict)

    def request(self, number: int) -> bytes:
        """Return one request of 1 KB."""
        text = json.dumps({"id": number, "pad": ""}, separators=(",", ":"))
        body = text[:-2] + "x" * (SIZE_B - len(text)) + text[-2:]
        if self.listed:
            body = f'{{"inputs":[{body}]}}'
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


FOREBAY = (
    "python",
    "-m",
    "forebay",
    "serve",
    "forebay_peer.py",
    "--port",
    "{port}",
    "--data",
    "{data}/store",
)
LITSERVE, MOSEC, RAY, FASTAPI = (
    ("python", f"{name}_peer.py") for name in ("litserve", "mosec", "ray", "fastapi")
)
BENTOML = ("bentoml", "serve", "bentoml_peer:Model", "--host", "127.0.0.1", "--port", "{port}")

ROWS = [
    Row("forebay", FOREBAY, path="/v1/predict/Model"),
    Row("litserve", LITSERVE, "litserve"),
    Row("litserve-tuned", LITSERVE, "litserve", settings={"timeout_s": 0.1, "batch_wait_s": 0.005}),
    Row("bentoml", BENTOML, "bentoml", listed=True),
    Row("bentoml-tuned", BENTOML, "bentoml", listed=True, settings={"concurrency": 32}),
    Row("mosec", MOSEC, "mosec", "/inference"),
    Row("mosec-tuned", MOSEC, "mosec", "/inference", settings={"capacity": 24, "batch_wait_ms": 5}),
    Row("ray", RAY, "ray", "/"),
    Row("ray-tuned", RAY, "ray", "/", settings={"ongoing": 24, "queued": 4, "batch_wait_s": 0.02}),
    Row("fastapi", FASTAPI, "fastapi"),
    Row("fastapi-tuned", FASTAPI, "fastapi", settings={"queue": 32, "expire_s": 0.148}),
]


class NotStartedError(Exception):
    """The server did not answer; the text says what it wrote last."""


def after_the_generator() -> None:
    """Where this runs at real-time priority, let a server go after it: a late generator would measure itself."""
    if os.sched_getscheduler(0) == os.SCHED_RR:
        most = os.sched_getparam(0).sched_priority
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(max(1, most - 1)))


class Running:
    """A server in a directory of its own, by itself on a port of its own."""

    def __init__(self, row: Row, factor: str = "") -> None:
        self.row = row
        self.port = free_port()
        self._data = Path(tempfile.mkdtemp(prefix="fb-"))  # short: sockets are made in it
        self._log = self._data / "log"
        place = VENVS / row.venv / "bin" if row.venv else Path(sys.executable).parent
        told = [part.format(port=self.port, data=self._data) for part in row.command]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(place / told[0]), *told[1:]],
                cwd=ADAPTERS,
                env=self._env(place, factor),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=after_the_generator,
            )
        self._root = psutil.Process(self.process.pid)

    def _env(self, place: Path, factor: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        source = [] if self.row.venv else [clean.get("PYTHONPATH", "")]
        data = str(self._data)
        return clean | {
            "PATH": f"{place}:{clean['PATH']}",
            "PYTHONPATH": ":".join([str(ADAPTERS), *filter(None, source)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PEER_PORT": str(self.port),
            "PEER_DATA": data,
            "PEER_SETTINGS": json.dumps(self.row.settings),
            "BENCH_FACTOR": factor,
            "TMPDIR": data,
            "BENTOML_HOME": data,
            "BENTOML_DO_NOT_TRACK": "True",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def wait_ready(self) -> "Running":
        """Return when it has answered a request; NotStartedError if it does not within START_MAX_S."""
        late = time.perf_counter() + START_MAX_S
        while time.perf_counter() < late and self.process.poll() is None:
            (shot,) = OpenLoop(self.port).run([Due(0.0, self.row.request(0))])
            if shot.status == 200 and right(shot, 0):
                return self
            time.sleep(0.1)
        lines = self._log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")
        raise NotStartedError(last[:200])

    def tree(self) -> list[psutil.Process]:
        """Return the process and all below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._root, *self._root.children(recursive=True)]
        return []

    def rss_peak_mb(self) -> float:
        """Return the sum of the most that each process held; what they share is counted in each."""
        total = 0
        for process in self.tree():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                    total += int(line.split()[1]) if line.startswith("VmHWM:") else 0
        return total / 1024

    def cpu_s(self) -> float:
        """Return the processor seconds of those that live."""
        total = 0.0
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def stop(self) -> None:
        """End it, with all that it started."""
        started = self.tree()
        if self.process.poll() is None:
            self.process.terminate()
        _, alive = psutil.wait_procs(started, END_MAX_S)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                started += [one for one in process.children(recursive=True) if one not in started]
                process.kill()
        for process in started:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()
        psutil.wait_procs(started, END_MAX_S)
        shutil.rmtree(self._data, ignore_errors=True)


@contextlib.contextmanager
def running(row: Row, factor: str = ""):
    """A server that has answered once, for a while."""
    server = Running(row, factor)
    try:
        yield server.wait_ready()
    finally:
        server.stop()
