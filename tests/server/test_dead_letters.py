"""What a dead letter shows, to whom, and what is done about it."""

import dataclasses
import json

from forebay.core import settle
from forebay.core.evidence import witnessed
from forebay.core.job import JobError
from forebay.core.settle import SettlePolicy
from tests.server.doors import call, lease


async def fall(front, *, held=None, log="a line\nanother", mates=(), error=None, permanent=True):
    """End one job dead, with evidence."""
    if held is None:
        (held,) = await lease(front)
    now = front.clock.now()
    error = error or JobError("handler_failed", "it broke", "Permanent", held.attempt)
    end = settle.fail(held, error=error, policy=SettlePolicy(), now=now, jitter=0.0, permanent=permanent)
    assert await front.broker.commit([witnessed(end, log=log, mates=mates)], now=now) == [True]
    return held.job.id


def test_a_dead_letter_shows_cause_attempts_last_words_and_mates():
    async def run(caller):
        await caller.one()
        job_id = await fall(caller.front, mates=("m1", "m2"))
        letter = (await caller.get(f"/v1/dead-letters/{job_id}")).json()
        assert letter["cause"] == "permanent"
        assert letter["log_tail"] == ["a line", "another"] and letter["batch_mates"] == ["m1", "m2"]
        (attempt,) = letter["attempts"]
        assert (attempt["attempt"], attempt["worker"], attempt["outcome"]) == (1, "w", "exhausted")
        assert attempt["error"]["message"] == "it broke" and attempt["log_tail"] == letter["log_tail"]
        (row,) = (await caller.get("/v1/dead-letters")).json()["items"]
        assert row["cause"] == "permanent" and "log_tail" not in row
        job = (await caller.get(f"/v1/jobs/{job_id}")).json()
        assert "log_tail" not in job and "a line" not in str(job)

    call(run)


def test_a_tenant_is_told_of_its_own_mates_alone():
    async def run(caller):
        as_a, as_b = ({"forebay-tenant": name} for name in "ab")
        await caller.submit(headers=as_a)
        (dying,) = await lease(caller.front)
        other = (await caller.submit(headers=as_b)).json()["job_id"]
        own = (await caller.submit(headers=as_a)).json()["job_id"]
        job_id = await fall(caller.front, held=dying, mates=(other, own))
        letter = (await caller.get(f"/v1/dead-letters/{job_id}", headers=as_a)).json()
        assert letter["batch_mates"] == letter["attempts"][0]["batch_mates"] == [own]
        assert (await caller.get(f"/v1/dead-letters/{job_id}", headers=as_b)).status_code == 404
        letter = (await caller.get(f"/v1/dead-letters/{job_id}")).json()
        assert letter["batch_mates"] == [other, own]

    call(run)


def test_a_redrive_takes_the_edited_payload_and_the_letter_keeps_its_own():
    async def run(caller):
        await caller.one(payload="broken")
        job_id = await fall(caller.front)
        path = f"/v1/dead-letters/{job_id}"
        assert (await caller.get(path)).json()["edited"] is False
        answer = await caller.patch(path, json={"payload": {"mended": [1, 2.50]}})
        assert answer.status_code == 200, answer.text
        letter = (await caller.get(path)).json()
        assert (letter["edited"], letter["payload"]) == (True, "broken")
        assert letter["edited_payload"] == {"mended": [1, 2.5]}
        assert (await caller.get("/v1/dead-letters")).json()["items"][0]["edited"] is True
        made = (await caller.post(path + "/redrive")).json()["redriven_as"]
        (held,) = await lease(caller.front)
        assert held.job.id == made and json.loads(held.job.payload) == {"mended": [1, 2.5]}
        assert (await caller.get(path)).json()["payload"] == "broken"

    call(run)


def test_an_edit_is_checked_as_a_submission_is():
    async def run(caller):
        await caller.one("Clip", payload={"url": "x"})
        (held,) = await lease(caller.front, "Clip")
        job_id = await fall(caller.front, held=held)
        path = f"/v1/dead-letters/{job_id}"
        bad = await caller.patch(path, json={"payload": 3})
        assert (bad.status_code, bad.json()["code"]) == (422, "invalid"), bad.text
        head = {"content-type": "application/json"}
        for body, status in (
            (b"{", 400),
            (b"{}", 422),
            (b'{"payload":1,"more":2}', 422),
            (b'{"payload":NaN}', 400),
        ):
            refused = await caller.patch(path, content=body, headers=head)
            assert refused.status_code == status, (body, refused.text)
        assert (await caller.patch(path, content=b'{"payload":1}')).status_code == 415
        assert (await caller.get(path)).json()["edited"] is False

    call(run)


def test_only_a_dead_letter_can_be_edited():
    async def run(caller):
        job_id = (await caller.submit()).json()["job_id"]
        refused = await caller.patch(f"/v1/dead-letters/{job_id}", json={"payload": 1})
        assert refused.status_code == 409
        missing = "01890000-0000-7000-8000-000000000000"
        assert (await caller.patch(f"/v1/dead-letters/{missing}", json={"payload": 1})).status_code == 404

    call(run)


def test_a_redrive_of_many_takes_those_of_a_cause_and_a_time():
    async def run(caller):
        for _ in range(3):
            await caller.one()
        permanent = await fall(caller.front)
        lost = JobError("worker_lost", "gone", "oom", 1)
        resource = [await fall(caller.front, error=lost) for _ in range(2)]
        ask = "/v1/dead-letters/redrive"
        for wrong in (
            {"cause": "posion"},
            {"since": "yesterday"},
            {"ids": [permanent], "cause": "poison"},
            {},
        ):
            assert (await caller.post(ask, json=wrong)).status_code == 422, wrong
        none = await caller.post(ask, json={"task": "echo", "since": "2999-01-01T00:00:00Z"})
        assert none.json()["redriven"] == 0
        some = (await caller.post(ask, json={"cause": "resource", "since": "2001-01-01T00:00:00Z"})).json()
        assert sorted(item["job_id"] for item in some["items"]) == sorted(resource)
        rest = (await caller.post(ask, json={"task": "echo"})).json()
        assert [item["job_id"] for item in rest["items"]] == [permanent]

    call(run)


def test_a_redriven_job_is_of_the_version_that_is_served():
    async def run(caller):
        old = await caller.one()
        job_id = await fall(caller.front)
        assert (await caller.front.broker.get(job_id, now=caller.front.clock.now())).job.version == "1"
        served = dataclasses.replace(caller.front.tasks["echo"], version="2")
        caller.front.tasks["echo"] = served
        answer = await caller.post(f"/v1/dead-letters/{old['job_id']}/redrive")
        (held,) = await lease(caller.front)
        assert answer.status_code == 200 and held.job.version == "2"

    call(run)
