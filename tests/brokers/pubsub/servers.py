"""Emulator and Fake: a Pub/Sub in a process of its own; what it holds ends with it."""

import glob
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.ports import free_port
from tests.waiting import until

JARS = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
START_MAX_S = 90.0


class Server:
    def __init__(self):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.root = Path(tempfile.mkdtemp(prefix="forebay-pubsub-", dir="/tmp"))
        self.process = None

    def start(self):
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(self.command(), cwd=self.root, stdout=log, stderr=log)
        until(self.answers, START_MAX_S, "the service answers")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.root / "log").read_text(errors="replace")[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def halt(self):
        """End it where it stands; what it held is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None

    def stop(self):
        self.halt()
        shutil.rmtree(self.root, ignore_errors=True)


class Fake(Server):
    name = "fake"

    def command(self):
        return [sys.executable, Path(__file__).with_name("fake_service.py"), str(self.port)]


class Emulator(Server):
    name = "emulator"

    def command(self):
        return ["java", "-Xmx256m", "-jar", emulator_jar(), "--host=127.0.0.1", f"--port={self.port}"]


def emulator_jar():
    """Return the emulator of the Google Cloud SDK, None where it or Java is not installed."""
    gcloud = shutil.which("gcloud")
    roots = ["/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", "/google-cloud-sdk"]
    if gcloud is not None:
        roots.insert(0, str(Path(gcloud).resolve().parents[1]))
    found = [jar for root in roots for jar in sorted(glob.glob(f"{root}/{JARS}"))]
    return found[-1] if found and shutil.which("java") else None


def kinds():
    """Return what the tests run on: the emulator where there is one, and the fake anywhere."""
    return [Fake, *([Emulator] if emulator_jar() else [])]
