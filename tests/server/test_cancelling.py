"""Cancelling many at once: by id and by filters, counted honestly, a bounded part a time."""

import asyncio

import pytest

from forebay.server import cancelling
from tests.server.doors import Caller, a_front, finish, lease
from tests.server.test_keys import KEYS, ROOT, A, B, bearer

PATH = "/v1/jobs/cancel"


def served(test, **fields):
    async def run():
        async with asyncio.timeout(50), Caller(a_front(**fields)) as caller:
            await test(caller)

    asyncio.run(run())


async def cancelled(caller, headers=None, **asked):
    answer = await caller.request("POST", PATH, json=asked, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


def counts(view):
    return [view[name] for name in ("cancelled", "requested", "already", "final", "unknown")]


def test_named_jobs_get_a_verdict_each_in_order():
    async def test(caller):
        done = (await caller.one())["job_id"]
        await finish(caller.front)
        runs = (await caller.one())["job_id"]
        await lease(caller.front)
        waits = (await caller.one())["job_id"]
        ids = [waits, runs, done, waits, "nobody", "x" * 36]
        view = await cancelled(caller, ids=ids)
        assert [item["verdict"] for item in view["items"]][1:3] == ["requested", "final"]
        assert counts(view)[1:] == [1, view["already"], 1, 2] and view["cancelled"] + view["already"] == 2
        assert counts(await cancelled(caller, ids=[waits])) == [0, 0, 1, 0, 0]
        assert (await caller.request("GET", f"/v1/jobs/{waits}")).json()["status"] == "CANCELLED"

    served(test)


def test_filters_take_what_matches_all_of_them_and_nothing_else():
    async def test(caller):
        mine = [(await caller.one(metadata={"who": "me", "n": str(n)}))["job_id"] for n in range(3)]
        other = (await caller.one(metadata={"who": "you"}))["job_id"]
        assert counts(await cancelled(caller, metadata={"who": "me", "n": "1"}, task="echo")) == [
            1,
            0,
            0,
            0,
            0,
        ]
        assert counts(await cancelled(caller, metadata={"who": "me"}, status="PENDING")) == [2, 0, 0, 0, 0]
        for job_id in mine:
            assert (await caller.request("GET", f"/v1/jobs/{job_id}")).json()["status"] == "CANCELLED"
        assert (await caller.request("GET", f"/v1/jobs/{other}")).json()["status"] == "PENDING"
        assert counts(await cancelled(caller, all=True)) == [1, 0, 0, 0, 0]
        assert counts(await cancelled(caller, all=True)) == [0, 0, 0, 0, 0]

    served(test)


def test_a_limit_leaves_the_rest_for_the_next_request_which_goes_on_behind_it():
    async def test(caller):
        for _ in range(5):
            await caller.one()
        await lease(caller.front)
        found, cursor, asked = [0] * 5, None, {"task": "echo", "limit": 2}
        for _ in range(10):
            view = await cancelled(caller, **asked)
            found = [a + b for a, b in zip(found, counts(view), strict=True)]
            cursor = view["next_cursor"]
            if cursor is None:
                break
            asked["cursor"] = cursor
        assert found == [4, 1, 0, 0, 0] and cursor is None

    served(test)


def test_a_request_looks_through_a_bounded_number_of_pages(monkeypatch):
    monkeypatch.setattr(cancelling, "_LOOKS_MAX", 1)
    monkeypatch.setattr(cancelling, "LIST_LIMIT_MAX", 2)

    async def test(caller):
        for _ in range(3):
            await caller.one()
        view = await cancelled(caller, task="echo")
        assert view["cancelled"] == 2 and view["next_cursor"]

    served(test)


def test_a_tenant_cancels_its_own_alone_and_learns_nothing_of_others():
    async def test(caller):
        one = (await caller.one(headers=bearer(A)))["job_id"]
        two = (await caller.one(headers=bearer(B)))["job_id"]
        assert counts(await cancelled(caller, bearer(A), ids=[two])) == [0, 0, 0, 0, 1]
        assert counts(await cancelled(caller, bearer(A), tenant="b")) == [0, 0, 0, 0, 0]
        assert counts(await cancelled(caller, bearer(A), all=True)) == [1, 0, 0, 0, 0]
        seen = (await caller.request("GET", f"/v1/jobs/{two}", headers=bearer(B))).json()
        assert seen["status"] == "PENDING" and one != two
        assert counts(await cancelled(caller, bearer(ROOT), tenant="b")) == [1, 0, 0, 0, 0]

    served(test, keys=KEYS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, ["say which", "ids", "all"]),
        ({"metadata": {}}, ["say which"]),
        ({"ids": ["x"], "task": "echo"}, ["ids go alone"]),
        ({"ids": ["x"] * 10_001}, ["ids", "10000", "10001"]),
        ({"task": "echo", "limit": 0}, ["limit", "1 to 10000"]),
        ({"status": "COMPLETED"}, ["status", "COMPLETED has ended"]),
        ({"status": "PENDIN"}, ["status"]),
        ({"all": True, "cursor": "abc"}, ["cursor"]),
        ({"tsk": "echo"}, ["tsk"]),
        ({"tenant": ""}, ["tenant", "1 to 64"]),  # of a variable that was never set
        ({"ids": "x"}, ["ids"]),
    ],
)
def test_a_mistake_is_one_line_and_cancels_nothing(asked, words):
    async def test(caller):
        job_id = (await caller.one())["job_id"]
        answer = await caller.request("POST", PATH, json=asked)
        assert answer.status_code == 422
        problem = answer.json()
        assert all(word in problem["detail"] for word in words), problem
        assert (await caller.request("GET", f"/v1/jobs/{job_id}")).json()["status"] == "PENDING"

    served(test)
