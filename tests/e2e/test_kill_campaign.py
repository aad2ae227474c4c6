"""kill -9 of the server and of its children at random moments under mixed load: nothing acknowledged is
lost, nothing ends twice, nothing runs twice that was not disturbed. Seeded; FOREBAY-free environment."""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict

import pytest

from tests.e2e.harness import FINAL, Served, ask_on, gone
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.timed, pytest.mark.slow]
QUICK = os.environ.get("E2E_SABOTAGE") or "quick_restarts"
KILLS = int(os.environ.get("E2E_KILLS", "300"))
SEED = int(os.environ.get("E2E_SEED", "20240611"))
PARENT_SHARE = 0.1
STARTING_MAX_S = 10.0  # on a busy machine an interpreter takes a while to begin
RATE_PER_CLIENT = 45.0  # submissions a second
CLIENTS = 2


class Client(threading.Thread):
    """Submits until told to stop; a submission without an answer is repeated under its key."""

    def __init__(self, server, number, seed):
        super().__init__(daemon=True)
        self.server, self.number, self.chance = server, number, random.Random(seed)
        self.over = threading.Event()
        self.accepted = {}  # name -> (job id, when first acknowledged)
        self.faults = []
        self.repeats = 0
        self._connection = None

    def run(self):
        count = 0
        due = time.monotonic()
        try:
            self._submit(count, due)
        finally:
            self._hang_up()

    def _hang_up(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _submit(self, count, due):
        while not self.over.is_set():
            many = self.chance.random() < 0.15
            items = [self._line(count + n) for n in range(8 if many else 1)]
            count += len(items)
            try:
                self._until_answered(items)
            except Exception as error:
                self.faults.append(repr(error))
                return
            due = max(due, time.monotonic() - 1.0) + len(items) / RATE_PER_CLIENT
            self.over.wait(max(0.0, due - time.monotonic()))

    def _line(self, n):
        name = f"c{self.number}.{n}"
        draw = self.chance.random
        item = {
            "name": name,
            "sleep_s": draw() ** 3 * 0.06,
            "fails": 1 if draw() < 0.04 else 0,
            "pad": "x" * int(draw() ** 4 * 4000),
        }
        line = {
            "task": "Batched" if draw() < 0.5 else "single",
            "payload": item,
            "priority": int(draw() * 10),
            "idempotency_key": name,
        }
        if draw() < 0.1:
            line["ttl"] = 0.5 + draw() * 20
        if draw() < 0.1:
            line["metadata"] = {"n": name}
        return line

    def _until_answered(self, lines):
        ends_at = time.monotonic() + 60.0
        while not self.over.is_set():
            try:
                if len(lines) == 1:
                    answer = self._ask(lines[0], "application/json")
                    verdicts = [(answer.status, answer.json)]
                else:
                    answer = self._ask(lines, "application/x-ndjson")
                    if answer.status == 200:
                        told = [json.loads(line) for line in answer.body.splitlines()]
                        verdicts = [(one["status"], one) for one in told]
                    else:
                        verdicts = [(answer.status, answer.json)]
            except (OSError, http.client.HTTPException, ValueError):
                self._hang_up()
                verdicts = []
            if len(verdicts) == len(lines) and all(status in (200, 202) for status, _ in verdicts):
                for line, (_, told) in zip(lines, verdicts, strict=True):
                    self._acknowledged(line["payload"]["name"], told["job_id"])
                return
            refused = [told for status, told in verdicts if status not in (200, 202, 409, 429, 503)]
            assert not refused, refused[:2]
            # What one partial answer said holds as well.
            if len(verdicts) == len(lines):
                for line, (status, told) in zip(lines, verdicts, strict=True):
                    if status in (200, 202):
                        self._acknowledged(line["payload"]["name"], told["job_id"])
            self.repeats += 1
            assert time.monotonic() < ends_at, "no answer for 60 s"
            self.over.wait(0.05)

    def _acknowledged(self, name, job_id):
        known = self.accepted.setdefault(name, (job_id, time.time()))
        assert known[0] == job_id, f"{name} was two jobs: {known[0]} and {job_id}"

    def _ask(self, body, kind):
        if self._connection is None:
            self._connection = self.server.connect(10.0)
        data = b"".join(
            json.dumps(one).encode() + b"\n" for one in (body if isinstance(body, list) else [body])
        )
        answer = ask_on(self._connection, "POST", "/v1/jobs", data, {"Content-Type": kind})
        if answer.headers.get("connection", "").lower() == "close":
            self._hang_up()
        return answer


class Watch:
    """Polls records; a final one must look the same for ever after."""

    def __init__(self, server, chance):
        self.server, self.chance = server, chance
        self.finals = {}  # job id -> what its final record said
        self.compared = 0
        self._connection = None

    def look(self, job_ids):
        """Look at these; return how many are not final."""
        waiting = 0
        for job_id in job_ids:
            record = self._get(job_id)
            if record is None:
                continue
            if record["status"] not in FINAL:
                assert job_id not in self.finals, (
                    f"{job_id} was {self.finals[job_id]} and is {record['state']}"
                )
                waiting += 1
                continue
            said = tuple(
                json.dumps(record[name])
                for name in ("status", "state", "attempt", "finished_at", "result", "error")
            )
            known = self.finals.setdefault(job_id, said)
            if known is not said:
                self.compared += 1
            assert known == said, f"{job_id} ended twice:\n{known}\n{said}"
        return waiting

    def sample(self, ids, count):
        """Some of those that were final, and some of the newest others."""
        known = self.chance.sample(list(self.finals), min(count, len(self.finals)))
        newest = [one for one in ids[-count * 3 :] if one not in self.finals][:count]
        self.look(known + newest)

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, job_id):
        try:
            if self._connection is None:
                self._connection = self.server.connect(5.0)
            answer = ask_on(self._connection, "GET", f"/v1/jobs/{job_id}")
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        assert answer.status == 200, f"acknowledged {job_id} is {answer}"
        return answer.json


class Campaign:
    def __init__(self, server, seed):
        self.server = server
        self.chance = random.Random(seed)
        self.watch = Watch(server, random.Random(seed + 1))
        self.clients = [Client(server, n, seed + 10 + n) for n in range(CLIENTS)]
        self.kills = Counter()
        self.doomed = {}  # pid -> when it was killed, or its server was
        self.covered = {}  # pid -> when killed, while another replica of its lane was ready
        self.server_kills = []  # when
        self.orphans_s = []

    def ids(self):
        return [job_id for client in self.clients for job_id, _ in list(client.accepted.values())]

    def check_clients(self):
        faults = [fault for client in self.clients for fault in client.faults]
        assert not faults, faults

    def pause(self, seconds):
        ends_at = time.monotonic() + seconds
        until(lambda: time.monotonic() >= ends_at, seconds + 1.0, "pause")

    def kill_server(self):
        self.watch.sample(self.ids(), 15)
        children = [pid for pid in self.server.living() if pid != self.server.process.pid]
        at = time.time()
        self.server.kill()
        began = time.monotonic()
        for pid in children:
            self.doomed[pid] = at
        self.kills["server"] += 1
        self.server_kills.append(at)
        until(lambda: all(gone(pid) for pid in children), 1.0, "children dead after their parent's kill -9")
        self.orphans_s.append(time.monotonic() - began)
        # One that was just being started has not yet tied its life to the parent; it looks, and leaves.
        self.doomed |= dict.fromkeys(self.server.living(), at)
        until(lambda: not self.server.living(), STARTING_MAX_S, "starting children gone too")
        if self.chance.random() < 0.15:  # again while it starts
            self.server.launch()
            self.pause(self.chance.random() * 2.0)
            early = self.server.living()
            self.doomed |= dict.fromkeys(early, time.time())
            self.server.kill()
            self.kills["server starting"] += 1
            until(lambda: not self.server.living(), STARTING_MAX_S, "children of a starting server dead")
        self.server.start(ready=self.chance.random() < 0.7)
        self.watch.sample(self.ids(), 15)

    def kill_children(self):
        try:
            workers = [w for w in self.server.get("/v1/workers").json["items"] if w["pid"]]
        except (OSError, http.client.HTTPException):
            return
        ready = [w for w in workers if w["state"] == "ready"]
        if self.chance.random() < 0.7:  # mostly those that have work in them
            workers = ready
        if not workers:
            return
        victims = self.chance.sample(workers, 2 if len(workers) > 1 and self.chance.random() < 0.1 else 1)
        dead = {victim["pid"] for victim in victims}
        for victim in victims:
            others = [w for w in ready if w["task"] == victim["task"] and w["pid"] not in dead]
            at = time.time()
            self.doomed[victim["pid"]] = at
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim["pid"], signal.SIGKILL)
                self.kills[f"child {victim['state']}"] += 1
                if others and len(victims) == 1:
                    self.covered[victim["pid"]] = at

    def run(self, kills):
        for client in self.clients:
            client.start()
        told_at = 50
        while sum(self.kills.values()) < kills:
            self.pause(0.03 + self.chance.random() * 0.45)
            self.check_clients()
            if sum(self.kills.values()) >= told_at:
                told_at += 50
                print(f"{sum(self.kills.values())} kills, {len(self.ids())} acknowledged", flush=True)
            if self.chance.random() < PARENT_SHARE:
                self.kill_server()
            else:
                self.kill_children()
        for client in self.clients:
            client.over.set()
        for client in self.clients:
            client.join(30.0)
        self.check_clients()

    def finish(self):
        """Everything ends, and all is as it was said to be."""
        ids = self.ids()
        until(lambda: self.server.is_ready(), 45.0, "ready at the end")
        left = list(ids)

        def look():
            self.watch.look(left[:200])
            left[:] = [one for one in left if one not in self.watch.finals]
            return not left

        until(look, 120.0, f"every one of {len(ids)} acknowledged jobs final")
        self.server.kill()
        self.server.start()
        self.watch.look(ids)
        assert len(self.watch.finals) == len(set(ids))
        return ids


def reruns(lines, doomed):
    """Return (unexplained second runs, recovery times by pid): a job may run again only when the run
    before failed, or its process was killed."""
    by_name = defaultdict(list)
    for line in lines:
        by_name[line[1]].append(line)
    unexplained, recovered = [], defaultdict(list)
    for name, steps in by_name.items():
        steps.sort(key=lambda step: step[4])
        starts = [step for step in steps if step[0] == "start"]
        for before, after in zip(starts, starts[1:], strict=False):
            failed = any(
                step[0] == "fail" and step[3] == before[3] and before[4] <= step[4] <= after[4]
                for step in steps
            )
            if failed:
                continue
            if before[3] not in doomed:
                unexplained.append((name, before, after))
            elif before[4] <= doomed[before[3]]:
                recovered[before[3]].append(after[4] - doomed[before[3]])
    return unexplained, recovered


def told(name, times_s):
    times = sorted(times_s)
    if not times:
        return f"{name}: none"
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    return f"{name}: n {len(times)}, p50 {times[len(times) // 2]:.3f}, p99 {p99:.3f}, max {times[-1]:.3f} s"


@pytest.mark.timeout(900)
def test_three_hundred_kills_lose_nothing_and_end_nothing_twice(tmp_path):
    began = time.monotonic()
    with Served(tmp_path, "campaign.py", workers=2, off=QUICK, port=free_port()) as server:
        campaign = Campaign(server, SEED)
        try:
            campaign.run(KILLS)
            ids = campaign.finish()
        finally:
            for client in campaign.clients:
                client.over.set()
                client.join(15.0)
            campaign.watch.close()
        lines = server.ledger()
        server.stop()
    unexplained, recovered = reruns(lines, campaign.doomed)
    # The first of its jobs: the others may stand behind more urgent ones in a queue that has grown meanwhile.
    by_child = [min(recovered[pid]) for pid in campaign.covered if recovered.get(pid)]
    by_server = [
        min(times)
        for at in campaign.server_kills
        if (times := [t for pid, all_ in recovered.items() if campaign.doomed[pid] == at for t in all_])
    ]
    states = Counter(json.loads(said[0]) for said in campaign.watch.finals.values())
    print(f"seed {SEED}: {sum(campaign.kills.values())} kills {dict(campaign.kills)}")
    print(f"{len(ids)} jobs acknowledged, {sum(c.repeats for c in campaign.clients)} submissions repeated")
    print(f"ended: {dict(states)}; compared again {campaign.watch.compared} times; lost 0, doubly final 0")
    print(
        f"runs: {sum(1 for line in lines if line[0] == 'start')}, unexplained second runs {len(unexplained)}"
    )
    print(told("child killed -> a job of its runs elsewhere", by_child))
    print(told("server killed -> restarted -> a job of its runs again", by_server))
    print(told("server killed -> its children dead", campaign.orphans_s))
    print(f"took {time.monotonic() - began:.0f} s")
    assert not unexplained, unexplained[:3]
    assert set(states) <= {"COMPLETED", "EXPIRED"}, states
    assert by_child, "no kill met a running job"
