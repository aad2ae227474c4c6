"""The events of one job: complete, in order, resumable, and bounded whoever reads them."""

import asyncio
import json

import pytest

from forebay.core import settle
from forebay.core.job import JobError
from forebay.core.settle import SettlePolicy
from forebay.keys import read_ring
from forebay.server import channel, events, live, watching
from forebay.server.live import Hub
from tests.server.doors import WAIT_MAX_S, HandClock, a_front, call, exchange, finish, lease, serving
from tests.server.streams import all_closed, deaf, opened, yielded
from tests.server.streams import watching as watch

POLICY = SettlePolicy()


def served(test, **kwargs):
    """Run `test(front, port, server)` against a real server; jobs are run by hand."""

    async def run():
        front = a_front(**kwargs)
        front.hub = Hub(now=front.clock.now, epoch="e")
        async with asyncio.timeout(50), serving(front) as (port, server), all_closed():
            return await test(front, port, server)

    return asyncio.run(run())


async def submitted(port, payload=1):
    body = json.dumps({"task": "echo", "payload": payload}).encode()
    answer = await exchange(
        port,
        b"POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body,
    )
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def retried(front, held, *, permanent=False):
    now = front.clock.now()
    error = JobError("boom", "no", "ValueError", held.attempt)
    step = settle.fail(
        held, error=error, policy=POLICY, now=now, jitter=0.0, permanent=permanent, after_s=0.0
    )
    await front.broker.commit([step], now=now)
    async with asyncio.timeout(WAIT_MAX_S):
        while (await front.broker.get(held.job.id, now=front.clock.now())).standing.state.value == "retrying":
            await front.broker.sweep(limit=10, now=front.clock.now())
            await asyncio.sleep(0.01)


def test_a_reader_sees_every_state_and_the_end_as_get_gives_it():
    async def run(front, port, _):
        job = await submitted(port)
        assert job["links"]["events"] == f"/v1/jobs/{job['job_id']}/events"
        stream = await watch(port, job["job_id"])
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store"
        kind, event_id, first = await stream.next()
        assert (kind, event_id, first["status"], first["state"]) == ("status", None, "PENDING", "queued")
        assert stream.retries == [events.RETRY_MS]
        (held,) = await lease(front)
        _, _, running = await stream.next("status")
        assert (running["status"], running["attempt"], running["worker"]) == ("PROCESSING", 1, "w")
        await retried(front, held)
        await finish(front, output=b'{"x":1}')
        await stream.rest()
        states = [data["state"] for kind, _, data in stream.events if kind == "status"]
        assert states == ["queued", "running", "retrying", "queued", "running", "succeeded"]
        kind, event_id, done = stream.events[-1]
        assert (kind, event_id, done["result"]) == ("done", "done", {"x": 1})
        shown = await exchange(
            port,
            b"GET /v1/jobs/%b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
            % job["job_id"].encode(),
        )
        assert done == json.loads(shown.partition(b"\r\n\r\n")[2])

    served(run)


def test_a_reader_that_comes_after_the_end_gets_it_at_once():
    async def run(front, port, _):
        job = await submitted(port)
        await finish(front)
        stream = await watch(port, job["job_id"])
        await stream.rest()
        assert stream.kinds() == ["status", "done"]
        assert front.hub.channels == {} and front.hub.readers == 0
        again = await opened(port, f"/v1/jobs/{job['job_id']}/events", last_id="done")
        assert again.status == 204, "a browser that has seen the end connects no more"

    served(run)


def test_nothing_is_there_for_ids_that_are_not_or_are_no_more():
    async def run(caller):
        job = await caller.one()
        for path in ("/v1/jobs/0192f000-0000-7000-8000-000000000000/events", "/v1/jobs/x/events"):
            answer = await caller.get(path)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert (await caller.get(f"/v1/jobs/{job['job_id']}/event")).status_code == 404
        assert (await caller.post(f"/v1/jobs/{job['job_id']}/events")).status_code == 405
        assert (await caller.get(f"/v1/jobs/{job['job_id']}/events?from=3")).status_code == 422
        head = await caller.head(f"/v1/jobs/{job['job_id']}/events")
        assert (head.status_code, head.content) == (200, b"")
        await finish(caller.front)
        await caller.front.broker.purge([job["job_id"]], limit=1, now=caller.front.clock.now())
        assert (await caller.get(f"/v1/jobs/{job['job_id']}/events")).status_code == 410

    call(run)


def test_an_unknown_id_is_unknown_however_many_read(monkeypatch):
    monkeypatch.setattr(events, "READERS_MAX", 0)

    async def run(caller):
        answer = await caller.get("/v1/jobs/0192f000-0000-7000-8000-000000000000/events")
        assert answer.status_code == 404
        assert (await caller.get((await caller.one())["links"]["events"])).status_code == 503

    call(run)


def test_a_job_that_is_purged_under_its_reader_ends_the_stream():
    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        await stream.next("status")
        await front.broker.cancel([job["job_id"]], now=front.clock.now())
        await front.broker.purge([job["job_id"]], limit=1, now=front.clock.now())
        await stream.rest()
        assert stream.kinds()[-1] in {"done", "closing"}

    served(run)


def test_parts_come_as_they_are_yielded_and_begin_anew_with_the_next_attempt():
    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        (held,) = await lease(front)
        yielded(front.hub, held, "a", "b")
        yielded(front.hub, held, "c", number=2)
        await stream.next("partial")
        await stream.next("partial")
        assert stream.parts() == ["a", "b", "c"]
        await retried(front, held)
        (again,) = await lease(front)
        yielded(front.hub, again, "A")
        yielded(front.hub, held, "d", number=3)  # of the holder before: worth nothing now
        front.hub.progress(held, b'{"share":0.9}')
        _, _, restart = await stream.next("restart")
        assert restart == {"attempt": 2}
        assert (await stream.next("partial"))[2] == {"attempt": 2, "index": 0, "parts": ["A"]}
        yielded(front.hub, again, "A")  # a further pass over a failed batch: the same attempt, from the start
        await stream.next("restart")
        await stream.next("partial")
        assert stream.parts() == ["A"]
        assert "progress" not in stream.kinds() and "gap" not in stream.kinds()
        stream.close()

    served(run)


def test_parts_before_the_first_reader_are_kept_for_it():
    async def run(front, port, _):
        job = await submitted(port)
        (held,) = await lease(front)
        yielded(front.hub, held, *"abc")
        stream = await watch(port, job["job_id"])
        await stream.next("partial")
        assert stream.parts() == ["a", "b", "c"]
        stream.close()

    served(run)


def test_a_part_too_large_to_travel_is_named_as_missing():
    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        (held,) = await lease(front)
        front.hub.parts(held, 0, [b"1", b"", b"3"])
        assert (await stream.next("partial"))[2]["parts"] == [1]
        gap = {"missed": 1, "reason": "part_too_large", "attempt": 1, "index": 1}
        assert (await stream.next("gap"))[2] == gap
        assert (await stream.next("partial"))[2] == {"attempt": 1, "index": 2, "parts": [3]}
        stream.close()

    served(run)


def test_a_reader_that_comes_back_loses_nothing_and_gets_nothing_twice():
    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        (held,) = await lease(front)
        await stream.next("status")
        await stream.next("status")
        seen = []
        for number in range(20):
            yielded(front.hub, held, number, number=number)
            _, last_id, data = await stream.next("partial")
            seen += data["parts"]
            if number % 5 == 4:
                stream.close()
                yielded(front.hub, held, f"{number} and a half", number=number + 1)
                front.hub.channels[job["job_id"]].parts = number + 1  # the next one has this number too
                stream = await watch(port, job["job_id"], last_id)
                assert (await stream.next())[0] == "status", "how it stands comes first"
                seen += (await stream.next("partial"))[2]["parts"]
        halves = [f"{number} and a half" for number in range(4, 20, 5)]
        assert [one for one in seen if isinstance(one, int)] == list(range(20))
        assert [one for one in seen if isinstance(one, str)] == halves
        assert "gap" not in stream.kinds()
        stream.close()

    served(run)


@pytest.mark.parametrize("last_id", ["garbage", "e.1-", "e.1-99999", "e.7-1", "e.1-\u00b2", "-1", "x" * 3000])
def test_an_id_that_nothing_is_known_of_is_told_and_begins_from_what_there_is(last_id):
    async def run(front, port, _):
        job = await submitted(port)
        (held,) = await lease(front)
        yielded(front.hub, held, "a")
        stream = await watch(port, job["job_id"], last_id)
        await stream.next("partial")
        assert stream.kinds() == ["status", "gap", "partial"]
        assert stream.events[1][2] == {"missed": None, "reason": "unknown_id"}
        stream.close()

    served(run)


def test_a_reader_that_is_behind_the_ring_hears_how_many_it_missed(monkeypatch):
    monkeypatch.setattr(channel, "RING_EVENTS_MAX", 10)

    async def run(front, port, _):
        job = await submitted(port)
        (held,) = await lease(front)
        stream = await watch(port, job["job_id"])
        await stream.next("status")
        yielded(front.hub, held, 0)
        _, last_id, _ = await stream.next("partial")
        stream.close()
        for number in range(1, 40):
            yielded(front.hub, held, number, number=number)
        again = await watch(port, job["job_id"], last_id)
        assert (await again.next())[0] == "status"
        kind, gap_id, gap = await again.next()
        assert (kind, gap) == ("gap", {"missed": 29, "reason": "behind"})
        assert (await again.next())[0] == "status", "and how it stands, again"
        for number in range(30, 40):
            assert (await again.next("partial"))[2]["parts"] == [number]
        third = await watch(port, job["job_id"], gap_id)
        assert (await third.next("partial"))[2]["parts"] == [30], "the id of a gap resumes behind it"
        fresh = await watch(port, job["job_id"])
        assert (await fresh.next("gap"))[2]["missed"] == 30
        for stream in (again, third, fresh):
            stream.close()

    served(run)


def test_events_of_a_job_that_had_no_room_are_told_as_missing(monkeypatch):
    monkeypatch.setattr(live, "HUB_BYTES_MAX", 2_000)

    async def run(front, port, _):
        job = await submitted(port)
        await submitted(port)
        one, two = await lease(front, limit=2)
        yielded(front.hub, one, "early")
        yielded(front.hub, two, "x" * 1_900)
        assert job["job_id"] not in front.hub.channels, "what nobody reads makes room"
        stream = await watch(port, job["job_id"])
        yielded(front.hub, one, "late", number=1)
        await stream.next("partial")
        assert [kind for kind in stream.kinds() if kind != "eta"] == ["status", "gap", "partial"]
        assert front.hub.size_b <= 2_000 + 300
        stream.close()

    served(run)


def test_the_hub_holds_no_more_than_its_bounds(monkeypatch):
    monkeypatch.setattr(live, "CHANNELS_MAX", 50)
    monkeypatch.setattr(live, "HUB_BYTES_MAX", 100_000)

    async def run(front, port, _):
        for number in range(300):
            await submitted(port, number)
        for held in await lease(front, limit=300):
            yielded(front.hub, held, "x" * 10_000)
        assert len(front.hub.channels) <= 50
        assert front.hub.size_b == sum(one.size_b for one in front.hub.channels.values()) <= 100_000

    served(run)


def test_progress_is_told_with_its_pause_and_the_newest_counts(monkeypatch):
    monkeypatch.setattr(live, "PROGRESS_PAUSE_S", 0.2)

    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        await stream.next("status")
        (held,) = await lease(front)
        for share in range(1, 100):
            front.hub.progress(held, b'{"share":%.2f,"message":""}' % (share / 100))
        assert (await stream.next("progress"))[2]["share"] == 0.01
        assert (await stream.next("progress"))[2]["share"] == 0.99
        await finish_held(front, held)
        await stream.rest()
        assert stream.kinds().count("progress") == 2

    served(run, clock=HandClock())


async def finish_held(front, held):
    now = front.clock.now()
    assert await front.broker.commit([settle.complete(held, output=b"1", now=now)], now=now) == [True]


def test_the_eta_is_told_when_it_moved(monkeypatch):
    monkeypatch.setattr(watching, "TICK_S", 0.02)

    async def run(front, port, _):
        ticks, expire = [], front.hub.expire
        front.hub.expire = lambda *most: (ticks.append(1), expire(*most))
        for _ in range(5):
            front.estimators["echo"].ran(items=1, took_s=10.0)
        first, second = await submitted(port), await submitted(port)
        stream = await watch(port, second["job_id"])
        assert (await stream.next("eta"))[2]["position"] == 2
        (held,) = await lease(front)
        assert held.job.id == first["job_id"]
        _, event_id, moved = await stream.next("eta")
        assert event_id is not None and moved["position"] == 1 and moved["eta"]["p50_s"] > 0
        told, seen = stream.kinds().count("eta"), len(ticks)
        async with asyncio.timeout(WAIT_MAX_S):
            while len(ticks) < seen + 10:  # in which nothing moved
                await asyncio.sleep(0.01)
        await finish(front)
        await stream.rest()
        assert stream.kinds().count("eta") <= told + 1

    served(run, clock=HandClock())


def test_a_quiet_stream_is_kept_with_comments(monkeypatch):
    monkeypatch.setattr(watching, "TICK_S", 0.01)

    async def run(front, port, _):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        await stream.next("status")
        (reader,) = front.hub.channels[job["job_id"]].readers
        for silences in range(1, 4):
            async with asyncio.timeout(WAIT_MAX_S):
                while reader.wrote_at != front.clock.at:  # a silence begins when the server has written
                    await asyncio.sleep(0.001)
            front.clock.at += watching.HEARTBEAT_S
            await stream.commented(silences)
        await finish(front)
        await stream.rest()
        assert (len(stream.comments), stream.kinds()[-1]) == (3, "done"), "one for each silence"

    served(run, clock=HandClock())


def test_a_change_that_nobody_was_told_of_is_found(monkeypatch):
    monkeypatch.setattr(watching, "TICK_S", 0.05)

    async def run(front, port, _):
        front.broker.on_change = lambda listener: lambda: None
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        await stream.next("status")
        await finish(front)
        await stream.rest()
        assert stream.kinds()[-1] == "done"

    served(run)


def test_every_reader_of_jobs_that_end_at_once_gets_the_end():
    async def run(front, port, _):
        jobs = [await submitted(port, number) for number in range(100)]

        async def read(job):
            stream = await watch(port, job["job_id"])
            await stream.rest()
            return stream.kinds()[-1]

        reading = [asyncio.ensure_future(read(job)) for job in jobs]
        while held := await lease(front, limit=7):
            now = front.clock.now()
            await front.broker.commit([settle.complete(one, output=b"1", now=now) for one in held], now=now)
            await asyncio.sleep(0)
        assert set(await asyncio.gather(*reading)) == {"done"}
        assert front.hub.readers == 0

    served(run)


def test_more_readers_than_may_be_are_refused_with_a_time(monkeypatch):
    monkeypatch.setattr(events, "READERS_MAX", 2)

    async def run(front, port, _):
        job = await submitted(port)
        path = f"/v1/jobs/{job['job_id']}/events"
        streams = [await opened(port, path) for _ in range(3)]
        assert [stream.status for stream in streams] == [200, 200, 503]
        assert int(streams[2].headers["retry-after"]) >= 1
        streams[0].close()
        async with asyncio.timeout(WAIT_MAX_S):
            while front.hub.readers > 1:
                await asyncio.sleep(0.01)
        assert (await opened(port, path)).status == 200
        assert b'inference_bounds_reached_total{bound="event_readers"} 1.0' in front.meters.render()[0]

    served(run)


def test_streams_that_are_opened_too_fast_are_refused_with_a_time(monkeypatch):
    monkeypatch.setattr(events, "OPENS_BURST", 3)
    monkeypatch.setattr(events, "OPENS_PER_S", 1)

    async def run(front, port, _):
        job = await submitted(port)
        path = f"/v1/jobs/{job['job_id']}/events"
        statuses = [(await opened(port, path)).status for _ in range(5)]
        assert statuses == [200] * 3 + [429] * 2
        front.clock.at += 2.0
        statuses = [(await opened(port, path)).status for _ in range(3)]
        assert statuses == [200] * 2 + [429]

    served(run, clock=HandClock())


def test_a_server_that_stops_ends_its_streams_with_a_hint():
    async def run(front, port, server):
        job = await submitted(port)
        streams = [await watch(port, job["job_id"]) for _ in range(20)]
        stopping = asyncio.ensure_future(server.stop())
        for stream in streams:
            await stream.rest()
            assert stream.kinds()[-1] == "closing"
            assert stream.events[-1][2] == {"reason": "draining", "retry_after_s": 5.0}
            assert stream.retries[-1] == 5_000
        async with asyncio.timeout(WAIT_MAX_S):
            await stopping

    served(run)


def test_a_draining_server_still_tells_of_the_jobs_that_end():
    async def run(front, port, server):
        job = await submitted(port)
        stream = await watch(port, job["job_id"])
        server.begin_drain()
        await finish(front)
        await stream.rest()
        assert stream.kinds()[-1] == "done"

    served(run)


SUBMIT = json.dumps({"task": "echo", "payload": 1, "idempotency_key": "k"}).encode()
STREAMED = ("prefer: wait=10", "accept: text/event-stream")


def test_a_submission_can_be_answered_with_the_events_of_its_job():
    async def run(front, port, _):
        stream = await opened(port, "/v1/jobs", method="POST", body=SUBMIT, headers=STREAMED)
        kind, _, job = await stream.next()
        assert (stream.status, kind, job["status"]) == (200, "accepted", "PENDING")
        assert stream.headers["location"] == job["links"]["self"]
        (held,) = await lease(front)
        yielded(front.hub, held, "a")
        await stream.next("partial")
        await finish_held(front, held)
        await stream.rest()
        assert stream.kinds()[0] == "accepted" and stream.kinds()[-1] == "done"
        again = await opened(port, "/v1/jobs", method="POST", body=SUBMIT, headers=STREAMED)
        assert again.headers["idempotency-replayed"] == "true"
        await again.rest()
        assert again.events[0][2]["job_id"] == job["job_id"]
        assert again.kinds()[-1] == "done"
        other = await opened(
            port, "/v1/jobs", method="POST", body=SUBMIT.replace(b"1,", b"2,"), headers=STREAMED
        )
        assert other.status == 422
        plain = await opened(port, "/v1/jobs", method="POST", body=SUBMIT, headers=STREAMED[1:])
        assert (plain.status, plain.headers["content-type"]) == (200, "application/json")
        assert front.hub.readers == 0

    served(run)


def test_a_client_that_goes_away_cancels_nothing_and_leaves_nothing():
    async def run(front, port, _):
        stream = await opened(port, "/v1/jobs", method="POST", body=SUBMIT, headers=STREAMED)
        _, _, job = await stream.next()
        stream.close()
        async with asyncio.timeout(WAIT_MAX_S):
            while front.hub.readers:
                await asyncio.sleep(0.01)
        assert front.hub.channels == {}
        await finish(front)
        shown = await front.broker.get(job["job_id"], now=front.clock.now())
        assert shown.standing.state.value == "succeeded" and not shown.standing.cancel_requested

    served(run)


def test_a_reader_that_reads_nothing_costs_no_memory_and_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(events, "ANSWER_TIMEOUT_S", 2.0)

    async def run(front, port, _):
        job = await submitted(port)
        stuck = [deaf(port, job["job_id"]) for _ in range(20)]
        good = await watch(port, job["job_id"])
        async with asyncio.timeout(WAIT_MAX_S):
            while front.hub.readers < 21:
                await asyncio.sleep(0.01)
        (held,) = await lease(front)
        number = 0
        async with asyncio.timeout(WAIT_MAX_S):
            while front.hub.readers > 1:  # the stuck ones are let go in the end
                yielded(front.hub, held, "x" * 20_000, number=number)
                assert (await good.next("partial"))[2]["index"] == number
                assert front.hub.size_b <= channel.RING_BYTES_MAX + 30_000
                number += 1
        await finish_held(front, held)
        await good.rest()
        assert good.kinds()[-1] == "done" and "gap" not in good.kinds()
        assert b'bound="event_reader_stuck"' in front.meters.render()[0]
        for connection in stuck:
            connection.close()

    served(run)


def test_events_that_nobody_came_for_are_forgotten_behind_a_quiet_reader(monkeypatch):
    async def run(front, port, _):
        quiet = await submitted(port)
        stream = await watch(port, quiet["job_id"])
        await stream.next("status")
        await submitted(port)
        held = (await lease(front, limit=2))[1]
        yielded(front.hub, held, "a")
        assert held.job.id in front.hub.channels
        monkeypatch.setattr(live, "KEEP_S", -1.0)
        front.hub.expire()
        assert list(front.hub.channels) == [quiet["job_id"]]
        assert front.hub.size_b == sum(one.size_b for one in front.hub.channels.values())

    served(run)


def test_a_key_that_is_taken_away_ends_its_streams_and_no_other():
    names = {name: f"fb_{name:0<40}" for name in ("a", "b", "root")}

    def ring(**more):
        told = {names["a"]: {"tenant": "t"}, names["b"]: {"tenant": "t"}} | {
            names["root"]: {"tenant": "ops", "scopes": ["admin"]}
        }
        told.update({names[name]: value for name, value in more.items()})
        return json.dumps({key: value for key, value in told.items() if value is not None})

    def bearer(name, *more):
        return [f"authorization: Bearer {names[name]}", *more]

    async def run(front, port, _):
        body = json.dumps({"task": "echo", "payload": 1}).encode()
        ask = bearer("a", "prefer: wait=60", "accept: text/event-stream")
        new = await opened(port, "/v1/jobs", method="POST", body=body, headers=ask)
        job_id = (await new.next("accepted"))[2]["job_id"]
        path = f"/v1/jobs/{job_id}/events"
        streams = {name: await opened(port, path, headers=bearer(name)) for name in ("a", "b", "root")}
        streams["acting"] = await opened(port, path, headers=bearer("root", "forebay-tenant: t"))
        streams["new"] = new
        for stream in streams.values():
            await stream.next("status")
        front.watchman.use(read_ring(ring(a=None), None))
        await lease(front)
        for name in ("a", "new"):
            await streams[name].rest()
            kind, _, data = streams[name].events[-1]
            assert (kind, data) == ("closing", {"reason": "unauthorized", "retry_after_s": None})
        for name in ("b", "root", "acting"):
            assert (await streams[name].next("status"))[2]["state"] == "running"
        # One that is past its time, and two that may do less, are taken away in part.
        past = {"tenant": "t", "expires": "2001-01-01T00:00:00Z"}
        less = {"tenant": "ops", "scopes": ["read"]}
        front.watchman.use(read_ring(ring(b=past, root=less), None))
        for name in ("b", "root", "acting"):
            await streams[name].rest()
            assert streams[name].events[-1][2].get("reason") == "unauthorized", name

    served(run, keys=ring())
