"""Lists: filters, cursors, limits."""

import pytest

from tests.server.doors import call, finish, kill, lease


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [item["job_id"] for item in answer.json()["items"]]


def test_pages_are_newest_first_and_hold_while_jobs_come_and_go():
    async def run(caller):
        made = [(await caller.one())["job_id"] for _ in range(7)]
        first = await caller.get("/v1/jobs?limit=3")
        await caller.one()
        await caller.delete(f"/v1/jobs/{made[2]}")
        second = await caller.get(f"/v1/jobs?limit=3&cursor={first.json()['next_cursor']}")
        third = await caller.get(f"/v1/jobs?limit=3&cursor={second.json()['next_cursor']}")
        assert ids(first) + ids(second) + ids(third) == made[::-1]
        assert third.json()["next_cursor"] is None

    call(run)


@pytest.mark.parametrize("word", ["PENDING", "queued"])
def test_status_takes_the_coarse_word_or_the_exact_one(word):
    async def run(caller):
        done = (await caller.one())["job_id"]
        await finish(caller.front)
        waiting = (await caller.one())["job_id"]
        assert ids(await caller.get(f"/v1/jobs?status={word}")) == [waiting]
        assert ids(await caller.get("/v1/jobs?status=COMPLETED")) == [done]
        assert ids(await caller.get(f"/v1/jobs?status=succeeded,{word}")) == [waiting, done]

    call(run)


def test_task_and_metadata_filter():
    async def run(caller):
        a = (await caller.one(metadata={"user": "7", "n": 5}))["job_id"]
        b = (await caller.one("Clip", {"url": "x"}, metadata={"user": "7"}))["job_id"]
        await caller.one(metadata={"user": "8"})
        assert ids(await caller.get("/v1/jobs?metadata.user=7")) == [b, a]
        assert ids(await caller.get("/v1/jobs?metadata.user=7&metadata.n=5")) == [a]
        assert ids(await caller.get("/v1/jobs?task=Clip")) == [b]
        assert (await caller.get("/v1/jobs?task=Clp")).json()["code"] == "unknown_task"

    call(run)


def test_a_list_leaves_results_out():
    async def run(caller):
        await caller.one()
        await finish(caller.front, output=b'"' + b"x" * 1000 + b'"')
        assert (await caller.get("/v1/jobs")).json()["items"][0]["result"] is None

    call(run)


QUERIES = [
    ("limit=0", 422), ("limit=-1", 422), ("limit=1000000000", 200), ("limit=1.5", 422), ("limit=", 422),
    ("limit=--5", 422), ("limit=-", 422), ("limit=1_0", 422), ("limit=+5", 422),
    ("limit=%C2%B2", 422), ("limit=1&limit=2", 422), ("limit=" + "9" * 50, 422), ("status=", 422), ("status=DONE", 422),
    ("cursor=", 422), ("cursor=x", 422), ("cursor=AAAAAAAA", 422), ("cursor=é", 422), ("tenant=x", 200),
    ("page=2", 422), ("&".join(f"metadata.k{i}=1" for i in range(65)), 422),
    ("&".join(f"metadata.k{i}=1" for i in range(64)), 200), ("metadata.a=%zz", 422), ("metadata.=1", 422), ("metadata.a=%00", 200),
]  # fmt: skip


@pytest.mark.parametrize(("query", "status"), QUERIES)
def test_a_parameter_is_taken_clamped_or_refused(query, status):
    async def run(caller):
        await caller.one()
        answer = await caller.get(f"/v1/jobs?{query}")
        assert answer.status_code == status, answer.text

    call(run)


def test_a_cursor_that_was_cut_changed_or_belongs_to_another_query_is_refused():
    async def run(caller):
        for _ in range(3):
            await caller.one()
        cursor = (await caller.get("/v1/jobs?limit=1")).json()["next_cursor"]
        assert (await caller.get(f"/v1/jobs?limit=2&cursor={cursor}")).status_code == 200
        changed = ("B" if cursor[9] != "B" else "C").join((cursor[:9], cursor[10:]))
        for bad in (cursor[:-2], cursor + "AAAA", changed, cursor + "="):
            answer = await caller.get(f"/v1/jobs?cursor={bad}")
            assert answer.status_code == 422 and answer.json()["errors"][0]["path"] == "cursor"
        for other in ("status=queued", "task=echo", "metadata.a=1"):
            assert (await caller.get(f"/v1/jobs?{other}&cursor={cursor}")).status_code == 422
        assert (await caller.get(f"/v1/dead-letters?cursor={cursor}")).status_code == 422

    call(run)


def test_dead_letters_show_payload_cause_and_attempts():
    async def run(caller):
        await caller.one(payload={"a": 1})
        job_id = await kill(caller.front)
        await caller.one()
        (item,) = (await caller.get("/v1/dead-letters?task=echo&limit=5")).json()["items"]
        shown = (await caller.get(f"/v1/dead-letters/{job_id}")).json()
        for letter in (item, shown):
            assert (letter["job_id"], letter["payload"], letter["worker"]) == (job_id, {"a": 1}, "w")
            assert letter["error"]["code"] == "boom" and letter["attempt"] == 1
        assert (await caller.get("/v1/dead-letters?status=queued")).status_code == 422

    call(run)


def test_a_redrive_is_one_new_job_linked_both_ways():
    async def run(caller):
        await caller.one(
            payload={"a": 1}, priority="high", metadata={"u": 1}, attempts_max=7, idempotency_key="k", ttl=60
        )
        dead = await kill(caller.front)
        first = await caller.post(f"/v1/dead-letters/{dead}/redrive")
        again = await caller.post(f"/v1/dead-letters/{dead}/redrive")
        new = first.json()["redriven_as"]
        assert first.status_code == again.status_code == 200 and again.json()["redriven_as"] == new
        job = (await caller.get(first.headers["location"])).json()
        assert (job["redriven_from"], job["priority"], job["attempts_max"]) == (dead, "high", 7)
        assert job["metadata"] == {"u": 1} and job["state"] == "queued"
        old = (await caller.get(f"/v1/jobs/{dead}")).json()
        assert old["redriven_as"] == new and old["status"] == "FAILED"
        (held,) = await lease(caller.front)
        assert held.job.payload == b'{"a":1}' and await caller.depth() == 1

    call(run)


@pytest.mark.parametrize("verb", ["redrive", "delete"])
def test_a_job_that_is_not_dead_is_no_dead_letter(verb):
    async def run(caller):
        job = await caller.one()
        path = f"/v1/dead-letters/{job['job_id']}"
        answer = await (caller.delete(path) if verb == "delete" else caller.post(path + "/redrive"))
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
        unknown = "/v1/dead-letters/01900000-0000-7000-8000-000000000000"
        answer = await (caller.delete(unknown) if verb == "delete" else caller.post(unknown + "/redrive"))
        assert answer.status_code == 404

    call(run)


def test_a_deleted_dead_letter_is_gone_and_logged():
    async def run(caller):
        await caller.one()
        dead = await kill(caller.front)
        assert (await caller.delete(f"/v1/dead-letters/{dead}")).status_code == 200
        assert (await caller.get(f"/v1/jobs/{dead}")).status_code in (404, 410)
        assert ("dead_letter_deleted", {"job_id": dead, "task": "echo"}) in caller.front.log.lines

    call(run)


def test_many_are_redriven_at_a_rate_within_the_bound_of_the_queue():
    async def run(caller):
        dead = []
        for _ in range(6):
            await caller.one()
            dead.append(await kill(caller.front))
        answer = (
            await caller.post("/v1/dead-letters/redrive", json={"task": "echo", "rate": "1/s", "limit": 4})
        ).json()
        assert answer["redriven"] == 4
        new = [(await caller.get(f"/v1/jobs/{item['redriven_as']}")).json() for item in answer["items"]]
        assert [job["state"] for job in new] == ["queued"] + ["scheduled"] * 3
        answer = (await caller.post("/v1/dead-letters/redrive", json={"ids": [*dead[::-1], "x"]})).json()
        assert [item.get("code") for item in answer["items"]] == [None] * 5 + ["queue_full"]

    call(run, jobs_max=5)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{}", 422), (b"[]", 422), (b"", 400), (b"{", 400), (b'{"task":"nope"}', 404), (b'{"task":"echo","rate":0}', 422),
     (b'{"task":"echo","rate":"1/y"}', 422), (b'{"task":"echo","limit":0}', 422), (b'{"task":"echo","limit":1000000}', 422),
     (b'{"task":"echo","raet":1}', 422), (b'{"task":"echo","rate":1e-9}', 422), (b'{"task":"echo"}', 200), (b'{"ids":[]}', 200)],
)  # fmt: skip
def test_a_redrive_request_is_understood_or_refused(body, status):
    async def run(caller):
        headers = {"content-type": "application/json"}
        answer = await caller.post("/v1/dead-letters/redrive", content=body, headers=headers)
        assert answer.status_code == status, answer.text
        if status == 200:
            assert answer.json() == {"items": [], "redriven": 0}

    call(run)
