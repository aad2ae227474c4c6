"""A job of another version than its task: run, handed back for a worker of its own, or ended."""

import pytest

from forebay.core import settle
from forebay.core.lifecycle import Event, State
from tests.sim.rig import Rig, a_spec


def of_version(rig, version, **fields):
    (lease,) = rig.jobs(1, **fields)
    return lease._replace(job=lease.job._replace(version=version))


@pytest.mark.parametrize("on_version", ["run", "wait", "fail"])
@pytest.mark.parametrize("version", ["", "2"])
def test_a_job_of_the_same_version_or_of_none_runs(on_version, version):
    rig = Rig(a_spec(version="2", on_version=on_version))
    assert rig.give([of_version(rig, version)]) and rig.ended == []


def test_by_default_the_new_code_runs_old_jobs():
    rig = Rig(a_spec(version="2"))
    assert rig.give([of_version(rig, "1")]) and rig.ended == []


def test_one_that_waits_is_handed_back_without_a_charge_and_without_a_count():
    rig = Rig(a_spec(version="2", on_version="wait"))
    lease = of_version(rig, "1", attempt=3, releases=100)
    assert rig.give([lease]) == []
    (step,) = rig.ended
    assert (step.event, step.state, step.attempt, step.releases) == (Event.DEFERRED, State.SCHEDULED, 2, 100)
    assert step.error.code == "version_waits" and "version 1" in step.error.message
    assert step.attempts == () and step.ready_at == rig.now + settle.VERSION_WAIT_MIN_S
    assert rig.d.idle and rig.asked == {"t": 1}  # the next job may be of this version


def test_one_that_has_waited_for_long_is_looked_at_more_seldom_but_still_is():
    rig = Rig(a_spec(version="2", on_version="wait"))
    lease = of_version(rig, "1")
    waits = [
        settle.await_version(lease, version="2", now=lease.job.run_at + age).ready_at - lease.job.run_at - age
        for age in (0, 19, 100, 1_000, 1_000_000)
    ]
    assert waits == [2.0, 2.0, 10.0, 100.0, 300.0]


def test_one_that_fails_is_dead_with_a_stable_code_whatever_attempts_are_left():
    rig = Rig(a_spec(version="2", on_version="fail"))
    rig.give([of_version(rig, "1")])
    (step,) = rig.ended
    assert (step.state, step.error.code) == (State.DEAD, "version_gone")


def test_others_of_the_same_grant_run():
    rig = Rig(a_spec(version="2", on_version="fail", batch_max=4))
    (run,) = rig.give([of_version(rig, version) for version in ("1", "2", "1", "2")])
    assert [lease.job.version for _, lease in run.items] == ["2", "2"]
    assert len(rig.ended) == 2
