"""Tasks, queues, workers, health, metrics, documents."""

import asyncio
import inspect
import json
from dataclasses import replace
from types import SimpleNamespace

import jsonschema_rs
import pytest
from openapi_spec_validator import validate

from forebay.errors import StoreBrokenError
from forebay.server.openapi import HOT
from forebay.server.times import stamp
from tests.conformance.engines import StandingClock
from tests.server.doors import CLIP, WAIT_MAX_S, call, finish, kill, lease


def test_tasks_say_their_schemas_and_limits():
    async def run(caller):
        names = [item["task"] for item in (await caller.get("/v1/tasks")).json()["items"]]
        assert names == ["Clip", "echo"]
        clip = (await caller.get("/v1/tasks/Clip")).json()
        assert (
            clip["input_schema"] == CLIP
            and clip["description"] == "Cuts clips."
            and clip["attempts_max"] == 3
        )
        missing = await caller.get("/v1/tasks/clip")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_task")

    call(run)


def test_a_queue_says_how_full_it_is():
    async def run(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=10.0)
        for _ in range(3):
            await caller.one()
        await caller.one(run_at="2001-01-01T00:00:00Z")
        await lease(caller.front)
        queue = (await caller.get("/v1/queues/echo")).json()
        assert (queue["depth"], queue["running"], queue["open"], queue["capacity"]) == (3, 1, 4, 100_000)
        assert queue["bytes"] == 4 and queue["oldest_age_s"] >= 0 and queue["paused"] is False
        assert queue["eta"]["p50_s"] > 10 and queue["watermarks"]["soft"] == 0.9
        assert [item["task"] for item in (await caller.get("/v1/queues")).json()["items"]] == ["Clip", "echo"]

    call(run)


def test_a_paused_queue_accepts_and_grants_nothing_until_resumed():
    async def run(caller):
        assert (await caller.post("/v1/queues/echo/pause")).json()["paused"] is True
        await caller.one()
        assert await lease(caller.front) == []
        assert (await caller.post("/v1/queues/echo/resume")).json()["paused"] is False
        assert len(await lease(caller.front)) == 1
        assert (await caller.post("/v1/queues/nope/pause")).status_code == 404

    call(run)


def test_a_drained_queue_refuses_new_jobs_while_others_take_them_until_resumed():
    async def run(caller):
        await caller.one()
        assert (await caller.post("/v1/queues/echo/drain")).json()["draining"] is True
        answer = await caller.submit()
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert (await caller.submit("Clip", {"url": "x"})).status_code == 202
        assert len(await lease(caller.front)) == 1
        await caller.post("/v1/queues/echo/resume")
        assert (await caller.submit()).status_code == 202

    call(run)


def test_a_paused_queue_gives_places_and_no_times():
    async def run(caller):
        caller.front.estimators["echo"].ran(items=1, took_s=10.0)
        running = await caller.one()
        await lease(caller.front)
        await caller.post("/v1/queues/echo/pause")
        waiting = await caller.one()
        later = await caller.one(run_at=stamp(caller.front.clock.now() + 60))
        assert (waiting["position"], waiting["eta"], later["eta"]) == (1, None, None)
        shown = (await caller.get(waiting["links"]["self"])).json()
        assert (shown["position"], shown["eta"]) == (1, None)
        assert (await caller.get(running["links"]["self"])).json()["eta"] is not None
        eta = (await caller.get("/v1/queues/echo")).json()["eta"]
        assert eta["p50_s"] is eta["p90_s"] is eta["p50_at"] is eta["p90_at"] is None
        assert "paused" in eta["message"]
        await caller.post("/v1/queues/echo/resume")
        assert (await caller.get(waiting["links"]["self"])).json()["eta"]["p50_s"] >= 10
        assert (await caller.get("/v1/queues/echo")).json()["eta"]["p50_s"] >= 10

    call(run)


def test_a_queue_that_drains_says_so_and_when_to_come_back():
    async def run(caller):
        for _ in range(40):
            await caller.one()
        await caller.post("/v1/queues/echo/drain")
        unmeasured = (await caller.submit()).json()
        assert unmeasured["detail"] == (
            "the queue of echo is draining and takes no new work until it is resumed"
        )
        assert unmeasured["retry_after_s"] == 5.0
        _, (verdict,) = await caller.bulk({"task": "echo", "payload": 1})
        assert verdict["detail"] == unmeasured["detail"] and verdict["status"] == 503
        estimator = caller.front.estimators["echo"]
        estimator.crew.count = 1
        estimator.ran(items=1, took_s=10.0)
        async with asyncio.timeout(WAIT_MAX_S):
            while (answer := await caller.submit()).json()["retry_after_s"] < 400:
                await asyncio.sleep(0.01)
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")
        assert int(answer.headers["retry-after"]) >= 400 and "connection" not in answer.headers
        caller.front.lifecycle.draining = True
        answer = await caller.submit()
        assert "shutting down" in answer.json()["detail"] and answer.headers["connection"] == "close"

    call(run)


def test_rates_tell_what_left_from_what_could():
    async def run(caller):
        estimator = caller.front.estimators["echo"]
        estimator.crew.count = 2
        estimator.ran(items=1, took_s=0.5)
        rates = (await caller.get("/v1/queues/echo")).json()["rates"]
        assert (rates["drain_per_s"], rates["capacity_per_s"]) == (0.0, 4.0)
        now = caller.front.clock.now()
        estimator.settled(final=30, now=now - 10)
        assert 2.9 < (await caller.get("/v1/queues/echo")).json()["rates"]["drain_per_s"] <= 3.0
        assert estimator.measured_drain_per_s(now=now + 60) == 0.0

    call(run)


def test_a_task_tells_what_sizing_needs_of_it():
    async def run(caller):
        view = (await caller.get("/v1/tasks/Clip")).json()
        assert view["service"] is None and view["concurrency"] == 1
        assert view["backoff"] == {"base_s": 1.0, "factor": 2.0, "cap_s": 3600.0}
        assert (view["lease_s"], view["heartbeat_s"], view["grace_s"]) == (30.0, 5.0, 30.0)
        for _ in range(20):
            caller.front.estimators["Clip"].ran(items=1, took_s=2.0)
        service = (await caller.get("/v1/tasks/Clip")).json()["service"]
        assert service["runs"] == 20 and service["fixed_s"] + service["each_s"] == pytest.approx(2.0)
        assert service["p999_s"] == pytest.approx(2.0, rel=0.02)

    call(run)


def test_a_burst_is_told_after_it_is_over():
    clock = StandingClock()

    async def run(caller):
        await caller.bulk(*({"task": "echo", "payload": n} for n in range(40)))
        caller.front.peaks["echo"].see(35, now=clock.at)
        clock.at += 30.0
        view = (await caller.get("/v1/queues/echo")).json()
        assert (view["rates"]["arrivals_p99_per_s"], view["rates"]["arrivals_max_per_s"]) == (40.0, 40.0)
        assert view["rates"]["arrivals_per_s"] == 0.0 and view["depth_peak"] == 40
        text = (await caller.get("/metrics")).text
        assert 'inference_arrival_rate_p99{task="echo"} 40.0' in text
        assert 'inference_queue_length_peak{task="echo"} 35.0' in text
        assert (await caller.get("/v1/queues/Clip")).json()["rates"]["arrivals_max_per_s"] == 0.0

    call(run, clock=clock)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", "GET, HEAD, POST"),
        ("DELETE", "/v1/jobs", "GET, HEAD, POST"),
        ("GET", "/v1/queues/echo/pause", "POST"),
        ("HEAD", "/v1/queues/echo/pause", "POST"),
        ("POST", "/v1/dead-letters/x", "DELETE, GET, HEAD, PATCH"),
        ("POST", "/v1/queues", "GET, HEAD"),
        ("PUT", "/v1/jobs/x", "GET, HEAD, DELETE, PATCH"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method, path, allowed):
    async def run(caller):
        answer = await caller.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        if method != "HEAD":
            assert answer.json()["detail"] == f"allowed: {allowed}"

    call(run)


def test_a_redrive_that_was_done_before_says_so():
    async def run(caller):
        await caller.one()
        dead = await kill(caller.front)
        first = (await caller.post(f"/v1/dead-letters/{dead}/redrive")).json()
        again = await caller.post(f"/v1/dead-letters/{dead}/redrive")
        assert "replayed" not in first
        assert again.json() == {**first, "replayed": True}
        assert again.headers["location"] == f"/v1/jobs/{first['redriven_as']}"
        many = (await caller.post("/v1/dead-letters/redrive", json={"ids": [dead]})).json()
        assert many == {"items": [{**first, "replayed": True}], "redriven": 0}

    call(run)


@pytest.mark.parametrize("verb", ["pause", "resume", "drain"])
def test_a_page_of_another_origin_may_not_turn_the_taps(verb):
    async def run(caller):
        answer = await caller.post(f"/v1/queues/echo/{verb}", headers={"origin": "http://evil.example"})
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_origin")
        assert (await caller.get("/v1/queues/echo")).json()["paused"] is False

    call(run)


def test_a_place_without_a_child_is_shown_and_no_worker_is_missed_there():
    async def run(caller):
        place = {"worker": "w2", "task": "echo", "state": "parked", "memory_bytes": 0, "started_at": None}
        caller.front.node.replicas = [place]
        assert (await caller.get("/v1/workers")).json()["items"][0]["state"] == "parked"
        assert 'worker="w2"' not in (await caller.get("/metrics")).text

    call(run)


def test_a_queue_tells_how_many_replicas_its_task_needs_and_a_paused_one_needs_none_for_what_waits():
    async def run(caller):
        assert (await caller.get("/v1/queues/echo")).json()["replicas_wanted"] == 0
        for _ in range(3):
            await caller.one()
        assert (await caller.get("/v1/queues/echo")).json()["replicas_wanted"] == 1, "as nothing is known"
        caller.front.estimators["echo"].ran(items=1, took_s=5.0)
        assert (await caller.get("/v1/queues/echo")).json()["replicas_wanted"] == 2, "10 s for 15 s of work"
        await caller.post("/v1/queues/echo/pause")
        assert (await caller.get("/v1/queues/echo")).json()["replicas_wanted"] == 0
        await lease(caller.front)

    call(run)


def test_nodes_are_listed_as_their_neighbours_tell_and_none_where_nobody_does():
    async def run(caller):
        assert (await caller.get("/v1/nodes")).json() == {"items": [], "next_cursor": None}
        caller.front.neighbours = SimpleNamespace(
            workers=lambda: [],
            nodes=lambda: [
                {"node": "n-1-a", "host": "n", "state": "idle", "replicas": 1, "ready": 1, "in_hand": 0,
                 "idle_s": 7.5, "deletion_cost": -7, "unready": None, "started_at": 1.0}
            ],
        )  # fmt: skip
        (node,) = (await caller.get("/v1/nodes")).json()["items"]
        assert (node["host"], node["deletion_cost"]) == ("n", -7)
        assert node["started_at"] == "1970-01-01T00:00:01.000000Z"

    call(run)


def test_workers_are_listed():
    async def run(caller):
        caller.front.node.replicas = [
            {"worker": "w1", "task": "echo", "device": "cpu", "state": "ready", "pid": 7, "batch": None,
             "memory_bytes": 5, "restarts": 1, "last_crash": None, "started_at": 1.0}
        ]  # fmt: skip
        (worker,) = (await caller.get("/v1/workers")).json()["items"]
        assert worker["worker"] == "w1" and worker["started_at"] == "1970-01-01T00:00:01.000000Z"
        text = (await caller.get("/metrics")).text
        assert 'inference_worker_up{worker="w1"} 1.0' in text
        assert 'inference_worker_memory_bytes{worker="w1"} 5.0' in text

    call(run)


def test_jobs_that_wait_for_an_open_breaker_are_told_no_times():
    async def run(caller):
        front = caller.front
        front.estimators["echo"].ran(items=1, took_s=10.0)
        seen = {"breaker": "echo", "state": "open", "trips": 1, "retry_after_s": 8.0, "reason": "2 bad calls"}
        front.node.breakers = {"echo": seen}
        waiting = await caller.one()
        assert (waiting["position"], waiting["eta"]) == (1, None)
        eta = (await caller.get("/v1/queues/echo")).json()["eta"]
        assert eta["p50_s"] is eta["p90_s"] is eta["p50_at"] is eta["p90_at"] is None
        assert eta["message"].endswith("its jobs wait, and its breaker lets one through in about 8 s.")
        seen["state"] = "closed"
        assert (await caller.get(waiting["links"]["self"])).json()["eta"]["p50_s"] >= 10
        assert (await caller.get("/v1/queues/echo")).json()["eta"]["p50_s"] >= 10

    call(run)


def test_an_open_breaker_with_something_in_its_place_holds_no_job_up():
    async def run(caller):
        front = caller.front
        front.tasks["echo"] = replace(front.tasks["echo"], canned=b"1")
        front.estimators["echo"].ran(items=1, took_s=10.0)
        front.node.breakers = {
            "echo": {"breaker": "echo", "state": "open", "trips": 1, "retry_after_s": 8.0, "reason": ""}
        }
        assert (await caller.one())["eta"] is not None
        assert (await caller.get("/v1/queues/echo")).json()["eta"]["p50_s"] is not None

    call(run)


def test_a_breaker_is_shown_with_its_task_and_its_queue():
    async def run(caller):
        seen = {"breaker": "echo", "state": "open", "trips": 2, "retry_after_s": 3.5, "reason": "3 bad calls"}
        for path in ("/v1/tasks/echo", "/v1/queues/echo"):
            assert (await caller.get(path)).json()["breaker"] is None
            caller.front.node.breakers = {"echo": seen}
            assert (await caller.get(path)).json()["breaker"] == seen
            caller.front.node.breakers = {}

    call(run)


def test_the_breakers_inside_handlers_are_shown_with_the_tasks_that_use_them_over_all_workers():
    def worker(lane, state, *, since, tasks=(), wait_s=0.0, name="features"):
        inside = {
            "breaker": name, "state": state, "trips": int(state != "closed"), "retry_after_s": wait_s,
            "reason": f"{state} since {since:g}", "since": since, "tasks": list(tasks), "shared": True,
        }  # fmt: skip
        return {"worker": f"w{since:g}", "task": lane, "breakers": [inside]}

    async def run(caller):
        front = caller.front
        front.node.replicas = [
            worker("(functions)", "closed", since=1.0, tasks=["echo"]),
            worker("(functions)", "open", since=2.0, tasks=["echo"], wait_s=8.0),
            worker("Clip", "open", since=9.0, tasks=["Clip"], wait_s=5.0),
        ]
        front.neighbours = SimpleNamespace(
            workers=lambda: [
                worker("(functions)", "open", since=3.0, tasks=["echo", "gone"], wait_s=4.0),
                {"worker": "of an older version", "task": "echo"},
            ]
        )
        (seen,) = (await caller.get("/v1/tasks/echo")).json()["breakers"]
        assert seen == {
            "breaker": "features", "state": "open", "since": "1970-01-01T00:00:02.000000Z", "workers": 3,
            "open": 2, "trips": 2, "retry_after_s": 0.0, "reason": "open since 2", "shared": True,
        }  # fmt: skip
        listed = {one["task"]: one["breakers"] for one in (await caller.get("/v1/tasks")).json()["items"]}
        assert listed["echo"] == [seen]
        assert [(one["workers"], one["open"], one["retry_after_s"]) for one in listed["Clip"]] == [
            (1, 1, 5.0)
        ]
        first = (await caller.get("/v1/workers")).json()["items"][0]["breakers"][0]
        assert (first["since"], first["tasks"]) == ("1970-01-01T00:00:01.000000Z", ["echo"])

    call(run)


def test_readiness_tells_the_truth_with_the_reason():
    async def run(caller):
        assert (await caller.get("/readyz")).json() == {"status": "ready", "reason": None}
        caller.front.node.why = "every replica of Clip crashes while it loads"
        answer = await caller.get("/readyz")
        assert answer.status_code == 503 and answer.json()["reason"] == caller.front.node.why
        caller.front.node.why = None
        caller.front.lifecycle.store_failed(StoreBrokenError(), now=0.0)
        assert (await caller.get("/readyz")).json()["reason"] == "store_broken"
        assert (await caller.get("/healthz")).status_code == 200

    call(run)


@pytest.mark.timed
def test_health_and_metrics_answer_while_the_store_hangs():
    async def run(caller):
        async def never(*_, **__):
            await asyncio.Event().wait()

        class Hanging:
            """Every verb that is awaited."""

            def __getattr__(self, name, inner=caller.front.broker):
                verb = getattr(inner, name)
                return never if inspect.iscoroutinefunction(verb) else verb

        caller.front.broker = Hanging()
        async with asyncio.timeout(WAIT_MAX_S):
            for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/workers", "/"):
                assert (await caller.get(path)).status_code == 200
            answers = await asyncio.gather(*(caller.get("/metrics") for _ in range(100)))
            assert {answer.status_code for answer in answers} == {200}

    call(run)


@pytest.mark.parametrize(
    "accept", ["*/*", "application/openmetrics-text; version=1.0.0", "image/png", "x" * 5000, ""]
)
def test_metrics_answer_whatever_is_accepted(accept):
    async def run(caller):
        await caller.one()
        answer = await caller.get("/metrics", headers={"accept": accept})
        assert answer.status_code == 200 and 'inference_queue_length{task="echo"} 1.0' in answer.text

    call(run)


def test_odd_submissions_make_no_new_labels(monkeypatch):
    monkeypatch.setattr("forebay.observe.metrics.RENDER_FRESH_S", -1.0)  # each look is a new one

    async def run(caller):
        before = (await caller.get("/metrics")).text.count("\n")
        for task in ("nope", "x" * 100, "a\nb"):
            await caller.submit(task)
        assert (await caller.get("/metrics")).text.count("\n") == before

    call(run)


def test_the_document_is_openapi_and_names_every_route():
    async def run(caller):
        document = (await caller.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        validate(document)
        told = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
        assert {(route.method, route.path) for route in HOT} <= told
        names = [verb["operationId"] for verbs in document["paths"].values() for verb in verbs.values()]
        assert len(names) == len(set(names))
        for method, path in told:
            names = ("job_id", "blob_id", "cron", "fingerprint", "stream")
            answer = await caller.request(method, path.format(task="echo", **dict.fromkeys(names, "x")))
            assert answer.status_code < 500 and answer.status_code != 405

    call(run)


def test_answers_have_the_shape_that_the_document_says():
    async def run(caller):
        document = (await caller.get("/openapi.json")).json()

        def check(name, value):
            schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
            jsonschema_rs.validator_for(schema).validate(value)

        caller.front.estimators["echo"].ran(items=1, took_s=2.0)
        waiting = await caller.one(metadata={"a": 1}, deadline=60)
        await finish(caller.front, output=b'{"x":[1]}')
        check("JobView", waiting)
        check("JobView", (await caller.get(waiting["links"]["self"])).json())
        await caller.one()
        dead = await kill(caller.front)
        check("DeadLetterView", (await caller.get(f"/v1/dead-letters/{dead}")).json())
        check("RedriveView", (await caller.post(f"/v1/dead-letters/{dead}/redrive")).json())
        check("ProblemView", (await caller.submit("Clip", {})).json())
        _, verdicts = await caller.bulk({"task": "echo", "payload": 1}, {"task": "Clip", "payload": {}})
        for verdict in verdicts:
            check("VerdictView", verdict)
        for name, path in {"JobList": "/v1/jobs", "DeadLetterList": "/v1/dead-letters", "TaskList": "/v1/tasks",
                           "QueueList": "/v1/queues", "WorkerList": "/v1/workers", "HealthView": "/readyz"}.items():  # fmt: skip
            check(name, (await caller.get(path)).json())

    call(run)


def test_what_the_document_lets_a_submission_say_is_what_the_door_takes():
    from forebay.server.views import SubmissionView
    from forebay.server.wire import FIELDS

    assert SubmissionView.__struct_fields__ == FIELDS


def test_the_viewer_loads_nothing_from_elsewhere():
    async def run(caller):
        answer = await caller.get("/docs")
        assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http://" not in answer.text and "https://" not in answer.text
        root = (await caller.get("/")).json()
        for path in root["links"].values():
            assert (await caller.get(path)).status_code == 200

    call(run)


def test_a_bug_behind_the_door_is_a_500_without_a_traceback_and_one_log_line():
    async def run(caller):
        async def broken(*_, **__):
            raise RuntimeError("secret /path")

        inner = caller.front.broker
        caller.front.broker = type(
            "Broken", (), {"__getattr__": lambda _, n: getattr(inner, n), "get": broken, "depth": broken}
        )()
        for path in ("/v1/jobs/01900000-0000-7000-8000-000000000000", "/v1/queues/echo"):
            answer = await caller.get(path)
            assert (answer.status_code, answer.json()["code"]) == (500, "internal")
            assert "secret" not in answer.text
        assert [event for event, _ in caller.front.log.lines] == ["request_failed"] * 2
        assert json.dumps(caller.front.log.lines)

    call(run)


def test_a_parameter_that_no_route_names_is_refused_but_by_probes_and_documents():
    async def run(caller):
        await caller.get("/healthz")  # builds what is behind the hot routes
        table = [route for route in caller.door.warm().routes if hasattr(route, "endpoint")]
        assert len(table) > 15
        job = await caller.one()
        for route in table:
            path = route.path.format(
                task="echo",
                job_id=job["job_id"],
                **dict.fromkeys(("blob_id", "id", "cron", "fingerprint"), "x"),
            )
            (method,) = route.methods
            open_to_all = path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics")
            answer = await caller.request(method, path, params={"_": "1732900000"})
            if open_to_all:
                assert answer.status_code == 200, path
            else:
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), (path, answer.text)
                assert "unknown query parameter: '_'" in answer.json()["detail"]

    call(run)
