"""A real `forebay serve` process for tests: started, asked, killed, and looked for afterwards.

Handlers write to a ledger outside the product (see `apps/`); how often a job ran is counted there.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

from tests.waiting import until

APPS = Path(__file__).parent / "apps"
START_MAX_S = 45.0  # the machine may be busy
WAIT_MAX_S = 45.0  # for whatever a test waits for and does not time
MARK = "E2E_MARK"  # in the environment of everything a server starts
SHORT = {"FOREBAY_LEASE": "2s", "FOREBAY_HEARTBEAT": "0.5s"}
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "EXPIRED"}


class Answer:
    """One HTTP answer: `status`, `headers` (lower case), `body` (bytes), `json`."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Served:
    """One server in a directory of its own. Use as a context manager: nothing outlives it."""

    def __init__(
        self,
        directory,
        app="basic.py",
        *,
        workers=2,
        env=None,
        data="data",
        port=0,
        off=None,
        under=(),
        verb="serve",
    ):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.app = APPS / app
        self.workers = workers
        self.verb = verb  # serve, api or work
        self.extra = dict(env or {})
        self.data = data
        self.asked_port = port
        self.off = off or os.environ.get("E2E_SABOTAGE")  # a protection to switch off, see sabotage.py
        self.mark = uuid.uuid4().hex
        self.ledger_path = self.directory / "ledger"
        self.ledger_path.touch()
        self.log_path = self.directory / "server.log"
        self.under = list(under)  # a command that starts the command
        self.process = None
        self.port = 0
        self.starts = 0

    # -- life ----------------------------------------------------------------------------------------

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        self.end()
        left = self.living()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if kind is not None:
            print(f"--- {self.log_path}\n{self.log[-6000:]}")
        else:
            assert not left, f"the server left processes behind: {left}"

    def start(self, *, ready=True, max_s=START_MAX_S):
        """Start it, wait for its banner and (unless told otherwise) for readiness; return self."""
        self.launch()
        self.port = int(until(lambda: self._banner() or self._ended(), max_s, "the banner"))
        if ready:
            until(lambda: self.is_ready() or self._ended(), max_s, "ready")
        return self

    def launch(self, output=None):
        """Start the process alone. `output` is a descriptor in place of the log."""
        assert self.process is None or self.process.poll() is not None
        self.starts += 1
        env = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        env |= {MARK: self.mark, "E2E_LEDGER": str(self.ledger_path), **self.extra}
        program = [str(Path(__file__).with_name("sabotage.py")), self.off] if self.off else ["-m", "forebay"]
        command = [
            *self.under,
            sys.executable,
            *program,
            self.verb,
            str(self.app),
            "--port",
            str(self.asked_port),
        ]
        command += ["--data", self.data]
        command += [] if self.verb == "api" else ["--workers", str(self.workers)]
        self._log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output or log,
                stderr=output or log,
                start_new_session=True,
            )

    def signal(self, number):
        """Send a signal to the server process alone."""
        self.process.send_signal(number)

    def signal_group(self, number):
        """Send it to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self, max_s):
        """Return the exit code; fail when it does not come in time."""
        try:
            return self.process.wait(max_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server did not end within {max_s} s") from None

    def stop(self, max_s=40.0):
        """SIGTERM and wait; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(max_s)

    def kill(self):
        """kill -9 of the server process alone."""
        self.signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self):
        """Make sure that it is gone, with all it started."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        with contextlib.suppress(AssertionError):
            until(lambda: not self.living(), 20.0, "children gone")

    def living(self):
        """Return the pids of everything alive that this server started, itself included."""
        found = []
        wanted = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if wanted in (entry / "environ").read_bytes() and not _zombie(entry):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def children(self):
        """Return the pids of the children that run handlers."""
        return [w["pid"] for w in self.get("/v1/workers").json["items"] if w["pid"]]

    # -- asking --------------------------------------------------------------------------------------

    def connect(self, timeout=WAIT_MAX_S):
        """Return a connection of its own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, *, timeout=WAIT_MAX_S):
        """One request on a connection of its own. Raises OSError or http.client.HTTPException."""
        with contextlib.closing(self.connect(timeout)) as connection:
            return ask_on(connection, method, path, body, headers)

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def submit(self, task, payload, *, key=None, wait=None, expect=(200, 202), **fields):
        """Submit one job; return its record."""
        headers = {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if wait is not None:
            headers["Prefer"] = f"wait={wait}"
        body = {"task": task, "payload": payload, **fields}
        answer = self.ask("POST", "/v1/jobs", body, headers, timeout=(wait or 0) + WAIT_MAX_S)
        assert answer.status in expect, answer
        return answer.json

    def submit_many(self, lines, expect=(202, 200)):
        """Submit NDJSON; return the verdicts."""
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        answer = self.ask("POST", "/v1/jobs", body, {"Content-Type": "application/x-ndjson"}, timeout=60.0)
        assert answer.status == 200, answer
        verdicts = [json.loads(line) for line in answer.body.splitlines()]
        assert len(verdicts) == len(lines)
        if expect:
            assert all(v["status"] in expect for v in verdicts), [
                v for v in verdicts if v["status"] not in expect
            ][:3]
        return verdicts

    def job(self, job_id):
        answer = self.get(f"/v1/jobs/{job_id}")
        assert answer.status == 200, answer
        return answer.json

    def final(self, job_id, max_s=WAIT_MAX_S):
        """Wait until the job is final; return its record."""
        return until(lambda: _if_final(self.job(job_id)), max_s, f"job {job_id} final")

    def finals(self, ids, max_s=60.0):
        """Wait until all are final; return records by id."""
        left, done = set(ids), {}

        def look():
            for job_id in list(left):
                record = self.job(job_id)
                if record["status"] in FINAL:
                    done[job_id] = record
                    left.discard(job_id)
                else:
                    return False
            return not left

        until(look, max_s, f"all jobs final; {len(left)} left")
        return done

    def state(self, job_id, state, max_s=WAIT_MAX_S):
        """Wait until the job is in this state or status; return its record."""

        def look():
            record = self.job(job_id)
            return record if state in (record["state"], record["status"]) else None

        return until(look, max_s, f"job {job_id} in {state}")

    def is_ready(self):
        try:
            return self.get("/readyz", timeout=2.0).status == 200
        except (OSError, http.client.HTTPException):
            return False

    # -- what happened -------------------------------------------------------------------------------

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def ledger(self):
        """Return the lines of the ledger: (what, job number, attempt, pid, time)."""
        lines = []
        for line in self.ledger_path.read_text().splitlines():
            what, name, attempt, pid, at = line.split()
            lines.append((what, name, int(attempt), int(pid), float(at)))
        return lines

    def runs(self):
        """Return how often each job number was started."""
        counts = defaultdict(int)
        for what, name, *_ in self.ledger():
            if what == "start":
                counts[name] += 1
        return counts

    def started(self, name, count=1, max_s=WAIT_MAX_S):
        """Wait until the job number was started so often."""
        until(lambda: self.runs()[str(name)] >= count, max_s, f"{name} started {count} times")

    def _banner(self):
        text = self.log_path.read_bytes()[self._log_from :].decode(errors="replace")
        found = re.search(r"http://[^ ]*?:(\d+)", text)
        return found and found.group(1)

    def _ended(self):
        code = self.process.poll()
        assert code is None, f"the server ended with {code}:\n{self.log[-3000:]}"


def ask_on(connection, method, path, body=None, headers=None):
    """One request on an open connection."""
    headers = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return Answer(answer.status, answer.getheaders(), answer.read())


def gone(pid):
    """Whether the process is gone (a zombie is)."""
    entry = Path("/proc") / str(pid)
    return not entry.exists() or _zombie(entry)


def timed(action):
    """Return (seconds, value) of the call."""
    began = time.monotonic()
    value = action()
    return time.monotonic() - began, value


def _if_final(record):
    return record if record["status"] in FINAL else None


def _zombie(entry):
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
