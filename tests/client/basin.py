"""Basin: a small stand-in for the server, in one thread, that answers as the contract says and misbehaves
when told to. Plain asyncio, so that it can drop an answer at any point."""

import asyncio
import contextlib
import json
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit


class Basin:
    """`with Basin() as basin:` gives `basin.url`; everything it saw is in `jobs` and `requests`."""

    def __init__(self, port=0):
        self.port = port
        self.jobs = {}  # job_id -> view
        self.keys = {}  # idempotency key -> job_id
        self.bodies = {}  # idempotency key -> payload and task
        self.requests = []  # (method, path, at)
        self.scripts = []  # answers for the next requests: (status, headers, problem) or "drop", "cut" or "dribble"
        self.refuse_lines = 0  # so many lines get 429
        self.line_retry_after_s = 0.05
        self.line_code = "queue_full"
        self.run_after_polls = 0  # a job ends at this poll
        self.accept_delay_s = 0.0
        self.outcome = lambda view: ("COMPLETED", view["_payload"], None)
        self.result_answer = None
        self.body_max = 1 << 20
        self.letters = {}
        self.quarantine = {}
        self.paused = False
        self.polls = {}
        self.reports = []  # of progress: one per poll, before the job ends

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30)
        return self

    def __exit__(self, *exc):
        self.stop()

    def stop(self):
        """End it; connections are cut."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def paths(self, method, prefix="/v1/jobs"):
        return [path for m, path, _ in self.requests if m == method and path.startswith(prefix)]

    def _main(self, ready):
        asyncio.run(self._serve(ready))

    async def _serve(self, ready):
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._tasks = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=1 << 24)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(asyncio.current_task())
            with contextlib.suppress(Exception):
                writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (row.partition(":") for row in head[1:] if row)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        parts = urlsplit(target)
        self.requests.append((method, target, time.monotonic()))
        query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
        script = self.scripts.pop(0) if self.scripts else None
        if script == "refuse-connection":
            return False
        if isinstance(script, tuple):
            status, extra, problem = script
            return await self._answer(writer, status, problem, extra)
        if self.accept_delay_s:
            await asyncio.sleep(self.accept_delay_s)
        status, value, extra = self._do(method, unquote(parts.path), query, headers, body)
        if script == "drop":
            return False
        return await self._answer(
            writer, status, value, extra, cut=script == "cut", dribble=script == "dribble"
        )

    async def _answer(self, writer, status, value, extra, cut=False, dribble=False):
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        headers = {"content-type": kind, "content-length": str(len(raw)), **extra}
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode("latin-1"))
        for at in range(len(raw) if dribble else 0):
            writer.write(raw[at : at + 1])
            await asyncio.sleep(0.05)
        writer.write(b"" if dribble else raw[: len(raw) // 2] if cut else raw)
        await writer.drain()
        return not cut

    def _do(self, method, path, query, headers, body):
        parts = path.strip("/").split("/")[1:]
        if parts[0] in ("queues", "tasks", "workers", "nodes", "streams", "alerts") and query:
            return *problem(422, "invalid", detail=f"unknown query parameter: {min(query)}"), {}
        if path == "/v1/jobs" and method == "POST":
            if len(body) > self.body_max:
                return *problem(413, "too_large", limit=self.body_max), {}
            if "ndjson" in headers.get("content-type", ""):
                lines = [self._line(n, row) for n, row in enumerate(body.splitlines(), 1)]
                return 200, b"".join(json.dumps(v).encode() + b"\n" for v in lines), {}
            status, view = self._store(json.loads(body), headers.get("idempotency-key"))
            if status == 202 and "prefer" in headers:
                self._end(view)
                status = 200
            return status, public(view), {}
        if path == "/v1/jobs":
            return *self._list(list(self.jobs.values()), query), {}
        if parts[0] == "jobs":
            return self._job(method, parts[1], parts[2:], query)
        if parts[0] == "dead-letters":
            return *self._letter(method, parts[1:], query), {}
        if parts[0] == "quarantine":
            if method == "GET":
                return 200, {"items": list(self.quarantine.values()), "next_cursor": None}, {}
            row = self.quarantine.pop(parts[1], None)
            return (200, row, {}) if row else (*problem(404, "not_found", detail="no such input"), {})
        if parts[0] == "queues":
            row = {"task": "echo", "depth": 3, "running": 1, "capacity": 100, "paused": self.paused,
                   "rates": {"done_per_s": 2.0}, "oldest_age_s": 4.0, "bytes": 30}  # fmt: skip
            if len(parts) > 1 and parts[1] != "echo":
                return *problem(404, "unknown_task"), {}
            if len(parts) > 2:
                self.paused = parts[2] == "pause"
                row["paused"] = self.paused
            return 200, row if len(parts) > 1 else {"items": [row], "next_cursor": None}, {}
        if parts[0] in ("workers", "tasks", "nodes", "streams", "alerts"):
            name = {
                "streams": {
                    "pipeline": "p",
                    "stream": "door",
                    "depth": 2,
                    "served": 100,
                    "drop_ratio": 0.002,
                    "alert": True,
                    "degraded_ratio": 0.25,
                    "p50_s": 0.02,
                    "p95_s": 0.1,
                    "p99_s": None,
                },
                "alerts": {
                    "alert": "queue_deep",
                    "severity": "critical",
                    "subject": "echo",
                    "says": "echo: more than 800 have been waiting for 30 s \x1b[31m",
                    "look": "forebay top",
                },
                "workers": {"worker": "echo/0", "task": "echo", "state": "ready"},
                "tasks": {"task": "echo"},
                "nodes": {"node": "n-1", "host": "n", "state": "idle", "deletion_cost": -7},
            }
            return 200, {"items": [name[parts[0]]], "next_cursor": None}, {}
        return *problem(404, "not_found"), {}

    def _line(self, number, row):
        try:
            asked = json.loads(row)
        except ValueError:
            return {"line": number, **problem(400, "malformed")[1]}
        if self.refuse_lines > 0:
            self.refuse_lines -= 1
            return {"line": number, **problem(429, self.line_code, retry_after_s=self.line_retry_after_s)[1]}
        status, view = self._store(asked, asked.get("idempotency_key"))
        if status >= 400:
            return {"line": number, **view}
        return {"line": number, "status": 202, "job_id": view["job_id"]}

    def _store(self, asked, key):
        if asked["task"] == "nope":
            return problem(404, "unknown_task", detail="no task \u001b[31mnope\u001b[0m here")
        if key in self.keys:
            if self.bodies[key] != (asked["task"], asked["payload"]):
                return problem(422, "idempotency_conflict")
            return 202, self.jobs[self.keys[key]]
        job_id = f"job-{len(self.jobs):06d}"
        view = {
            "job_id": job_id, "task": asked["task"], "status": "PENDING", "state": "queued",
            "result": None, "error": None, "position": 12, "attempt": 0, "progress": None,
            "eta": {"p50_s": 41.0, "p90_s": 63.0}, "metadata": asked.get("metadata") or {},
            "created_at": "2026-01-01T00:00:00Z", "_payload": asked["payload"], "_asked": asked,
        }  # fmt: skip
        self.jobs[job_id] = view
        if key:
            self.keys[key] = job_id
            self.bodies[key] = (asked["task"], asked["payload"])
        return 202, view

    def _job(self, method, job_id, tail, query):
        view = self.jobs.get(job_id)
        if view is None:
            return *problem(404, "not_found", detail=f"there is no job {job_id}"), {}
        if tail == ["result"]:
            if self.result_answer is not None:
                return self.result_answer
            return 200, view["result"], {}
        if method == "DELETE":
            if view["status"] == "COMPLETED":
                return *problem(409, "state_conflict"), {"x-should-retry": "false"}
            view.update(status="CANCELLED", state="cancelled")
        else:
            self.polls[job_id] = self.polls.get(job_id, 0) + 1
            if self.reports and "wait" in query and view["status"] != "COMPLETED":
                view.update(status="PROCESSING", state="running", position=None, progress=self.reports.pop(0))
                return 200, public(view), {}
            if "wait" in query and self.polls[job_id] > self.run_after_polls:
                self._end(view)
        return 200, public(view), {}

    def _end(self, view):
        if view["status"] in ("PENDING", "PROCESSING"):
            status, result, error = self.outcome(view)
            state = {"COMPLETED": "succeeded", "FAILED": "dead"}.get(status, status.lower())
            view.update(status=status, state=state, result=result, error=error, position=None, eta=None)

    def _list(self, views, query):
        start, limit = int(query.get("cursor", 0)), int(query["limit"])
        page = [public(v) for v in views][::-1][start : start + limit]
        more = str(start + limit) if start + limit < len(views) else None
        return 200, {"items": page, "next_cursor": more}

    def _letter(self, method, parts, query):
        if not parts:
            return self._list(list(self.letters.values()), query)
        letter = self.letters.get(parts[0])
        if letter is None:
            return problem(404, "not_found")
        if method == "DELETE":
            del self.letters[parts[0]]
            return 200, {}
        if parts[1:] == ["redrive"]:
            before, letter["redriven_as"] = letter.get("redriven_as"), f"new-{parts[0]}"
            replayed = {"replayed": True} if before else {}
            return 200, {"job_id": parts[0], "redriven_as": letter["redriven_as"], **replayed}
        return 200, letter


def problem(status, code, **more):
    return status, {"type": "about:blank", "title": code, "status": status, "code": code, **more}


def public(view):
    return {name: value for name, value in view.items() if not name.startswith("_")}
