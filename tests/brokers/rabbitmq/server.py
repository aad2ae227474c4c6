"""RabbitServer: a real server of its own in a directory of its own, on free ports, with an epmd of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.waiting import until

START_MAX_S = 90.0
STOP_MAX_S = 20.0
BINARIES = Path("/usr/lib/rabbitmq/bin")
SETTINGS = {
    "log.file.level": "warning",
    "log.console": "false",
    "vm_memory_high_watermark.relative": "0.8",
    "disk_free_limit.absolute": "1MB",
    "collect_statistics_interval": "1000",
}


class RabbitServer:
    """Started by `start`; `stop` ends it and removes everything."""

    def __init__(self, **settings):
        found = BINARIES if BINARIES.is_dir() else Path(shutil.which("rabbitmq-server") or "/").parent
        assert (found / "rabbitmq-server").exists(), (
            "there is no RabbitMQ here: apt-get install rabbitmq-server"
        )
        self.binaries = found
        self.root = Path(tempfile.mkdtemp(prefix="forebay-rabbit-", dir="/tmp"))
        self.port = free_port()
        self.settings = settings
        self.process = None
        self.user = None
        if os.getuid() == 0:
            self.user = pwd.getpwnam("rabbitmq")
            os.chown(self.root, self.user.pw_uid, self.user.pw_gid)
        self.epmd_port = free_port()
        self.env = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.root),
            "RABBITMQ_NODENAME": f"forebay{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.root / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.root / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.root / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.root / "plugins"),
            "RABBITMQ_PID_FILE": str(self.root / "pid"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
        }

    def url(self, vhost="", user="", port=None, **more):
        query = "&".join(f"{name}={value}" for name, value in more.items())
        return f"amqp://{user}127.0.0.1:{port or self.port}/{vhost}{'?' if query else ''}{query}"

    def start(self):
        lines = [f"listeners.tcp.default = 127.0.0.1:{self.port}"]
        lines += [f"{name} = {value}" for name, value in {**SETTINGS, **self.settings}.items()]
        (self.root / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.root / "plugins").write_text("[].\n")
        with open(self.root / "out", "ab") as out:
            self.process = subprocess.Popen(
                [str(self.binaries / "rabbitmq-server")],
                cwd=self.root,
                env=self.env,
                stdout=out,
                stderr=out,
                start_new_session=True,
                **self._demoted(),
            )
        until(self.answers, START_MAX_S, f"the server answers; it said: {self.said()[-2000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, self.said()[-2000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
            probe.settimeout(1.0)
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return len(probe.recv(8)) == 8
        return False

    def said(self):
        path = self.root / "out"
        return path.read_text(errors="replace") if path.exists() else ""

    def ctl(self, *command):
        return subprocess.run(
            [str(self.binaries / "rabbitmqctl"), *command],
            cwd=self.root,
            env=self.env,
            check=True,
            capture_output=True,
            text=True,
            timeout=START_MAX_S,
            **self._demoted(),
        ).stdout

    def halt(self, how=signal.SIGKILL):
        """End the server where it stands; its epmd stays."""
        if self.process is None:
            return
        every = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        beams = [one for one in every[1:] if "beam" in one.name()]
        for one in beams or every[:1]:
            one.send_signal(how)
        self.process.wait(STOP_MAX_S)
        psutil.wait_procs(every[1:], timeout=STOP_MAX_S)
        self.process = None

    def stop(self):
        try:
            self.halt()
            self._end_epmd()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def _end_epmd(self):
        """It outlives its server; it is known by the port that was drawn here."""
        for one in psutil.process_iter(["name"]):
            with contextlib.suppress(psutil.Error):
                if one.info["name"] == "epmd" and one.environ().get("ERL_EPMD_PORT") == str(self.epmd_port):
                    one.kill()

    def _demoted(self):
        if self.user is None:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
