"""Which inputs go into quarantine, what clears them, and what a decided end says of its input."""

import random

import pytest

from forebay.core import settle
from forebay.core.evidence import Cause, cause_of
from forebay.core.job import Charge, Job, JobError, Lease, Standing
from forebay.core.lifecycle import State
from forebay.core.quarantine import INPUTS_MAX, KEPT_S, READ_BYTES_MAX, DeadlyInput, Inputs, fingerprint_of
from forebay.core.settle import SettlePolicy

T0 = 1_800_000_000.0
LOST = JobError("worker_lost", "SIGSEGV", "signal", 1)


def a_job(number=1, **fields):
    return Job(f"job-{number}", **{"task": "t", "payload": b"1", "created_at": T0, "run_at": T0} | fields)


def a_lease(job=None, **fields):
    return Lease(job or a_job(), 1, fields.pop("attempt", 1), T0 + 30, "w", T0, **fields)


def charge(job, condemns_at=2):
    return Charge(fingerprint_of(job), condemns_at)


def after(*ends, inputs=None):
    """Return what is known after these (job, charge, at)."""
    inputs = Inputs() if inputs is None else inputs
    for job, what, at in ends:
        inputs.apply(inputs.charged(job, what, at=at))
    return inputs


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({}, {"id": "another", "metadata": b"{}", "priority": 0, "attempts_max": 9}, True),
        ({}, {"payload": b" 1 "}, True),
        ({}, {"payload": b"1.0"}, False),
        ({"payload": b'{"a":1,"b":["\xc3\xa9"]}'}, {"payload": b'{ "b":["\\u00e9"], "a":1}'}, True),
        ({"payload": b"[1,2]"}, {"payload": b"[2,1]"}, False),
        ({"payload": b"9" * 5000}, {"payload": b" " + b"9" * 5000}, False),
        ({"payload": b"1" + b" " * READ_BYTES_MAX}, {"payload": b" 1" + b" " * READ_BYTES_MAX}, False),
        ({}, {"tenant": "x"}, False),
        ({}, {"version": "2"}, False),
        ({}, {"task": "u"}, False),
        ({"tenant": "ab", "task": "c"}, {"tenant": "a", "task": "bc"}, False),
        ({"version": "1", "payload": b"23"}, {"version": "12", "payload": b"3"}, False),
    ],
)
def test_an_input_is_a_payload_of_one_tenant_for_one_version_of_a_task(one, other, same):
    assert (fingerprint_of(a_job()._replace(**one)) == fingerprint_of(a_job()._replace(**other))) is same


@pytest.mark.parametrize(
    ("policy", "condemns_at"),
    [
        (SettlePolicy(), 3),
        (SettlePolicy(deaths_max=5), 6),
        (SettlePolicy(quarantine_deaths=1), 1),
        (SettlePolicy(quarantine_deaths=0), 0),
    ],
)
def test_by_default_it_takes_the_deaths_of_more_than_one_job(policy, condemns_at):
    assert policy.condemns_at == condemns_at
    death = settle.die(a_lease(), error=LOST, policy=policy, now=T0, jitter=0.0)
    assert death.charge == (charge(a_job(), condemns_at) if condemns_at else None)


def test_both_ends_of_a_death_charge_the_input():
    for lease, state in ((a_lease(), State.RETRYING), (a_lease(deaths=1, attempt=2), State.DEAD)):
        death = settle.die(lease, error=LOST, policy=SettlePolicy(), now=T0, jitter=0.0)
        assert death.state is state and death.charge == charge(lease.job, 3)


def test_no_other_end_says_anything_of_the_input_but_a_success_after_a_death():
    lease, policy = a_lease(deaths=1), SettlePolicy()
    assert settle.complete(lease, output=b"1", now=T0).charge == Charge(fingerprint_of(lease.job), 0)
    assert settle.complete(a_lease(), output=b"1", now=T0).charge is None
    for end in (
        settle.fail(lease, error=LOST, policy=policy, now=T0, jitter=0.0),
        settle.suspect(lease, error=LOST, policy=policy, now=T0),
        settle.lose(lease, error=LOST, now=T0),
        settle.release(lease, policy=policy, now=T0),
        settle.cancel(lease, now=T0),
        settle.expire(lease, now=T0),
    ):
        assert end.charge is None, end


def test_a_cancel_does_not_hide_who_killed_the_worker():
    lease = a_lease(cancel_requested=True)
    death = settle.die(lease, error=LOST, policy=SettlePolicy(), now=T0, jitter=0.0)
    assert settle.cancelled_instead(death, lease).charge == death.charge


def test_the_deaths_that_it_takes_condemn_and_later_ones_are_counted():
    jobs = [a_job(number) for number in range(3)]
    inputs = after(*((job, charge(job), T0 + n) for n, job in enumerate(jobs)))
    row = inputs.get("t", fingerprint_of(jobs[0]))
    expected = DeadlyInput(fingerprint_of(jobs[0]), "t", "", "", 3, "job-2", T0, T0 + 2, T0 + 1)
    assert row == expected and inputs.counts() == {"t": 1}


def test_a_success_after_a_death_clears_what_is_not_condemned_yet():
    job = a_job()
    innocent = (job, charge(job, 0), T0 + 1)
    assert list(after((job, charge(job), T0), innocent)) == []
    assert list(after(innocent)) == []
    condemned = after((job, charge(job, 1), T0), innocent)
    assert [row.deaths for row in condemned] == [1]


def test_deaths_that_lie_far_apart_do_not_add_up():
    job = a_job()
    apart = after((job, charge(job), T0), (job, charge(job), T0 + KEPT_S))
    assert [(row.deaths, row.since) for row in apart] == [(1, T0 + KEPT_S)]
    near = after((job, charge(job), T0), (job, charge(job), T0 + KEPT_S - 1))
    assert [row.deaths for row in near] == [2] and near.counts() == {"t": 1}
    assert near.aged(T0 + 2 * KEPT_S - 2) == []
    assert near.aged(T0 + 2 * KEPT_S - 1) == [("t", fingerprint_of(job), None)]


def test_of_too_many_inputs_the_one_with_the_oldest_death_goes():
    jobs = [a_job(number, payload=b"%d" % number) for number in range(INPUTS_MAX + 2)]
    inputs = after(*((job, charge(job), T0 + n) for n, job in enumerate(jobs[:INPUTS_MAX])))
    inputs = after((jobs[0], charge(jobs[0]), T0 + INPUTS_MAX), inputs=inputs)
    assert len(list(inputs)) == INPUTS_MAX, "one more death of a known one takes no room"
    inputs = after(*((job, charge(job), T0 + 2 * INPUTS_MAX) for job in jobs[INPUTS_MAX:]), inputs=inputs)
    left = {row.job_id for row in inputs}
    assert len(left) == INPUTS_MAX and left == {job.id for job in jobs} - {"job-1", "job-2"}


def test_whatever_was_changed_can_be_taken_back():
    draw = random.Random(7)
    inputs, jobs = Inputs(), [a_job(n, payload=b"%d" % n, task=draw.choice("tu")) for n in range(6)]
    for step in range(400):
        before, counts, job = list(inputs), dict(inputs.counts()), draw.choice(jobs)
        changes = inputs.charged(job, charge(job, draw.choice((0, 1, 2, 3))), at=T0 + step)
        if draw.random() < 0.1:
            changes = [(row.task, row.fingerprint, None) for row in before]
        back = inputs.apply(changes)
        counted = sum(row.condemned_at is not None for row in inputs)
        assert sum(inputs.counts().values()) == counted
        if draw.random() < 0.5:
            inputs.apply(back)
            assert (list(inputs), dict(inputs.counts())) == (before, counts)


def test_only_a_job_from_after_the_last_death_gets_another_try():
    row = DeadlyInput(b"f", "t", "", "", 3, "job-1", T0 - 9, T0, T0 - 1)
    assert row.bars(T0 - 100) and row.bars(T0) and not row.bars(T0 + 0.001)


def test_a_job_that_is_held_out_ends_with_the_cause_and_who_to_ask():
    row = DeadlyInput(b"f" * 16, "t", "", "", 3, "job-1", T0 - 9, T0, T0 - 1)
    end = settle.bar(a_lease(attempt=1), row, now=T0)
    assert (end.state, end.error.code, end.deaths, end.charge) == (State.DEAD, "quarantined", 0, None)
    assert "killed 3 workers" in end.error.message and row.fingerprint.hex() in end.error.message
    assert "job-1" in end.error.message
    standing = Standing(State.DEAD, attempt=1, error=end.error)
    assert cause_of(a_job(), standing) is Cause.POISON
