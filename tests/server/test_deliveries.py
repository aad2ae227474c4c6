"""Callbacks at the door: what URL is taken, what is shown of a delivery, and replay."""

import json

import pytest

from forebay.core.callback import CallbackRules
from forebay.core.outbox import DeliveryState, DeliveryStep, Try
from forebay.core.task import TaskSpec
from forebay.server.access import ACCESS
from tests.server.doors import call, finish, kill

HOOK = "https://hooks.example/x?token=s3cret"


def test_a_callback_is_stored_and_leads_to_its_deliveries():
    async def story(caller):
        job = await caller.one(callback_url=HOOK)
        path = f"/v1/jobs/{job['job_id']}/deliveries"
        assert job["links"]["deliveries"] == path
        record = await caller.front.broker.get(job["job_id"], now=caller.front.clock.now())
        assert record.job.callback_url == HOOK
        assert (await caller.get(path)).json() == {"items": [], "next_cursor": None}
        await finish(caller.front)
        (shown,) = (await caller.get(path)).json()["items"]
        assert (shown["webhook_id"], shown["url"]) == (f"msg_{job['job_id']}", HOOK)
        assert (shown["state"], shown["tries"], shown["ended_at"]) == ("waiting", [], None)
        assert (await caller.get(f"/v1/jobs/{job['job_id']}")).json()["links"]["deliveries"] == path

    call(story)


def test_a_job_without_one_has_no_such_link():
    async def story(caller):
        job = await caller.one()
        assert "deliveries" not in job["links"]
        await finish(caller.front)
        path = f"/v1/jobs/{job['job_id']}/deliveries"
        assert (await caller.get(path)).json()["items"] == []
        answer = await caller.post(path + "/replay")
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")

    call(story)


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example/", "https://127.0.0.1/", "https://user:hunter2@hooks.example/", "file:///etc/passwd",
     "https://2130706433/", "https://[::ffff:127.0.0.1]/", "https://hooks.example/\r\nX: y", "",
     "https://hooks.example:22/", "https://hooks.example/" + "x" * 10_000],
)  # fmt: skip
def test_a_bad_url_is_422_with_its_rule_and_without_itself(url):
    async def story(caller):
        answer = await caller.submit(callback_url=url)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["path"] == "callback_url"
        assert "hunter2" not in answer.text
        assert len(answer.text) < 600
        assert await caller.depth() == 0

    call(story)


@pytest.mark.parametrize("value", [1, True, ["https://hooks.example"], {}])
def test_another_type_is_422(value):
    async def story(caller):
        assert (await caller.submit(callback_url=value)).status_code == 422

    call(story)


def test_each_line_of_many_has_its_own():
    async def story(caller):
        good = {"task": "echo", "payload": 1, "callback_url": HOOK}
        bad = {**good, "callback_url": "http://10.0.0.1/"}
        _, verdicts = await caller.bulk(good, bad, {"task": "echo", "payload": 1})
        assert [verdict["status"] for verdict in verdicts] == [202, 422, 202]
        assert verdicts[1]["errors"][0]["path"] == "callback_url"

    call(story)


def test_private_addresses_are_taken_where_they_are_allowed():
    async def story(caller):
        caller.front.callbacks = CallbackRules(allow_private=True)
        assert (await caller.submit(callback_url="http://127.0.0.1:8081/hook")).status_code == 202
        assert (await caller.submit(callback_url="http://169.254.169.254/")).status_code == 422

    call(story)


def test_the_same_key_with_another_callback_is_another_body():
    async def story(caller):
        await caller.one(idempotency_key="k", callback_url=HOOK)
        assert (await caller.submit(idempotency_key="k", callback_url=HOOK)).status_code == 202
        answer = await caller.submit(idempotency_key="k", callback_url=HOOK + "2")
        assert answer.status_code == 422

    call(story)


def test_tries_are_shown_and_replayed():
    async def story(caller):
        front = caller.front
        job = await caller.one(callback_url=HOOK)
        await finish(front)
        now = front.clock.now()
        (row,) = await front.broker.outbox.claim(limit=1, each_max=1, rooms={}, lease_s=60.0, now=now)
        tried = Try(1, now, 0.25, 410, "answered 410")
        step = DeliveryStep(row.job_id, DeliveryState.DISABLED, tried, now)
        assert await front.broker.outbox.settle([step], now=now) == [True]
        path = f"/v1/jobs/{job['job_id']}/deliveries"
        (shown,) = (await caller.get(path)).json()["items"]
        assert (shown["state"], shown["next_try_at"], shown["tries_count"]) == ("disabled", None, 1)
        assert shown["tries"][0]["status"] == 410
        assert shown["tries"][0]["detail"] == "answered 410"
        answer = await caller.post(path + "/replay")
        (shown,) = answer.json()["items"]
        assert (answer.status_code, shown["state"]) == (200, "waiting")
        assert shown["next_try_at"] is not None

    call(story)


def test_who_wants_to_be_told_joins_equal_work_that_goes_on_and_none_that_has_ended():
    tasks = {"echo": TaskSpec(name="echo", coalesce=True, cache_s=600.0)}

    async def story(caller):
        first = await caller.one(callback_url=HOOK)
        assert (await caller.one(callback_url=HOOK))["job_id"] == first["job_id"]
        assert (await caller.one(callback_url=HOOK + "2"))["job_id"] != first["job_id"]
        assert (await caller.one())["job_id"] != first["job_id"]
        await finish(caller.front)
        assert (await caller.one(callback_url=HOOK))["job_id"] != first["job_id"]

    call(story, tasks=tasks)


def test_a_job_that_has_not_ended_cannot_be_told_again():
    async def story(caller):
        job = await caller.one(callback_url=HOOK)
        answer = await caller.post(f"/v1/jobs/{job['job_id']}/deliveries/replay")
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")

    call(story)


@pytest.mark.parametrize("tail", ["", "/replay"])
def test_an_unknown_job_is_404(tail):
    async def story(caller):
        path = "/v1/jobs/01900000-0000-7000-8000-000000000000/deliveries" + tail
        answer = await (caller.post(path) if tail else caller.get(path))
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert (await caller.delete(path)).status_code == 405
        assert (await caller.get(path + "/x")).status_code == 404

    call(story)


def test_a_redriven_job_keeps_its_callback_and_has_a_message_of_its_own():
    async def story(caller):
        await caller.one(callback_url=HOOK)
        letter = await kill(caller.front)
        made = (await caller.post(f"/v1/dead-letters/{letter}/redrive")).json()["redriven_as"]
        await finish(caller.front)
        ids = [
            (await caller.get(f"/v1/jobs/{job_id}/deliveries")).json()["items"][0]["webhook_id"]
            for job_id in (letter, made)
        ]
        assert ids == [f"msg_{letter}", f"msg_{made}"]

    call(story)


def test_a_sender_that_stopped_is_told_by_readiness():
    class Sender:
        why = None

        def unready_reason(self):
            return self.why

    async def story(caller):
        caller.front.sender = sender = Sender()
        assert (await caller.get("/readyz")).status_code == 200
        sender.why = "the sender of webhooks has stopped"
        answer = await caller.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, sender.why)

    call(story)


def test_tries_are_counted_by_outcome():
    async def story(caller):
        caller.front.meters.delivery_tried("retried")
        text = (await caller.get("/metrics")).text
        assert 'inference_webhook_deliveries_total{outcome="retried"} 1.0' in text
        assert 'inference_webhook_deliveries_total{outcome="delivered"} 0.0' in text

    call(story)


def test_the_routes_have_rules_of_access_and_are_in_the_document():
    async def story(caller):
        paths = (await caller.get("/openapi.json")).json()["paths"]
        assert "get" in paths["/v1/jobs/{job_id}/deliveries"]
        assert "post" in paths["/v1/jobs/{job_id}/deliveries/replay"]
        assert "callback_url" in json.dumps(
            (await caller.get("/openapi.json")).json()["components"]["schemas"]
        )

    call(story)
    assert {("GET", "/v1/jobs/{}/deliveries"), ("POST", "/v1/jobs/{}/deliveries/replay")} <= set(ACCESS)
