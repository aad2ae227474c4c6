"""The order on real processes: a quiet tenant beside a noisy one, and ordering keys through a kill -9."""

import json
from datetime import datetime

import pytest

from tests.e2e.harness import Served
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.timed]

SERVICE_S = 0.1
BURST = 24


def burst(server, tenant, count):
    """Submit `count` naps for a tenant; return their ids."""
    lines = [{"task": "nap", "payload": [f"{tenant}-{n}", SERVICE_S]} for n in range(count)]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    headers = {"Content-Type": "application/x-ndjson", "Forebay-Tenant": tenant}
    answer = server.ask("POST", "/v1/jobs", body, headers, timeout=60.0)
    return [json.loads(line)["job_id"] for line in answer.body.splitlines()]


def waits(server, tenant, ids):
    """Return how long each job waited to start, the shortest first, when all have started."""
    found = {}

    def look():
        for job_id in ids:
            if job_id not in found:
                job = server.get(f"/v1/jobs/{job_id}", headers={"Forebay-Tenant": tenant}).json
                if job["started_at"] is not None:
                    found[job_id] = at(job["started_at"]) - at(job["created_at"])
        return len(found) == len(ids)

    until(look, 60.0, "every job started")
    return sorted(found.values())


def at(text):
    return datetime.fromisoformat(text).timestamp()


def test_a_quiet_tenants_p99_beside_a_hundred_times_as_many_is_at_most_twice_its_own(tmp_path):
    with Served(tmp_path, workers=2) as server:
        burst(server, "warm", 4)
        until(lambda: len([1 for what, *_ in server.ledger() if what == "end"]) >= 4, 20.0, "warm")
        alone = waits(server, "quiet", burst(server, "quiet", BURST))
        noisy = burst(server, "noisy", 100 * BURST)
        server.started("noisy-4")
        beside = waits(server, "quiet", burst(server, "quiet", BURST))
        assert beside[-1] <= 2 * alone[-1], (alone[-1], beside[-1])
        first = server.get(f"/v1/jobs/{noisy[0]}", headers={"Forebay-Tenant": "noisy"})
        assert first.json["status"] == "COMPLETED"


def test_jobs_of_one_ordering_key_run_one_at_a_time_in_order_through_a_kill(tmp_path):
    names = [f"cam-{n}" for n in range(8)]
    with Served(tmp_path, workers=2) as server:
        lines = [{"task": "nap", "payload": [name, 0.2], "ordering_key": "cam"} for name in names]
        ids = [verdict["job_id"] for verdict in server.submit_many(lines)]
        assert server.job(ids[3])["waits_for"] == ids[0]
        server.started("cam-2")
        server.kill()
        server.start()
        server.finals(ids)
        order = [name for what, name, *_ in server.ledger() if what == "start"]
        assert sorted(set(order), key=order.index) == names, order
        spans = {}
        for what, name, _, _, when in server.ledger():
            spans.setdefault(name, {})[what] = float(when)
        ended = [spans[name].get("end", 0.0) for name in names[:-1]]
        began = [spans[name]["start"] for name in names[1:]]
        assert all(before <= after for before, after in zip(ended, began, strict=True))
