"""The Dispatcher: what an answer means, and whose name it bears."""

import pytest

from forebay.core.actions import KillReason, KillReplica, Outcome
from forebay.core.stopping import running
from tests.core.dispatching import BATCH, tags_of
from tests.sim.rig import BAD, Rig, a_spec


def test_outcomes_are_settled_each_for_itself():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=4)
    outcomes = [
        Outcome(1, b"1"),
        Outcome(2, None, BAD),
        Outcome(3, None, BAD, permanent=True),
        Outcome(4, None, BAD, after_s=99.0),
    ]
    rig.d.results(outcomes, now=rig.now, jitter=0.0)
    rig.poll()
    assert [e for _, e in rig.events()] == ["completed", "failed", "exhausted", "failed"]
    assert rig.ended[3].ready_at == rig.now + 99.0
    assert rig.ended[1].error.attempt == 1
    assert len({t.ready_at for t in rig.ended[1:]}) == 3  # one drawn number, spread


def test_an_answer_after_the_deadline_is_worth_nothing():
    rig = Rig(replicas=1)
    rig.lease(deadline_at=rig.now + 1.0)
    rig.done(1, after=1.0)
    assert rig.events() == [("j1", "deadline_passed")]


def test_an_answer_before_the_deadline_counts():
    rig = Rig()
    rig.lease(deadline_at=rig.now + 1.0)
    rig.done(1, after=0.5)
    assert rig.events() == [("j1", "completed")]
    rig.poll(after=1.0)
    assert rig.kills == []


def test_an_answer_given_twice_or_for_nobody_changes_nothing():
    rig = Rig()
    rig.lease()
    rig.done(1)
    rig.done(1)
    rig.done(77, error=BAD)
    rig.returned(1, 77)
    assert rig.events() == [("j1", "completed")]


def test_an_answer_for_what_was_given_back_still_counts():
    rig = Rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    runs = rig.lease(count=4)
    tag = tags_of(runs)[0][1]
    rig.d.returned([tag], now=rig.now)
    rig.d.returned([tag], now=rig.now)  # said twice
    rig.d.results([Outcome(tag, b"1")], now=rig.now, jitter=0.0)
    rig.poll()
    assert len(rig.ended) == 1
    rig.d.hand.tasks["t"].held.clear()


def test_measured_runs_are_told_once():
    rig = Rig()
    rig.lease()
    rig.done(1, after=0.5)
    assert [(r.task, r.items, r.took_s) for r in rig.d.take_ran()] == [("t", 1, pytest.approx(0.5))]
    assert rig.d.take_ran() == []


def test_the_time_inside_handlers_counts_where_the_child_tells_it():
    rig = Rig()
    rig.lease()
    rig.now += 0.5
    rig.d.results([Outcome(1, b"1")], now=rig.now, jitter=0.0, busy_s=0.2)
    rig.d.results([Outcome(77, b"1")], now=rig.now, jitter=0.0, busy_s=0.2)
    assert [r.took_s for r in rig.d.take_ran()] == [0.2]


def test_an_item_that_must_be_tried_alone_is_handed_back_uncharged():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=2)
    rig.d.results([Outcome(1, None, BAD, alone=True), Outcome(2, b"1")], now=rig.now, jitter=0.0)
    rig.poll()
    assert [(t.event.value, t.attempt, t.suspect) for t in rig.ended] == [
        ("suspected", 0, True),
        ("completed", 1, False),
    ]


def test_answers_of_a_later_run_may_come_first():
    rig = Rig()
    rig.learn(0.002)
    rig.give([])
    rig.ring()
    while rig.asked:
        rig.lease(count=rig.asked["t"])
    first, second = tags_of(rig.ran)
    rig.done(*second)
    assert rig.d.take_ran() == []  # when it began is not known
    rig.done(*first, after=0.004)
    assert len(rig.ended) == len(first) + len(second) and len(rig.d.take_ran()) == 1


def test_short_batches_are_sent_one_behind_the_other():
    rig = Rig(a_spec(batch_max=4))
    rig.learn(0.002, items=4)
    rig.learn(0.001, items=1)
    runs = rig.lease(count=4)
    runs += rig.lease(count=4)
    assert [len(run.items) for run in runs] == [4, 4] and {run.replica for run in runs} == {1}


def named_rig(*specs, **fields):
    rig = Rig(*specs, **fields)
    for replica in rig.d.hand.replicas.values():
        replica.name = f"w/t/{replica.id}"
    return rig


@pytest.mark.parametrize("error", [None, BAD])
def test_what_a_replica_ends_bears_its_name(error):
    rig = named_rig()
    rig.lease()
    rig.done(1, error=error)
    (ended,) = rig.ended
    assert ended.worker == "w/t/1"
    assert [attempt.worker for attempt in ended.attempts] == (["w/t/1"] if error else [])


def test_what_a_dead_replica_ran_bears_its_name_and_what_never_started_the_nodes():
    rig = named_rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.lease(count=2)
    first = rig.ran[-1].replica
    rig.died(first)
    rig.d.drain(now=rig.now)
    rig.poll()
    assert {ended.attempts[-1].worker for ended in rig.ended} <= {f"w/t/{first}", "w"}
    assert any(ended.worker == f"w/t/{first}" for ended in rig.ended)


def test_a_kill_names_the_replica_the_task_and_the_jobs_it_is_about():
    rig = named_rig(a_spec(timeout_s=5.0))
    rig.lease()
    rig.now += 5.0
    (kill,) = [action for action in rig.d.poll(now=rig.now) if isinstance(action, KillReplica)]
    assert kill == KillReplica(1, KillReason.TIMEOUT, "w/t/1", "t", ("j1",))


def test_a_kill_for_one_job_of_a_frame_names_that_one_alone():
    rig = named_rig()
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.lease(count=3)
    replica = rig.d.hand.replicas[1]
    assert running(replica) == ("t", ("j1", "j2", "j3"))
    assert running(replica, rig.tags["j2"]) == ("t", ("j2",))
    assert running(replica, 999) == ("t", ("j1", "j2", "j3"))
