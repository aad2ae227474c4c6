"""The client against a server that answers as the contract says, drops answers, and goes away."""

import asyncio
import dataclasses
import inspect
import math
import subprocess
import sys
import threading
import time

import pytest

from forebay.client import AsyncClient, Client, JobFailedError
from forebay.errors import (
    ConfigError,
    IdempotencyConflictError,
    InvalidError,
    NotFoundError,
    StateConflictError,
    UnknownTaskError,
    UnreachableError,
)
from tests.client.basin import Basin, problem
from tests.ports import free_port


@pytest.fixture
def basin():
    with Basin() as found:
        yield found


@pytest.fixture
def client(basin):
    with Client(basin.url, timeout=30, retry_for=30) as found:
        yield found


def test_a_job_is_submitted_watched_and_read(client):
    job = client.submit("echo", {"a": 1}, priority="high", metadata={"k": "v"})
    assert (job.status, job.state, job.done) == ("PENDING", "queued", False)
    assert (job.eta.p50_s, job.eta.p90_s, job.eta.position) == (41.0, 63.0, 12)
    assert job.result(timeout="10s") == {"a": 1}
    assert (job.status, job.done) == ("COMPLETED", True)  # without another question
    assert job.refresh().done


@pytest.mark.parametrize("fate", ["drop", "cut"])
def test_a_lost_answer_is_repeated_under_the_same_key_and_makes_one_job(basin, client, fate):
    basin.scripts = [fate]
    job = client.submit("echo", "hi")
    assert len(basin.paths("POST")) == 2
    assert list(basin.jobs) == [job.job_id]


def test_a_key_of_ones_own_holds_and_refuses_another_body(client):
    first = client.submit("echo", 1, idempotency_key="clip-17")
    assert client.submit("echo", 1, idempotency_key="clip-17").job_id == first.job_id
    with pytest.raises(IdempotencyConflictError):
        client.submit("echo", 2, idempotency_key="clip-17")


def test_a_refused_submit_waits_as_long_as_the_server_said(basin, client):
    basin.scripts = [(429, {"retry-after": "25"}, problem(429, "queue_full", retry_after_s=0.3)[1])]
    client.submit("echo", 1)
    first, second = [at for method, _, at in basin.requests if method == "POST"]
    assert 0.3 <= second - first < 25.0, "the exact time, not the whole seconds of the header"


def test_events_that_are_none_are_not_waited_for_byte_by_byte(basin):
    """A server that says a byte now and then is never silent for long, and never done."""
    with Client(basin.url, timeout=0.5, retry_for=0) as client:
        job = client.submit("echo", 1)
        basin.scripts = ["dribble"]
        with pytest.raises(UnreachableError, match="no whole answer in time"):
            next(client.events(job.job_id))

    async def awaited():
        async with AsyncClient(basin.url, timeout=0.5, retry_for=0) as client:
            basin.scripts = ["dribble"]
            await anext(client.events(job.job_id))

    with pytest.raises(UnreachableError, match="no whole answer in time"):
        asyncio.run(awaited())


def test_what_was_removed_by_a_try_whose_answer_was_lost_is_removed(basin, client):
    basin.letters = {"dead-0": {"job_id": "dead-0"}}
    basin.scripts = ["drop"]
    client.purge("dead-0")
    assert not basin.letters and len(basin.paths("DELETE", "/v1/dead-letters")) == 2
    with pytest.raises(NotFoundError):
        client.purge("dead-0")


def test_should_not_retry_is_obeyed(basin, client):
    basin.scripts = [(503, {"x-should-retry": "false"}, problem(503, "draining")[1])]
    with pytest.raises(Exception, match="draining"):
        client.submit("echo", 1)
    assert len(basin.requests) == 1


def test_refusals_are_errors_of_the_one_tree(client):
    with pytest.raises(UnknownTaskError):
        client.submit("nope", 1)
    with pytest.raises(NotFoundError):
        client.get("job-none")
    job = client.submit("echo", 1, wait="1s")
    assert job.done
    with pytest.raises(StateConflictError):
        job.cancel()


def test_a_failed_job_raises_its_cause(basin, client):
    basin.outcome = lambda view: ("FAILED", None, {"code": "exception", "message": "bad", "attempt": 3})
    with pytest.raises(JobFailedError, match="bad") as caught:
        client.submit("echo", 1).result(timeout=30)
    assert caught.value.code == "exception"


def test_waiting_survives_a_restart_of_the_server():
    with Basin(free_port()) as first:
        port, jobs = first.port, first.jobs
        first.run_after_polls = 10**9
        with Client(first.url, timeout=10, retry_for=40) as client:
            job = client.submit("echo", 7)
            found = []
            waiter = threading.Thread(target=lambda: found.append(job.result(timeout=40)))
            waiter.start()
            first.stop()
            second = Basin(port)
            second.jobs = jobs
            with second:
                waiter.join(40)
            assert found == [7]


def test_lists_go_over_pages(basin, client):
    client.submit_many("echo", range(250))
    assert len(client.list(limit=240)) == 240
    assert client.list(limit=1)[0].job_id == "job-000249"


def test_many_are_submitted_in_few_calls_with_a_verdict_each(basin, client):
    basin.refuse_lines = 3
    found = client.submit_many("echo", [*range(700), *["x"] * 2])
    assert [verdict.line for verdict in found] == list(range(1, 703))
    assert len({verdict.job_id for verdict in found}) == 702 and len(basin.jobs) == 702
    assert len(basin.requests) == 3


@pytest.mark.parametrize(("code", "calls"), [("over_budget", 4), ("queue_full", 7)])
def test_a_turn_in_a_budget_is_for_as_many_as_before_and_a_full_queue_is_probed(basin, client, code, calls):
    basin.refuse_lines, basin.line_code = {4: 600, 7: 350}[calls], code
    found = list(client.map_as_completed("echo", range(200), concurrency=1))
    assert sorted(item.result for item in found) == list(range(200))
    assert len(basin.paths("POST")) == calls


@dataclasses.dataclass
class Clip:
    url: str
    at: float = 0.5


def test_payloads_of_declared_types_are_sent_as_json(basin, client):
    job = client.submit("echo", Clip("x"))
    assert basin.jobs[job.job_id]["_payload"] == {"url": "x", "at": 0.5}


@pytest.mark.parametrize("payload", [math.nan, [math.inf], "\ud800", object(), {1j: 2}])
def test_what_has_no_exact_json_form_is_refused_here(basin, client, payload):
    with pytest.raises(InvalidError, match="payload"):
        client.submit("echo", payload)
    assert basin.requests == []


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://x", "http://", "http://u:pw@h", "http://h:99999", "http://h/?a=1"]
)
def test_a_bad_url_is_named_and_no_password_is_shown(url):
    with pytest.raises(ConfigError, match="url") as caught:
        Client(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "ü", "a\n"])
def test_a_bad_key_is_refused_without_being_shown(key):
    with pytest.raises(ConfigError, match="api_key"):
        Client("http://127.0.0.1:1", key)


def test_a_server_that_is_not_there_is_unreachable_in_time():
    for kind in (Client, AsyncClient):
        assert inspect.signature(kind).parameters["unreachable_for"].default == 5.0
    where = "http://127.0.0.1:9"
    started = time.monotonic()
    with Client(where, unreachable_for=0.3) as client, pytest.raises(UnreachableError, match=where):
        client.tasks()
    assert time.monotonic() - started < 5
    with Client("http://127.0.0.1:9", retry_for=0.3) as client, pytest.raises(UnreachableError):
        client.queues()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000, b"\xff"])
def test_an_answer_that_is_not_ours_is_one_clear_error(basin, client, body):
    basin.scripts = [(200, {}, body)]
    with pytest.raises(Exception, match="Forebay server"):
        client.get("a")


def test_a_map_yields_results_in_order_through_refusals(basin, client):
    basin.refuse_lines = 40
    seen = []
    found = list(client.map("echo", range(300), concurrency=4, progress=seen.append))
    assert found == list(range(300))
    assert len(basin.jobs) == 300
    assert seen[-1].submitted == seen[-1].ended == 300 and seen[-1].pressed >= 1


def test_a_map_run_again_under_its_name_makes_nothing_twice(basin, client):
    running = client.map("echo", range(100), run_id="night", concurrency=2)
    assert next(running) == 0
    running.close()
    assert list(client.map("echo", range(100), run_id="night")) == list(range(100))
    assert len(basin.jobs) == 100


def test_an_error_is_raised_in_its_turn_or_yielded_in_its_place(basin, client):
    basin.outcome = lambda view: (
        ("FAILED", None, {"code": "odd", "message": "no"})
        if view["_payload"] == 1
        else ("COMPLETED", 5, None)
    )
    running = client.map("echo", range(3))
    assert next(running) == 5
    with pytest.raises(JobFailedError):
        next(running)
    found = list(client.map("echo", [0, 1, math.nan], return_errors=True))
    assert found[0] == 5 and found[1].code == "odd" and isinstance(found[2], InvalidError)


def test_the_iterable_is_read_in_the_callers_thread_and_its_error_arrives(client):
    threads = set()

    def items():
        threads.add(threading.get_ident())
        yield 1
        raise ValueError("the file is gone")

    with pytest.raises(ValueError, match="gone"):
        list(client.map_as_completed("echo", items()))
    assert threads == {threading.get_ident()}


def test_a_map_gives_up_with_the_refusal_when_nothing_moves(basin, client):
    basin.refuse_lines = 10**9
    with pytest.raises(Exception, match="queue_full"):
        list(client.map("echo", range(5), retry_for=0.5))


def test_a_paced_map_takes_its_time(basin, client):
    list(client.map("echo", range(60), rate="100/s"))
    times = [at for method, _, at in basin.requests if method == "POST"]
    assert times[-1] - times[0] >= 0.5


def test_the_awaiting_client_has_the_same_verbs_and_does_the_same(basin):
    async def run():
        async def items():
            for n in range(30):
                yield n

        async with AsyncClient(basin.url, timeout=30) as client:
            basin.scripts = ["drop"]
            job = await client.submit("echo", "hi")
            assert await job.result(timeout=30) == "hi"
            assert job.done
            assert [x async for x in client.map("echo", items())] == list(range(30))
            assert {m.place async for m in client.map_as_completed("echo", "abc")} == {0, 1, 2}
            assert (await client.pause("echo"))["paused"] is True

    asyncio.run(run())
    assert len(basin.jobs) == 34
    for name, verb in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            twin = inspect.signature(getattr(AsyncClient, name))
            assert list(inspect.signature(verb).parameters) == list(twin.parameters), name


def test_importing_forebay_imports_nothing_heavy():
    code = (
        "import sys, forebay; heavy = {'httpx', 'fastapi', 'msgspec', 'typer', 'apsw'} & set(sys.modules);"
        "assert not heavy, heavy; forebay.ETA; assert 'httpx' not in sys.modules; forebay.Client"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
