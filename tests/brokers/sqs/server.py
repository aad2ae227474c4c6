"""MotoServer: moto's server as a process of its own; a Gate before it enforces what moto does not, and plants faults."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 60.0
STOP_MAX_S = 20.0


class MotoServer:
    """Started by `start`; all it knows is gone with its process."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-sqs-", dir="/tmp"))
        self.port = free_port()
        self.process = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(self.port)]
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log)
        until(self.answers, START_MAX_S, f"the server answers; its log: {self.log()[-2000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, self.log()[-2000:]
        try:
            return httpx.get(f"{self.endpoint}/moto-api/", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            return False

    def log(self):
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def halt(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_MAX_S)
            self.process = None

    def lose(self):
        """Lose all state, as if every queue had been deleted long ago."""
        assert httpx.post(f"{self.endpoint}/moto-api/reset", timeout=10.0).status_code == 200

    def stop(self):
        try:
            self.halt()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
