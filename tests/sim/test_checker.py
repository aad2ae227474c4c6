"""The checker's own tests: one hand-made bad history for each invariant, and a good one."""

import pytest

from forebay.core import settle
from forebay.core.job import Attempt, Job, JobError, JobRecord, Lease, Receipt, Standing, Verdict
from forebay.core.lifecycle import Event, State
from forebay.core.retry import RetryPolicy
from forebay.sim.checker import Checker
from forebay.sim.invariants import INVARIANTS, BrokenError

JOB = Job("j1", "t", b"{}", 0.0, 0.0)
OTHER = Job("j2", "t", b"{}", 0.0, 0.0, priority=2)
TIMED = Job("j3", "t", b"{}", 0.0, 0.0, expires_at=5.0)
WHY = JobError("failed", "bad")
RETRY = RetryPolicy(base_s=1.0, cap_s=4.0)

QUEUED = Standing(State.QUEUED)
RUNNING = Standing(State.RUNNING, attempt=1, fence=1, lease_until=30.0, started_at=0.0)
DONE = Standing(State.SUCCEEDED, attempt=1, fence=1, finished_at=1.0, output=b"1")
DEAD = Standing(
    State.DEAD,
    attempt=1,
    fence=1,
    finished_at=1.0,
    error=WHY,
    attempts=(Attempt(1, 0.0, 1.0, Event.EXHAUSTED, "w"),),
)


def a_lease(job=JOB, fence=1, attempt=1, suspect=False):
    return Lease(job, fence, attempt, 30.0, "w", 0.0, suspect=suspect)


def seeing(*standings, job=JOB, exact=True):
    checker = Checker()
    for standing in standings:
        checker.seen(JobRecord(job, standing), now=1.0, exact=exact)
    return checker


def receipt(job=JOB, verdict=Verdict.STORED):
    return Receipt(verdict, job.id, State.QUEUED)


def acknowledged_and_gone():
    checker = seeing(QUEUED)
    checker.sent(1, tenant="", key=None, body=b"")
    checker.acknowledged(1, "j1")
    checker.all_there(lambda job_id: None, now=2.0)


def acknowledged_and_lost_in_a_crash():
    checker = seeing(QUEUED)
    checker.sent(1, tenant="", key=None, body=b"")
    checker.acknowledged(1, "j1")
    checker.gone("j1")


def nobody_sent_it():
    Checker().stored(JOB, receipt(), request=7)


def keyed(*jobs, verdict=Verdict.STORED, requests=(1, 2)):
    checker = Checker()
    for request, job in zip(requests, jobs, strict=True):
        checker.sent(request, tenant="", key=job.idempotency_key, body=job.body_hash)
        checker.stored(job, receipt(job, verdict if job is not jobs[0] else Verdict.STORED), request=request)
    return checker


def one_key_two_jobs():
    keyed(JOB._replace(idempotency_key="k"), OTHER._replace(idempotency_key="k"))


def one_key_and_the_answer_names_another():
    keyed(JOB._replace(idempotency_key="k"), OTHER._replace(idempotency_key="k"), verdict=Verdict.REPLAYED)


def the_same_body_is_called_a_conflict():
    one = JOB._replace(idempotency_key="k")
    keyed(one, one._replace(payload=b"x"), verdict=Verdict.CONFLICT)


def one_request_two_jobs():
    keyed(JOB, OTHER, requests=(1, 1))


def a_caller_hears_of_two_jobs():
    checker = keyed(JOB, OTHER)
    checker.acknowledged(1, "j1")
    checker.acknowledged(1, "j2")


def a_caller_is_refused_for_its_own_body():
    checker = keyed(JOB._replace(idempotency_key="k"), requests=(1,))
    checker.sent(2, tenant="", key="k", body=b"")
    checker.conflicted(2)


def commit(checker, transition, *, applied=True, now=1.0):
    checker.committed(transition, applied=applied, now=now, policy=RETRY)


def failed(**fields):
    policy = settle.SettlePolicy(retry=RETRY)
    return settle.fail(a_lease(), error=WHY, policy=policy, now=1.0, jitter=0.5)._replace(**fields)


BAD = [
    ("S1", acknowledged_and_gone),
    ("S1", acknowledged_and_lost_in_a_crash),
    ("S2", nobody_sent_it),
    ("S3", one_key_two_jobs),
    ("S3", one_key_and_the_answer_names_another),
    ("S3", the_same_body_is_called_a_conflict),
    ("S3", one_request_two_jobs),
    ("S3", a_caller_hears_of_two_jobs),
    ("S3", a_caller_is_refused_for_its_own_body),
    ("T1", lambda: seeing(QUEUED, RUNNING, DONE, DONE._replace(output=b"2"))),
    ("T1", lambda: seeing(RUNNING, DONE, DONE._replace(finished_at=9.0), exact=False)),
    ("T1", lambda: commit(seeing(DONE), settle.complete(a_lease(), output=b"2", now=2.0))),
    ("T1", lambda: seeing(QUEUED).seen(JobRecord(JOB._replace(payload=b"x"), RUNNING), now=1.0)),
    ("T2", lambda: seeing(QUEUED, Standing(State.RETRYING))),
    ("T2", lambda: seeing(QUEUED, Standing(State.SCHEDULED), exact=True)),
    ("T3", lambda: seeing(QUEUED).all_ended()),
    ("L1", lambda: seeing(QUEUED, RUNNING, RUNNING._replace(fence=2))),
    ("L1", lambda: seeing(RUNNING).granted(a_lease(fence=2), now=1.0)),
    ("L1", lambda: commit(seeing(RUNNING), settle.lose(a_lease(), error=WHY, now=1.0))),
    ("L1", lambda: seeing(RUNNING).renewed("j1", 1, held=False, now=1.0)),
    ("L1", lambda: seeing(RUNNING._replace(lease_until=None))),
    ("L2", lambda: seeing(QUEUED._replace(fence=3)).granted(a_lease(fence=3), now=1.0)),
    ("L2", lambda: seeing(QUEUED, RUNNING._replace(fence=0))),
    ("L2", lambda: seeing(RUNNING._replace(fence=4), RUNNING._replace(fence=3), exact=False)),
    ("L3", lambda: commit(seeing(RUNNING), settle.complete(a_lease(fence=0), output=b"1", now=1.0))),
    ("L3", lambda: commit(seeing(RUNNING), settle.complete(a_lease(), output=b"1", now=1.0), applied=False)),
    ("L3", lambda: seeing(RUNNING).renewed("j1", 2, held=True, now=1.0)),
    ("L4", lambda: seeing(RUNNING).renewed("j1", 1, held=True, now=30.0)),
    ("R1", lambda: seeing(RUNNING._replace(attempt=4))),
    ("R1", lambda: seeing(QUEUED, RUNNING._replace(attempt=0))),
    ("R1", lambda: seeing(QUEUED).granted(a_lease(attempt=2), now=1.0)),
    ("R1", lambda: commit(seeing(RUNNING), failed(deaths=1))),
    ("R1", lambda: commit(seeing(RUNNING), failed(event=Event.RELEASED, state=State.QUEUED))),
    ("R2", lambda: commit(seeing(RUNNING), failed(ready_at=1.0))),
    ("R2", lambda: commit(seeing(RUNNING), failed(ready_at=6.0))),
    ("R3", lambda: (c := seeing(RUNNING)).produced("j1", 1, b"9") or c.seen(JobRecord(JOB, DONE), now=1.0)),
    ("R3", lambda: seeing(DEAD._replace(output=b"1"))),
    ("D1", lambda: seeing(DEAD._replace(error=None))),
    ("D1", lambda: seeing(DEAD._replace(attempts=()))),
    ("X1", lambda: Checker().granted(a_lease(TIMED), now=5.0)),
    ("X1", lambda: seeing(QUEUED, Standing(State.EXPIRED, finished_at=1.0), job=TIMED)),
    (
        "X1",
        lambda: seeing(RUNNING, job=JOB._replace(deadline_at=2.0)).started(
            [a_lease(JOB._replace(deadline_at=2.0))], beside=0, now=3.0
        ),
    ),
    (
        "X2",
        lambda: seeing(QUEUED, Standing(State.CANCELLED, finished_at=1.0)).started(
            [a_lease()], beside=0, now=2.0
        ),
    ),
    (
        "P1",
        lambda: (
            (c := seeing(QUEUED)).seen(JobRecord(OTHER, QUEUED), now=1.0)
            or c.queue_served("t", [a_lease()], limit=1, now=1.0, ageing_s=60.0)
        ),
    ),
    (
        "K1",
        lambda: (
            (c := Checker()).seen(JobRecord(JOB._replace(ordering_key="k"), QUEUED), now=1.0)
            or c.seen(JobRecord(OTHER._replace(ordering_key="k"), QUEUED), now=1.0)
            or c.queue_served(
                "t",
                [a_lease(max(JOB, OTHER, key=lambda job: job.id)._replace(ordering_key="k"))],
                limit=1,
                now=1.0,
                ageing_s=60.0,
            )
        ),
    ),
    ("P1", lambda: seeing(QUEUED).queue_served("t", [], limit=1, now=1.0, ageing_s=60.0)),
    ("O1", lambda: seeing(QUEUED).adds_up(kept={State.QUEUED: 2}, stored=1)),
    ("O1", lambda: seeing(QUEUED).adds_up(kept={State.QUEUED: 1}, stored=2)),
    ("Q1", lambda: Checker().started([a_lease(suspect=True), a_lease(OTHER)], beside=0, now=1.0)),
    ("Q1", lambda: Checker().started([a_lease(suspect=True)], beside=1, now=1.0)),
]


@pytest.mark.parametrize(("invariant", "history"), BAD)
def test_a_bad_history_is_refused_and_named(invariant, history):
    with pytest.raises(BrokenError) as caught:
        history()
    assert caught.value.invariant == invariant
    assert INVARIANTS[invariant] in str(caught.value)


def test_every_invariant_has_a_bad_history():
    covered = {invariant for invariant, _ in BAD}
    assert covered == set(INVARIANTS) - {"B1"}  # B1 is about a node: the planted bugs show it


def test_a_good_life_is_accepted():
    checker = Checker()
    checker.sent(1, tenant="", key=None, body=b"")
    checker.stored(JOB, receipt(), request=1)
    checker.seen(JobRecord(JOB, QUEUED), now=0.0, exact=True)
    checker.acknowledged(1, "j1")
    checker.queue_served("t", [a_lease()], limit=4, now=0.0, ageing_s=60.0)
    checker.granted(a_lease(), now=0.0)
    checker.seen(JobRecord(JOB, RUNNING), now=0.0, exact=True)
    checker.started([a_lease()], beside=0, now=0.0)
    checker.renewed("j1", 1, held=True, now=0.5)
    checker.produced("j1", 1, b"1")
    commit(checker, settle.complete(a_lease(), output=b"1", now=1.0))
    checker.seen(JobRecord(JOB, DONE), now=1.0, exact=True)
    commit(checker, settle.complete(a_lease(), output=b"1", now=1.0), applied=False)
    checker.all_ended()
    checker.adds_up(kept={State.QUEUED: 0, State.DEAD: 0}, stored=1)
    checker.all_there(lambda job_id: JobRecord(JOB, DONE), now=2.0)


def test_a_real_run_that_is_looked_at_now_and_then_is_accepted():
    """Records are read rarely: many changes may lie between two sights."""
    late = Standing(State.RETRYING, attempt=2, fence=3, ready_at=9.0)
    checker = seeing(QUEUED, late, DONE._replace(attempt=3, fence=5), exact=False)
    checker.all_ended()


def test_what_was_never_seen_is_not_judged():
    checker = Checker()
    commit(checker, failed())
    checker.renewed("j1", 1, held=True, now=99.0)
    checker.granted(a_lease(), now=0.0)
    checker.produced("j1", 1, b"1")
    checker.crashed(["j1"])
    checker.started([a_lease()], beside=0, now=0.0)


def test_a_crash_may_take_what_nobody_was_told_of():
    checker = keyed(JOB._replace(idempotency_key="k"), requests=(1,))
    checker.seen(JobRecord(JOB, QUEUED), now=0.0)
    checker.gone("j1")
    checker.stored(OTHER._replace(idempotency_key="k"), receipt(OTHER), request=1)
