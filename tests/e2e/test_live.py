"""A job seen live, against real processes that are really killed."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys

import psutil
import pytest

from forebay import AsyncClient, Client, JobFailedError
from forebay.errors import NotFinishedError
from tests.e2e.harness import WAIT_MAX_S, Served
from tests.ports import free_port
from tests.server.streams import all_closed, deaf, opened, watching
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for those tests that leave it as it was."""
    with Served(tmp_path_factory.mktemp("live"), "live.py", workers=1) as server:
        yield server
        assert server.stop() == 0


class Gates:
    """A directory in which a file for each page says that it may be read."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def open(self, pages):
        for page in pages:
            (self.path / str(page)).touch()


def streamed(server, path, heard=None, **more):
    """Return the events of a whole stream; `heard` is called with each as it comes, and first with None."""

    async def read():
        async with all_closed():
            stream = await opened(server.port, path, **more)
            assert stream.status == 200, stream.status
            event = None
            with contextlib.suppress(EOFError):
                while True:
                    if heard is not None:
                        heard(event)
                    event = await stream.next(within_s=WAIT_MAX_S)
            return stream

    return asyncio.run(read())


def pages_of(server, name):
    """Return (attempt, page) of every page of this name that was read, in order."""
    read = [(*line[1].split("."), line[2]) for line in server.ledger() if line[0] == "page"]
    return [(attempt, int(page)) for read_name, page, attempt in read if read_name == name]


def test_a_job_of_ten_pages_whose_process_dies_at_page_six_goes_on_at_page_six(server, tmp_path):
    gates = Gates(tmp_path / "gates")
    job = server.submit("pages", ["a", 10, str(gates.path), 6])

    def heard(event):
        """Let it begin when somebody looks on, and die when it is known how far it came."""
        if event is None:
            gates.open(range(10))
        elif event[0] == "progress" and event[2]["message"] == "page 6":
            gates.open(["die"])

    stream = streamed(server, f"/v1/jobs/{job['job_id']}/events", heard)
    assert stream.events[-1][2]["result"] == list(range(10))
    assert pages_of(server, "a") == [(1, page) for page in range(6)] + [(2, page) for page in range(6, 10)]
    states = [data["state"] for kind, _, data in stream.events if kind == "status"]
    assert "retrying" in states and states[-1] == "succeeded"
    assert any(kind == "progress" for kind, _, _ in stream.events)


def test_a_job_of_ten_pages_goes_on_at_its_page_after_the_death_of_the_whole_server(tmp_path):
    with Served(tmp_path, "live.py", workers=1) as server:
        gates = Gates(tmp_path / "gates")
        job = server.submit("pages", ["a", 10, str(gates.path), -1])
        gates.open(range(6))
        until(lambda: (1, 5) in pages_of(server, "a"), WAIT_MAX_S, "page 5")
        stored = lambda: (server.job(job["job_id"])["progress"] or {}).get("share", 0)
        until(lambda: stored() >= 0.6, WAIT_MAX_S, "it is stored how far it came")
        server.kill()
        until(lambda: not server.living(), WAIT_MAX_S, "nobody reads any more")
        gates.open(range(6, 10))
        server.start(ready=False)
        assert server.final(job["job_id"])["result"] == list(range(10))
        pages = pages_of(server, "a")
        assert sorted(page for _, page in pages) == list(range(10)), "no page was read twice"
        assert {attempt for attempt, _ in pages} == {1, 2}
        server.stop()


def test_words_come_one_by_one_and_anew_after_a_failure(server, tmp_path):
    gates, seen = Gates(tmp_path / "gates"), [1, 0]  # attempt, words

    def heard(event):
        """Let the next word come when this one has."""
        if event is not None and event[0] == "restart":
            seen[:] = [2, 0]
        elif event is not None and event[0] == "partial":
            gates.open(f"{seen[0]}.{seen[1] + n}" for n in range(len(event[2]["parts"])))
            seen[1] += len(event[2]["parts"])

    stream = streamed(
        server,
        "/v1/jobs",
        heard,
        method="POST",
        body=json.dumps({"task": "words", "payload": [6, str(gates.path), 3]}).encode(),
        headers=("prefer: wait=1", "accept: text/event-stream"),
    )
    assert stream.kinds()[0] == "accepted" and stream.kinds()[-1] == "done"
    assert stream.kinds().count("restart") == 1
    assert stream.parts() == stream.events[-1][2]["result"] == [f"word{n}" for n in range(6)]
    assert stream.kinds().count("partial") == 3 + 6, "each by itself"


def test_async_and_batched_generators_are_seen_live(server):
    for task, payload, result in (
        ("tokens", [5, 0.05], [0, 1, 2, 3, 4]),
        ("Spell", "forebay", list("forebay")),
    ):
        job = server.submit(task, payload)
        stream = streamed(server, f"/v1/jobs/{job['job_id']}/events")
        assert stream.parts() == stream.events[-1][2]["result"] == result


def test_a_reader_goes_on_with_the_next_server_after_a_kill(tmp_path):
    with Served(tmp_path, "live.py", workers=1, port=free_port()) as server:
        job = server.submit("words", [20, 0.2, -1])

        async def read(last_id, kind):
            async with all_closed():
                stream = await watching(server.port, job["job_id"], last_id)
                event = await stream.next(kind, within_s=WAIT_MAX_S)
                return stream, event

        _, (_, last_id, _) = asyncio.run(read(None, "partial"))
        server.kill()
        server.start()
        stream, _ = asyncio.run(read(last_id, "done"))
        assert stream.events[0][0] == "status"
        assert stream.events[1][2] == {"missed": None, "reason": "unknown_id"}
        assert stream.events[-1][2]["result"] == [f"word{n}" for n in range(20)]
        assert stream.events[-1][2]["attempt"] == 2
        server.stop()


@pytest.mark.timed
def test_a_server_with_readers_ends_within_its_grace(tmp_path):
    with Served(tmp_path, "live.py", workers=1, env={"FOREBAY_GRACE": "2s"}) as server:
        job = server.submit("pages", ["a", 1, 30, -1])
        server.state(job["job_id"], "running")

        async def read():
            async with all_closed():
                streams = [await watching(server.port, job["job_id"]) for _ in range(50)]
                server.signal(signal.SIGTERM)
                for stream in streams:
                    await stream.rest(within_s=15.0)
                return [stream.kinds()[-1] for stream in streams]

        assert set(asyncio.run(read())) == {"closing"}
        assert server.wait(10.0) == 0


def test_a_client_reads_parts_through_a_restart_of_the_server(tmp_path):
    with Served(tmp_path, "live.py", workers=1, port=free_port()) as server:
        port, got = server.port, []
        with Client(f"http://127.0.0.1:{port}", retry_for="30s") as client:
            parts = client.stream("words", [12, 0.2, -1])
            got += [next(parts) for _ in range(3)]
            server.kill()
            server.start(ready=False)
            got += parts
        assert got == [f"word{n}" for n in range(12)], "each once, in order"
        server.stop()


def test_both_clients_see_the_life_of_a_job(server):
    url = f"http://127.0.0.1:{server.port}"
    with Client(url) as client:
        job = client.submit("words", [4, 0.1, 2])
        kinds = [event.kind for event in job.events()]
        assert kinds[0] == "status" and kinds[-1] == "done" and "restart" in kinds
        assert job.done and job.view["result"] == [f"word{n}" for n in range(4)]
        assert list(client.stream("words", [4, 0.05, 2])) == job.view["result"]
        with pytest.raises(JobFailedError):
            list(client.stream("pages", ["not enough"]))
        with pytest.raises(NotFinishedError):
            list(client.submit("words", [2, 1.0, -1]).events(timeout="300ms"))

    async def awaited():
        async with AsyncClient(url) as client:
            job = await client.submit("tokens", [3, 0.1])
            kinds = [event.kind async for event in job.events()]
            return kinds, [part async for part in client.stream("tokens", [3, 0.1])]

    kinds, parts = asyncio.run(awaited())
    assert kinds[-1] == "done" and "partial" in kinds and parts == [0, 1, 2]


def test_watch_prints_progress_and_the_end_as_they_come(server, tmp_path):
    gates, out = Gates(tmp_path / "gates"), tmp_path / "out"
    job = server.submit("pages", ["watched", 4, str(gates.path), -1])
    command = [sys.executable, "-m", "forebay", "jobs", "watch", job["job_id"]]
    with out.open("wb") as told:
        watcher = subprocess.Popen(
            [*command, "--url", f"http://127.0.0.1:{server.port}"], stdout=told, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: b"running" in out.read_bytes(), WAIT_MAX_S, "it watches")
        for page in range(3):  # one after the other: what comes fast is told together
            gates.open([page])
            until(lambda n=page + 1: b"page %d" % n in out.read_bytes(), WAIT_MAX_S, "it is told")
        gates.open([3])
        assert watcher.wait(WAIT_MAX_S) == 0, out.read_text()
    finally:
        watcher.kill()
        watcher.wait()
    lines = out.read_text().splitlines()
    assert lines[-1].split()[:2] == ["COMPLETED", "succeeded"]
    assert "75% page 3" in [line.split("running  ")[1] for line in lines if "page" in line]


@pytest.mark.timed
@pytest.mark.timeout(180)
def test_a_thousand_readers_a_tenth_of_them_deaf_cost_no_memory_and_do_not_slow_the_job(tmp_path):
    with Served(tmp_path, "live.py", workers=1) as server:

        async def read():
            alone = await timed(server)
            job = server.submit("words", [100, 0.05, -1])
            deaf_ones = [deaf(server.port, job["job_id"]) for _ in range(100)]
            rss_before = rss_mb(server)
            async with all_closed():
                streams = [await watching(server.port, job["job_id"]) for _ in range(900)]
                opened_at = rss_mb(server)
                await asyncio.gather(*(stream.rest(within_s=60.0) for stream in streams))
                kinds = {stream.kinds()[-1] for stream in streams}
                whole = [stream for stream in streams if "gap" not in stream.kinds()]
                assert all(len(stream.parts()) == 100 for stream in whole)
                assert len(whole) == 900, "readers that read miss nothing"
            for connection in deaf_ones:
                connection.close()
            return alone, kinds, rss_before, opened_at, rss_mb(server), server.final(job["job_id"])

        alone_s, kinds, before_mb, opened_mb, after_mb, job = asyncio.run(read())
        assert kinds == {"done"}
        assert opened_mb - before_mb < 60.0, (before_mb, opened_mb)
        assert after_mb - opened_mb < 15.0, (opened_mb, after_mb)
        (end,) = [event for event in job["timeline"] if event["event"] == "succeeded"]
        assert end["ran_s"] < alone_s * 2.0, (end["ran_s"], alone_s)
        assert server.get("/metrics").body.count(b"inference_event_readers") >= 1
        server.stop()


async def timed(server):
    """Return how long the job runs when nobody reads."""
    job = server.final(server.submit("words", [100, 0.05, -1])["job_id"])
    return next(event["ran_s"] for event in job["timeline"] if event["event"] == "succeeded")


def rss_mb(server):
    return psutil.Process(server.process.pid).memory_info().rss / 1e6
