"""A job whose ttl or deadline would pass before its turn is refused at the door, and told what would do."""

from datetime import UTC, datetime

import pytest

from tests.server.doors import call

FAR = {"ttl": "10m"}


async def busy(caller, *, took_s=10.0, waiting=4):
    """One replica that needs `took_s`, and jobs that wait for it."""
    estimator = caller.front.estimators["echo"]
    estimator.crew.count = 1
    for _ in range(20):
        estimator.ran(items=1, took_s=took_s)
    for _ in range(waiting):
        await caller.one()


@pytest.mark.parametrize("option", [{"ttl": "5s"}, {"deadline": "20s"}])
def test_a_job_that_would_be_taken_in_vain_is_refused_with_an_offer(option):
    async def run(caller):
        await busy(caller)
        answer = await caller.submit(**option)
        problem = answer.json()
        assert answer.status_code == 429 and problem["code"] == "cannot_meet_deadline"
        assert (
            problem["retry_after_s"] > 10 and int(answer.headers["retry-after"]) >= problem["retry_after_s"]
        )
        left_s = (
            datetime.fromisoformat(problem["earliest_p50_at"]).timestamp() - datetime.now(UTC).timestamp()
        )
        assert 40 < left_s < 60 and problem["earliest_p90_at"] >= problem["earliest_p50_at"]
        needed = "ttl_needed_s" if "ttl" in option else "deadline_needed_at"
        assert (await caller.depth()) == 4
        name = "ttl" if "ttl" in option else "deadline"
        assert name in problem["detail"]
        again = await caller.submit(**{name: problem[needed]})  # what was offered is taken
        assert again.status_code == 202, again.text
        text = (await caller.get("/metrics")).text
        assert 'decision="refused",reason="cannot_meet_deadline",task="echo"} 1.0' in text

    call(run)


def test_nothing_is_refused_before_anything_was_measured():
    async def run(caller):
        for _ in range(3):
            await caller.one(ttl="1ms")

    call(run)


def test_an_empty_queue_takes_it_always_so_that_something_is_measured_again():
    async def run(caller):
        await busy(caller, waiting=0)
        await caller.one(deadline="1s")
        assert (await caller.submit(deadline="1s")).status_code == 429

    call(run)


def test_a_paused_queue_is_not_judged():
    async def run(caller):
        await busy(caller)
        await caller.post("/v1/queues/echo/pause")
        await caller.one(ttl="5s")
        await caller.post("/v1/queues/echo/resume")
        assert (await caller.submit(ttl="5s")).status_code == 429

    call(run)


def test_each_line_is_judged_by_the_lines_before_it():
    async def run(caller):
        await busy(caller, waiting=1)
        lines = [{"task": "echo", "payload": n, "ttl": "35s"} for n in range(6)]
        lines.insert(3, {"task": "echo", "payload": 9, **FAR})
        _, verdicts = await caller.bulk(*lines)
        assert [one["status"] for one in verdicts] == [202, 202, 202, 202, 429, 429, 429]
        assert verdicts[-1]["code"] == "cannot_meet_deadline" and verdicts[-1]["ttl_needed_s"] > 35
        assert await caller.depth() == 5

    call(run)


def test_a_refused_one_is_in_no_queue_and_spends_no_key():
    async def run(caller):
        await busy(caller)
        keyed = {"headers": {"idempotency-key": "k"}}
        assert (await caller.submit(ttl="1s", **keyed)).status_code == 429
        assert (await caller.submit(ttl="10m", **keyed)).status_code == 202

    call(run)


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("option", ["ttl", "deadline"])
def test_a_job_that_would_end_before_its_breaker_opens_is_refused_though_the_queue_is_empty(option, measured):
    async def run(caller):
        if measured:
            await busy(caller, took_s=0.01, waiting=0)
        caller.front.node.breakers["echo"] = {"state": "open", "retry_after_s": 20.0}
        refused = await caller.submit(**{option: "5s"})
        assert refused.status_code == 429 and refused.json()["code"] == "cannot_meet_deadline"
        assert 15.0 <= refused.json()["retry_after_s"] <= 23.0
        assert (await caller.submit(**{option: "60s"})).status_code == 202
        caller.front.node.breakers.clear()
        assert (await caller.submit(**{option: "5s"})).status_code == 202

    call(run)
