"""Plain lines of a bulk: the short way makes the same jobs as the long one, and leaves it what is not plain."""

import pytest

from forebay.core.task import TaskSpec
from forebay.server.plain import PlainJobs, decode_plain
from forebay.server.wire import decode, job_from
from tests.server.doors import call

NOW = 1_800_000_000.25
TASKS = {
    "echo": TaskSpec(name="echo"),
    "hurried": TaskSpec(name="hurried", deadline_s=5.0, ttl_s=3.0, priority=2, attempts_max=1, version="7"),
}
PLAIN = {
    "a number": b'{"task":"echo","payload":1}',
    "in another order": b'{"payload":{"a":1,"b":null},"task":"echo"}',
    "with spaces": b' { "task" : "echo" , "payload" : [ 1 , 2 ] } ',
    "nested": b'{"task":"echo","payload":{"a":{"b":[{"c":1}]}}}',
    "escapes": b'{"task":"ec\\u0068o","payload":"a\\nb"}',
    "a name twice": b'{"task":"other","payload":1,"task":"echo","payload":2}',
    "of a task with facts of its own": b'{"task":"hurried","payload":"x"}',
}
NOT_PLAIN = {
    "an option": b'{"task":"echo","payload":1,"priority":"high"}',
    "an option that is null": b'{"task":"echo","payload":1,"ttl":null}',
    "a key": b'{"task":"echo","payload":1,"idempotency_key":"k"}',
    "a field that is none": b'{"task":"echo","payload":1,"prio":1}',
    "no payload": b'{"task":"echo"}',
    "no task": b'{"payload":1}',
    "a task that is no text": b'{"task":7,"payload":1}',
    "no object": b"[1]",
    "no JSON": b'{"task":"echo","payload":',
    "a payload that is no JSON": b'{"task":"echo","payload":01}',
    "a number that is none": b'{"task":"echo","payload":1e999}',
    "a broken text": b'{"task":"echo","payload":"\\ud800"}',
    "not ASCII": '{"task":"echo","payload":"ä"}'.encode(),
    "not UTF-8": b'{"task":"echo","payload":"\xff"}',
    "too deep": b'{"task":"echo","payload":' + b"[" * 150 + b"]" * 150 + b"}",
    "far too deep": b'{"task":"echo","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("line", PLAIN.values(), ids=PLAIN)
def test_the_short_way_makes_the_same_job(line):
    plain, payload = decode_plain(line)
    submission, same = decode(line)
    assert (plain.task, bytes(plain.payload), payload) == (submission.task, bytes(submission.payload), same)
    made = PlainJobs(TASKS, now=NOW, tenant="acme").make(plain, "id")
    long_way = job_from(submission, TASKS[plain.task], job_id="id", now=NOW, tenant="acme")
    assert made == long_way and type(made) is type(long_way)


@pytest.mark.parametrize("line", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_has_options_or_is_wrong_is_left_to_the_long_way(line):
    assert decode_plain(line) is None


def test_lines_of_every_kind_are_answered_in_their_places():
    mixed = [*PLAIN.values(), *NOT_PLAIN.values()] * 2

    async def together(caller):
        answer, verdicts = await caller.bulk(*mixed)
        assert [verdict["line"] for verdict in verdicts] == [*range(1, len(mixed) + 1)]
        stored = [job.payload for job in await leased(caller.front)]
        return [
            (verdict["status"], verdict.get("code"), verdict.get("detail")) for verdict in verdicts
        ], stored

    async def alone(caller):
        told = []
        for line in mixed:
            answer = await caller.raw(line)
            told.append((answer.status_code, answer.json().get("code"), answer.json().get("detail")))
        return told, [job.payload for job in await leased(caller.front)]

    told, stored = call(together, tasks=TASKS)
    assert (told, stored) == call(alone, tasks=TASKS)


async def leased(front):
    found = []
    for task in TASKS:
        leases = await front.broker.lease(task, limit=100, lease_s=30, worker="w", now=front.clock.now())
        found += [lease.job for lease in leases]
    return found
