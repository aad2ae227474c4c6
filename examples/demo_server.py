"""One `forebay serve` for the demo: started on a free port, stopped by SIGTERM, never left behind."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

APP = Path(__file__).with_name("demo_app.py")
READY_WAIT_MAX_S = 180.0  # two processes load two networks each
GRACE_S = 20
STOP_WAIT_MAX_S = GRACE_S + 30.0
LAST_CHILD_S = 10.0  # for worker processes whose server has gone
LOOK_EVERY_S = 0.05
_URL = re.compile(r"http://[0-9.]+:[0-9]+")


class DemoError(Exception):
    """Something the demo stands on did not work; one sentence."""


class DemoServer:
    """A server with a data directory of its own. As a context manager it ends with the block.

    It lives in a session of its own: a Ctrl-C in the terminal reaches the demo alone, which then
    stops the server as anybody would.
    """

    def __init__(self, *, workers: int, queue_max: int) -> None:
        self.workers, self.queue_max = workers, queue_max
        self.home = Path(tempfile.mkdtemp(prefix="forebay-demo-"))
        self.log_path = self.home / "server.log"
        self.url = ""
        self.kept = False
        self.clean = False  # whether it ended by itself, with code 0, and nothing of it is left
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []  # its worker processes when it was told to stop

    def __enter__(self) -> Self:
        try:
            self._start()
            self._wait_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.kept:
            self._end()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _start(self) -> None:
        command = [sys.executable, "-m", "forebay", "serve", str(APP), "--port", "0"]
        command += ["--workers", str(self.workers), "--queue-max", str(self.queue_max)]
        command += ["--data", str(self.home / "data"), "--grace", f"{GRACE_S}s"]
        # One thread for each worker: two processes that fight for the same cores read no faster.
        env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        env["OMP_NUM_THREADS"] = "1"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.home,  # where no forebay.toml is
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_ready(self) -> None:
        ends_at = time.monotonic() + READY_WAIT_MAX_S
        while True:
            self.url = self.url or self._banner()
            if self.url and self._is_ready():
                return
            if self._process is None or self._process.poll() is not None:
                raise DemoError(f"the server did not start:\n{self.log_tail()}")
            if time.monotonic() > ends_at:
                raise DemoError(f"the server was not ready in {READY_WAIT_MAX_S:g} s:\n{self.log_tail()}")
            time.sleep(LOOK_EVERY_S)

    def _banner(self) -> str:
        found = _URL.search(self.log_path.read_text(errors="replace"))
        return found[0] if found else ""

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            return False

    def log_tail(self, lines: int = 12) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of one Prometheus counter over every series that has these labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=10.0).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [row for row in text.splitlines() if row.startswith((f"{name}{{", f"{name} "))]
        return sum(float(row.split()[-1]) for row in rows if all(pair in row for pair in wanted))

    # -- the end -----------------------------------------------------------------------------------

    def keep(self) -> None:
        """Leave it up when the block ends."""
        self.kept = True

    def stop(self) -> tuple[int | None, float]:
        """SIGTERM and wait; returns the exit code, None when it did not end, and the seconds it took."""
        assert self._process is not None
        self._family = self._living()
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code: int | None = self._process.wait(STOP_WAIT_MAX_S)
        except subprocess.TimeoutExpired:
            code = None
        took_s = time.monotonic() - began
        _, left = psutil.wait_procs(self._family, timeout=LAST_CHILD_S)
        self.clean = code == 0 and not left
        return code, took_s

    def _end(self) -> None:
        """Whatever happened: nothing of it runs after this, and its directory is gone."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: at once, then
                    self.stop()
            for one in [*self._family, *self._living()]:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            if process.poll() is None:
                process.kill()
            process.wait(LAST_CHILD_S)
        shutil.rmtree(self.home, ignore_errors=True)

    def _living(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            return []
