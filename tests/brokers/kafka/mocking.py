"""Mock: a cluster of two brokers in a process of its own, whose faults a test commands."""

import json
import subprocess
import sys
from pathlib import Path


class Mock:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("mock_cluster.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.servers = self.process.stdout.readline().strip()
        assert self.servers, "the mock cluster did not start"

    def url(self, **more):
        more = {"make": "no", **more}  # it makes topics by itself, and cannot be asked to
        return f"kafka://{self.servers}?" + "&".join(f"{key}={value}" for key, value in more.items())

    def do(self, verb, *numbers):
        self.process.stdin.write(json.dumps([verb, *numbers]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "done", verb

    def stop(self):
        self.process.kill()
        self.process.wait(20)
        self.process.stdin.close()
        self.process.stdout.close()
