"""The timeline of a job says what happened, when, and for how long; from the record alone."""

import asyncio
import json

import pytest

from forebay.brokers.sqlite import SqliteBroker
from forebay.clock import SystemClock
from forebay.core import settle
from forebay.core.job import ATTEMPTS_KEPT, Job, JobError, JobRecord
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import Event
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.server.render import job_json
from forebay.server.timeline import timeline

POLICY = SettlePolicy(retry=RetryPolicy(base_s=2.0, cap_s=2.0), deaths_max=99)
BOOM = JobError("boom", "no", "ValueError", 1)


class Life:
    """One job of a ledger, at times that are said."""

    def __init__(self, **fields):
        self.ledger = Ledger()
        job_id = self.ledger.new_id(0.0)
        self.job = Job(job_id, "t", b"1", 0.0, fields.pop("run_at", 0.0), attempts_max=99, **fields)
        self.ledger.enqueue([self.job], now=0.0)

    def lease(self, at):
        self.ledger.sweep(limit=10, now=at)
        (held,) = self.ledger.lease("t", limit=1, lease_s=30.0, worker=f"w{at:g}", now=at)
        return held

    def end(self, transition):
        assert self.ledger.commit([transition], now=transition.at) == [True]

    def told(self, at):
        record = self.ledger.get(self.job.id, now=at)
        assert record is not None
        return [
            {name: value for name, value in event.items() if name != "at"} | {"at": seconds(event["at"])}
            for event in timeline(record, at)
        ]

    def names(self, at):
        return [event["event"] for event in self.told(at)]


def seconds(text):
    return None if text is None else float(text.partition("T")[2].rstrip("Z").replace("00:00:", ""))


def test_a_plain_job():
    life = Life()
    assert life.names(0.0) == ["accepted", "queued"]
    held = life.lease(1.5)
    assert life.told(2.0)[2:] == [
        {"event": "started", "at": 1.5, "attempt": 1, "worker": "w1.5", "waited_s": 1.5}
    ]
    life.end(settle.complete(held, output=b"1", now=4.0))
    assert life.told(9.0)[3:] == [{"event": "succeeded", "at": 4.0, "took_s": 4.0, "ran_s": 2.5}]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("run_at", [0.0, 3.0])
def test_what_is_written_straight_down_is_what_the_table_says(ends, run_at):
    life = Life(run_at=run_at)
    if ends:
        life.end(settle.complete(life.lease(4.25), output=b"1", now=9.125))
    record = life.ledger.get(life.job.id, now=10.0)
    assert json.loads(job_json(record, now=10.0))["timeline"] == timeline(record, 10.0)


def test_a_scheduled_job_is_queued_when_its_time_has_come():
    life = Life(run_at=10.0)
    assert life.names(5.0) == ["accepted", "scheduled"]
    assert seconds(life.told(5.0)[1]["until"]) == 10.0
    life.lease(12.0)
    assert life.names(12.0) == ["accepted", "scheduled", "queued", "started"]
    assert life.told(12.0)[2]["at"] == 10.0 and life.told(12.0)[3]["waited_s"] == 2.0


def test_a_job_that_is_retried_says_why_and_when_again():
    life = Life()
    held = life.lease(1.0)
    life.end(settle.fail(held, error=BOOM, policy=POLICY, now=3.0, jitter=1.0))
    *_, retried = life.told(3.5)
    assert (retried["event"], retried["attempt"], retried["ran_s"]) == ("retried", 1, 2.0)
    assert retried["error"]["code"] == "boom" and 4.0 <= seconds(retried["next_at"]) <= 5.0
    life.lease(6.0)
    assert life.names(6.0) == ["accepted", "queued", "started", "retried", "queued", "started"]
    assert life.told(6.0)[-1]["attempt"] == 2
    assert life.told(6.0)[-1]["waited_s"] == pytest.approx(6.0 - seconds(retried["next_at"]))


@pytest.mark.parametrize(
    ("end", "name"),
    [
        (lambda held: settle.suspect(held, error=BOOM, policy=POLICY, now=2.0), "suspected"),
        (lambda held: settle.lose(held, error=BOOM, now=2.0), "lost"),
        (lambda held: settle.release(held, policy=POLICY, now=2.0), "released"),
    ],
)
def test_a_job_that_goes_back_at_once_is_told_so(end, name):
    life = Life()
    life.end(end(life.lease(1.0)))
    assert life.names(2.0) == ["accepted", "queued", "started", name]
    life.lease(5.0)
    assert life.told(5.0)[-1]["waited_s"] == 3.0


def test_the_end_has_its_own_name():
    for end, names in (
        (lambda held: settle.fail(held, error=BOOM, policy=POLICY, now=2.0, jitter=0.0, permanent=True),
         ["started", "exhausted", "dead"]),
        (lambda held: settle.cancel(held, now=2.0), ["started", "cancelled"]),
        (lambda held: settle.expire(held, now=2.0), ["started", "expired"]),
    ):  # fmt: skip
        life = Life()
        life.end(end(life.lease(1.0)))
        assert life.names(9.0)[2:] == names
        assert life.told(9.0)[-1]["took_s"] == 2.0


def test_a_job_that_ends_while_it_waits_was_queued_only_if_its_time_had_come():
    for run_at, names in (
        (0.0, ["accepted", "queued", "cancelled"]),
        (50.0, ["accepted", "scheduled", "cancelled"]),
    ):
        life = Life(run_at=run_at)
        life.ledger.cancel([life.job.id], now=3.0)
        assert life.names(99.0) == names


def test_a_running_job_that_somebody_wants_cancelled_says_so():
    life = Life()
    life.lease(1.0)
    life.ledger.cancel([life.job.id], now=3.0)
    life.ledger.cancel([life.job.id], now=3.5)
    assert life.told(4.0)[-1] == {"event": "cancel_requested", "at": 3.0}


def test_attempts_that_are_kept_no_more_are_counted():
    life = Life()
    for number in range(ATTEMPTS_KEPT + 5):
        life.end(settle.lose(life.lease(1.0 + number), error=BOOM, now=1.5 + number))
    assert life.told(50.0)[2] == {"event": "omitted", "at": None, "count": 5}
    assert life.names(50.0).count("lost") == ATTEMPTS_KEPT


def test_it_is_the_same_after_a_restart_and_reads_what_an_older_version_stored(tmp_path):
    async def run() -> JobRecord:
        clock = SystemClock()
        broker = await SqliteBroker.open(tmp_path, clock=clock)
        now = clock.now()
        job = Job(broker.new_id(now), "t", b"1", now, now)
        await broker.enqueue([job], now=now)
        (held,) = await broker.lease("t", limit=1, lease_s=30.0, worker="w", now=now)
        await broker.commit([settle.fail(held, error=BOOM, policy=POLICY, now=now + 1, jitter=1.0)], now=now)
        before = await broker.get(job.id, now=now)
        await broker.close()
        again = await SqliteBroker.open(tmp_path, clock=clock)
        after = await again.get(job.id, now=now)
        await again.close()
        assert before is not None and after is not None
        assert timeline(before, now) == timeline(after, now)
        assert after.standing.attempts[0].next_at == after.standing.ready_at
        return after

    record = asyncio.run(run())
    import msgspec

    from forebay.brokers.sqlite.rows import attempts_of

    old = msgspec.msgpack.encode([list(record.standing.attempts[0])[:6]])
    assert attempts_of(old)[0].outcome is Event.FAILED and attempts_of(old)[0].next_at is None
