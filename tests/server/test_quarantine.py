"""Copies of an input that killed workers are refused at the door, with the reason and the way out."""

import json

from forebay.core import settle
from forebay.core.job import JobError
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from tests.server.doors import admissions, call, finish, lease

POLICY = SettlePolicy(deaths_max=1, quarantine_deaths=2)
TASKS = {
    "echo": TaskSpec(name="echo", settle=POLICY),
    "same": TaskSpec(name="same", settle=POLICY, coalesce=True),
    "brave": TaskSpec(name="brave", settle=SettlePolicy(deaths_max=1, quarantine_deaths=0)),
}
DEADLY = {"page": 1}
NAMED = {name: f"fb_{name:0<40}" for name in ("a", "b", "root")}
OWN = ["submit", "read", "cancel"]
KEYS = json.dumps(
    {NAMED[name]: {"tenant": name, "scopes": OWN} for name in "ab"}
    | {NAMED["root"]: {"tenant": "ops", "scopes": ["admin"]}}
)


def bearer(name):
    return {"authorization": f"Bearer {NAMED[name]}"}


async def slay(caller, payload=DEADLY, times=2, task="echo", **options):
    """Submit an input and have it kill its worker, so many times; return the ids."""
    ids = []
    for _ in range(times):
        ids.append((await caller.one(task, payload, **options))["job_id"])
        (held,) = await lease(caller.front, task)
        await die(caller, held)
    return ids


async def die(caller, held):
    now = caller.front.clock.now()
    error = JobError("worker_lost", "SIGSEGV", "signal", held.attempt)
    policy = TASKS[held.job.task].settle
    death = settle.die(held, error=error, policy=policy, now=now, jitter=0.0)
    assert await caller.front.broker.commit([death], now=now) == [True]


def test_a_copy_of_a_deadly_input_is_refused_with_the_reason():
    async def run(caller):
        ids = await slay(caller)
        refused = await caller.submit(payload=DEADLY)
        assert refused.status_code == 422, refused.text
        told = refused.json()
        assert (told["code"], told["deaths"], told["job_id"]) == ("quarantined", 2, ids[1])
        assert told["quarantined_at"] and told["forgotten_at"] > told["last_death_at"]
        for part in (ids[1], "killed 2 workers", f"DELETE /v1/quarantine/{told['fingerprint']}"):
            assert part in told["detail"], part
        assert "retry-after" not in refused.headers
        for other in ({"page": 2}, {"page": 1, "more": 0}):
            assert (await caller.submit(payload=other)).status_code == 202
        assert (await admissions(caller))["refused", "quarantined"] == 1
        assert 'inference_quarantined_inputs{task="echo"} 1.0' in (await caller.get("/metrics")).text

    call(run, tasks=TASKS)


def test_before_the_last_death_and_for_others_everything_is_taken():
    async def run(caller):
        await slay(caller, times=1)
        await slay(caller, times=1, headers={"forebay-tenant": "a"})
        for task, head in (("echo", {}), ("echo", {"forebay-tenant": "a"}), ("same", {}), ("brave", {})):
            assert (await caller.submit(task, DEADLY, headers=head)).status_code == 202, (task, head)
        await slay(caller, task="same")
        assert (await caller.submit("same", DEADLY, headers={"forebay-tenant": "a"})).status_code == 202

    call(run, tasks=TASKS)


def test_a_task_that_spares_nobody_is_never_refused_anything():
    async def run(caller):
        await slay(caller, task="brave", times=4)
        assert (await caller.submit("brave", DEADLY)).status_code == 202
        assert (await caller.get("/v1/quarantine")).json()["items"] == []

    call(run, tasks=TASKS)


def test_each_line_of_many_stands_alone():
    async def run(caller):
        await slay(caller)
        lines = [
            {"task": "echo", "payload": payload} for payload in (1, DEADLY, 2, DEADLY | {"x": 1}, DEADLY)
        ]
        lines[4]["idempotency_key"] = "new"
        _, verdicts = await caller.bulk(*lines, {"task": "brave", "payload": DEADLY})
        assert [verdict["status"] for verdict in verdicts] == [202, 422, 202, 202, 422, 202]
        assert {verdict["code"] for verdict in verdicts if "code" in verdict} == {"quarantined"}
        assert verdicts[1]["line"] == 2 and verdicts[1]["fingerprint"] == verdicts[4]["fingerprint"]
        assert (await admissions(caller))["refused", "quarantined"] == 2

    call(run, tasks=TASKS)


def test_a_repeat_of_what_was_accepted_before_is_answered_still():
    async def run(caller):
        key = {"idempotency-key": "k"}
        first, _ = await slay(caller, headers=key, times=1), await slay(caller, times=1)
        again = await caller.submit(payload=DEADLY, headers=key)
        assert (again.status_code, again.json()["job_id"]) == (200, first[0]), again.text
        assert again.headers["idempotency-replayed"] == "true"
        line = {"task": "echo", "payload": DEADLY, "idempotency_key": "k"}
        _, (verdict,) = await caller.bulk(line)
        assert verdict == {"line": 1, "status": 200, "job_id": first[0], "replayed": True}
        fresh = await caller.submit(payload=DEADLY, headers={"idempotency-key": "other"})
        assert fresh.status_code == 422 and fresh.json()["code"] == "quarantined"

    call(run, tasks=TASKS)


def test_nobody_joins_work_that_is_in_quarantine():
    async def run(caller):
        await slay(caller, task="same", times=1)
        twin = await caller.one("same", DEADLY)
        joined = await caller.submit("same", DEADLY)
        assert joined.json()["job_id"] == twin["job_id"]
        (held,) = await lease(caller.front, "same")
        await die(caller, held)
        assert (await caller.submit("same", DEADLY)).json()["code"] == "quarantined"

    call(run, tasks=TASKS)


def test_a_redrive_of_a_deadly_input_is_refused_unless_it_is_edited_or_forced():
    async def run(caller):
        first, last = await slay(caller)
        path = f"/v1/dead-letters/{first}"
        refused = await caller.post(path + "/redrive")
        assert (refused.status_code, refused.json()["code"]) == (422, "quarantined")
        assert refused.json()["job_id"] == last
        many = (await caller.post("/v1/dead-letters/redrive", json={"ids": [first, last]})).json()
        assert many["redriven"] == 0 and {item["code"] for item in many["items"]} == {"quarantined"}
        await caller.patch(path, json={"payload": {"page": 2}})
        made = (await caller.post(path + "/redrive")).json()["redriven_as"]
        assert json.loads((await lease(caller.front))[0].job.payload) == {"page": 2} and made
        await caller.patch(f"/v1/dead-letters/{last}", json={"payload": DEADLY})
        assert (await caller.post(f"/v1/dead-letters/{last}/redrive")).status_code == 422
        forced = await caller.post(f"/v1/dead-letters/{last}/redrive?force=1")
        assert forced.status_code == 200 and forced.json()["redriven_as"]
        assert (await caller.submit(payload=DEADLY)).status_code == 422, "the force was for that one"
        wrong = await caller.post(path + "/redrive?force=yes")
        assert wrong.status_code == 422 and "force" in wrong.json()["detail"]

    call(run, tasks=TASKS)


def test_many_are_redriven_by_force():
    async def run(caller):
        ids = await slay(caller)
        ask = {"task": "echo", "force": True}
        many = (await caller.post("/v1/dead-letters/redrive", json=ask)).json()
        assert many["redriven"] == 2 and {item["job_id"] for item in many["items"]} == set(ids)

    call(run, tasks=TASKS)


def test_a_released_input_is_taken_again():
    async def run(caller):
        await slay(caller)
        (row,) = (await caller.get("/v1/quarantine")).json()["items"]
        assert (row["task"], row["version"], row["deaths"], row["tenant"]) == ("echo", "1", 2, "")
        assert (await caller.get("/v1/quarantine?task=same")).json() == {"items": [], "next_cursor": None}
        assert (await caller.get("/v1/quarantine?task=nope")).status_code == 404
        path = f"/v1/quarantine/{row['fingerprint']}"
        released = await caller.delete(path)
        assert (released.status_code, released.json()) == (200, row)
        assert (await caller.submit(payload=DEADLY)).status_code == 202
        for gone in (path, "/v1/quarantine/xyz", "/v1/quarantine/" + "0" * 32):
            assert (await caller.delete(gone)).status_code == 404

    call(run, tasks=TASKS)


def test_the_list_has_pages():
    async def run(caller):
        for page in range(5):
            await slay(caller, payload=page)
        found, cursor = [], None
        while cursor is not None or not found:
            query = "" if cursor is None else f"&cursor={cursor}"
            answer = (await caller.get(f"/v1/quarantine?limit=2{query}")).json()
            found += [row["fingerprint"] for row in answer["items"]]
            cursor = answer["next_cursor"]
        assert len(found) == 5 and found == sorted(set(found))
        for wrong in ("cursor=x", "limit=0", "page=2"):
            assert (await caller.get(f"/v1/quarantine?{wrong}")).status_code == 422, wrong

    call(run, tasks=TASKS)


def test_a_tenant_sees_its_own_and_only_an_admin_lets_go():
    async def run(caller):
        first, _ = await slay(caller, headers=bearer("a"))
        (row,) = (await caller.get("/v1/quarantine", headers=bearer("a"))).json()["items"]
        assert row["tenant"] == "a"
        assert (await caller.get("/v1/quarantine", headers=bearer("b"))).json()["items"] == []
        assert (await caller.submit(payload=DEADLY, headers=bearer("b"))).status_code == 202
        again = f"/v1/dead-letters/{first}/redrive"
        assert (await caller.post(again, headers=bearer("a"))).status_code == 422
        for name in ("a", "b"):
            path = f"/v1/quarantine/{row['fingerprint']}"
            assert (await caller.delete(path, headers=bearer(name))).status_code == 403
            assert (await caller.post(f"{again}?force=1", headers=bearer(name))).status_code in {403, 404}
            many = {"ids": [first], "force": True}
            refused = await caller.post("/v1/dead-letters/redrive", json=many, headers=bearer(name))
            assert refused.status_code == 403 and "admin" in refused.json()["detail"]
        as_b = bearer("root") | {"forebay-tenant": "b"}
        assert (await caller.delete(path, headers=as_b)).status_code == 404
        assert (await caller.post(f"{again}?force=1", headers=bearer("root"))).status_code == 200
        assert (await caller.delete(path, headers=bearer("root"))).status_code == 200
        assert (await caller.submit(payload=DEADLY, headers=bearer("a"))).status_code == 202

    call(run, tasks=TASKS, keys=KEYS)


def test_who_is_erased_leaves_no_deadly_input():
    async def run(caller):
        await slay(caller, headers={"forebay-tenant": "a"})
        await slay(caller, headers={"forebay-tenant": "b"}, metadata={"who": "x"})
        await caller.post("/v1/erase", json={"tenant": "a"})
        rows = (await caller.get("/v1/quarantine")).json()["items"]
        assert [row["tenant"] for row in rows] == ["b"]
        await caller.post("/v1/erase", json={"metadata": {"who": "x"}})
        assert (await caller.get("/v1/quarantine")).json()["items"] == []

    call(run, tasks=TASKS)


def test_while_nothing_is_in_quarantine_nothing_is_hashed(monkeypatch):
    from forebay.core import quarantine

    def hashed(job):
        raise AssertionError(f"{job.id} was hashed")

    async def run(caller):
        await slay(caller, times=1)
        monkeypatch.setattr(quarantine, "fingerprint_of", hashed)
        assert (await caller.submit(payload=DEADLY)).status_code == 202
        _, verdicts = await caller.bulk(*[{"task": "echo", "payload": n} for n in range(3)])
        assert {verdict["status"] for verdict in verdicts} == {202}
        await finish(caller.front)

    call(run, tasks=TASKS)
