"""What a failed attempt leaves behind: the class of its error, its company, what was printed, all bounded."""

import pytest

from forebay.core import settle
from forebay.core.actions import Outcome
from forebay.core.evidence import LOG_KEPT_B, MATES_KEPT, cause_of, log_for, witnessed
from forebay.core.job import Job, JobError, Lease, Standing
from forebay.core.lifecycle import State
from forebay.core.settle import SettlePolicy
from tests.core.dispatching import BATCH
from tests.sim.rig import BAD, CRASH, Rig, a_spec

JOB = Job("j", "t", b"{}", 0.0, 0.0)


def a_failure(lease=None, log="", mates=()):
    lease = lease or Lease(JOB, 1, 1, 30.0, "w", 0.0)
    end = settle.fail(lease, error=BAD, policy=SettlePolicy(), now=1.0, jitter=0.0)
    return witnessed(end, log=log, mates=mates)


@pytest.mark.parametrize(
    ("error", "attempt", "deaths", "cause"),
    [
        (JobError("handler_failed", "no", "ValueError"), 3, 0, "transient"),
        (JobError("handler_failed", "no", "Permanent"), 3, 0, "permanent"),
        (JobError("handler_failed", "no", "NotMine"), 1, 0, "permanent"),
        (JobError("invalid_payload", "no"), 3, 0, "permanent"),
        (JobError("handler_failed", "no", "MemoryError"), 3, 0, "resource"),
        (JobError("handler_failed", "no", "torch.OutOfMemoryError"), 3, 0, "resource"),
        (JobError("timeout", "late"), 3, 0, "resource"),
        (JobError("worker_lost", "gone", "oom"), 2, 2, "resource"),
        (JobError("worker_lost", "gone", "signal"), 2, 2, "poison"),
        (JobError("worker_lost", "gone", "exit"), 3, 1, "poison"),
        (JobError("worker_lost", "the node went"), 3, 0, "transient"),
        (JobError("released_too_often", "100 times"), 1, 0, "transient"),
        (None, 1, 0, "transient"),
    ],
)
def test_a_dead_letter_has_one_of_four_causes(error, attempt, deaths, cause):
    assert cause_of(JOB, Standing(State.DEAD, attempt, 1, deaths, error=error)).value == cause


def test_members_of_a_crashed_batch_keep_the_ids_of_their_mates_and_what_was_printed():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=3)
    rig.d.replica_died(1, error=CRASH, now=rig.now, jitter=0.0, log="about to crash")
    rig.poll()
    ids = {end.job_id for end in rig.ended}
    assert len(ids) == 3
    for end in rig.ended:
        assert set(end.attempts[-1].mates) == ids - {end.job_id}
        assert end.attempts[-1].log == "about to crash"


def test_an_item_that_failed_keeps_what_was_printed_and_one_that_succeeded_keeps_nothing():
    rig = Rig(a_spec(**BATCH))
    (run,) = rig.lease(count=2)
    good, bad = [tag for tag, _ in run.items]
    outcomes = [Outcome(good, b"1"), Outcome(bad, None, BAD)]
    rig.d.results(outcomes, now=rig.now, jitter=0.0, log="a line")
    rig.poll()
    done, failed = rig.ended
    assert done.attempts == () and failed.attempts[-1].log == "a line"
    assert failed.attempts[-1].mates == (done.job_id,)


def test_success_forgets_the_evidence_of_earlier_tries():
    (tried,) = a_failure(log="a line", mates=("m",)).attempts
    done = settle.complete(Lease(JOB, 2, 2, 30.0, "w", 0.0, attempts=(tried,)), output=b"1", now=2.0)
    assert done.attempts == (tried._replace(log="", mates=()),)


def test_what_may_be_of_another_tenant_is_not_kept():
    mine = JOB._replace(tenant="a")
    assert log_for("x", mine, tenants=["a", "a"], mixed=False) == "x"
    assert log_for("x", mine, tenants=["a", "b"], mixed=False) == ""
    assert log_for("x", mine, tenants=["a"], mixed=True) == "", "nobody knows what ran there before"
    assert log_for("x", JOB, tenants=[""], mixed=True) == "x"


@pytest.mark.parametrize("crash", [True, False])
def test_a_failure_beside_another_tenants_job_keeps_no_log(crash):
    rig = Rig(a_spec(**BATCH))
    mine, other = rig.jobs(2)
    (run,) = rig.give([mine, other._replace(job=other.job._replace(tenant="b"))])
    if crash:
        rig.d.replica_died(1, error=CRASH, now=rig.now, jitter=0.0, log="secret")
    else:
        (bad, _), (good, _) = run.items
        outcomes = [Outcome(good, b"1"), Outcome(bad, None, BAD)]
        rig.d.results(outcomes, now=rig.now, jitter=0.0, log="secret")
    rig.poll()
    assert len(rig.ended) == 2 and all(one.log == "" for end in rig.ended for one in end.attempts)


def test_the_log_of_all_attempts_of_a_job_is_bounded_and_the_newest_is_kept():
    attempts = ()
    for number in range(5):
        lease = Lease(JOB._replace(attempts_max=9), 1, number + 1, 30.0, "w", 0.0, attempts=attempts)
        log = "\n".join(f"{number} \u00e4 line {n}" for n in range(120))
        attempts = a_failure(lease, log).attempts
    kept = [attempt.log for attempt in attempts]
    assert sum(len(log.encode()) for log in kept) <= LOG_KEPT_B
    assert kept[-1].endswith("line 119") and kept[0] == ""
    assert all(line[0].isdigit() for log in kept for line in log.splitlines()), "lines are whole"


def test_one_endless_line_is_cut_to_the_bound():
    log = a_failure(log="\u00e4" * 10_000).attempts[-1].log
    assert 0 < len(log.encode()) <= LOG_KEPT_B


def test_the_ids_of_mates_are_bounded():
    assert len(a_failure(mates=[f"m{n}" for n in range(1000)]).attempts[-1].mates) == MATES_KEPT
