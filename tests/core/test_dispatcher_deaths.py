"""The Dispatcher: deaths, suspects and timeouts."""

from forebay.core.actions import KillReason, Outcome
from forebay.core.batching import Trigger
from forebay.core.lifecycle import State
from forebay.core.replicas import Traces
from tests.core.dispatching import BATCH, tags_of
from tests.sim.rig import BAD, Rig, a_spec


def test_a_death_alone_is_charged_as_a_death():
    rig = Rig()
    rig.lease()
    rig.died(1)
    (end,) = rig.ended
    assert (end.event.value, end.deaths, end.attempt, end.suspect) == ("failed", 1, 1, True)
    assert end.error.code == "crashed"


def test_the_last_death_makes_the_dead_letter():
    rig = Rig()
    rig.lease(deaths=1, attempt=2)
    rig.died(1)
    assert rig.ended[0].state is State.DEAD and rig.ended[0].deaths == 2


def test_members_of_a_crashed_batch_lose_no_attempt_and_run_alone_next():
    rig = Rig(a_spec(**BATCH))
    rig.lease(count=4)
    rig.died(1)
    assert [(t.event.value, t.attempt, t.deaths, t.suspect) for t in rig.ended] == [
        ("suspected", 0, 0, True)
    ] * 4


def test_a_mate_nobody_waits_for_any_more_keeps_the_last_one_from_being_blamed():
    rig = Rig(a_spec(**BATCH))
    rig.give(rig.jobs(1, deadline_at=rig.now + 1.0) + rig.jobs(1))
    rig.poll(after=1.0)  # the first is given up, the child works on
    assert rig.events() == [("j1", "deadline_passed")] and rig.kills == []
    rig.died(1)
    assert rig.events()[1:] == [("j2", "suspected")]


def test_what_waited_behind_the_crashed_run_goes_on_in_its_old_order():
    rig = Rig(replicas=2)
    rig.learn(0.002)
    rig.give([])
    rig.ring()
    while rig.asked:
        rig.lease(count=rig.asked["t"])
    runs = [run for run in rig.ran if run.replica == 1]
    assert len(runs) > 1
    rig.d.hand.replicas[2].retiring = True  # so that nothing starts at once
    head = tags_of(runs)[0]
    behind = [tag for tags in tags_of(runs[1:]) for tag in tags]
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0)
    assert [item.tag for item in rig.d.hand.tasks["t"].held] == behind
    rig.d.hand.replicas[2].retiring = False
    rig.poll()
    assert [e for _, e in rig.events()] == ["suspected"] * len(head)


def test_where_the_child_left_a_mark_only_the_item_it_ran_is_blamed():
    rig = Rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    runs = rig.lease(count=6)
    (first,) = [run for run in runs if run.replica == 1]
    tags = tags_of([first])[0]
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(tag=tags[1]))
    rig.poll()
    assert [(e, t.deaths) for t, (_, e) in zip(rig.ended, rig.events())] == [("failed", 1)]


def with_two_runs(rig):
    """Have the first of two replicas hold two runs, one item left in the first of them; that one's tag, and
    those of the second run."""
    rig.learn(0.002)
    rig.give([])
    rig.ring()
    while rig.asked:
        rig.lease(count=rig.asked["t"])
    head, behind = tags_of([run for run in rig.ran if run.replica == 1])[:2]
    answers = [Outcome(tag, b"1", None) for tag in head[:-1]]
    rig.d.results(answers, now=rig.now, jitter=0.5)
    rig.d.drain(now=rig.now)  # nothing else is begun
    rig.poll()
    rig.ended.clear()
    return head[-1], behind


def ends_of(rig):
    return {rig.tags[end.job_id]: (end.event.value, end.deaths) for end in rig.ended}


def test_what_ended_before_the_deadly_item_is_not_blamed_though_nothing_was_heard_of_it():
    """Its result died with the child: the run at the head had ended, and another one killed it."""
    rig = Rig(replicas=2)
    last, (deadly, *waiting) = with_two_runs(rig)
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(tag=deadly))
    rig.poll()
    untouched = dict.fromkeys([last, *waiting], ("released", 0))
    assert waiting and ends_of(rig) == untouched | {deadly: ("failed", 1)}


def test_when_the_item_that_ran_last_has_answered_nobody_is_blamed():
    """Killed between two items, by somebody else: what is left had not begun, though it be one item alone."""
    rig = Rig()
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.lease(count=2)
    rig.done(1)
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(tag=1))
    rig.d.replica_ready(2)
    rig.poll()
    assert rig.ended[1:] == [] and tags_of(rig.ran)[-1] == [2]


def test_a_run_behind_the_one_that_was_timed_has_not_run_too_long():
    rig = Rig(a_spec(timeout_s=1.0), replicas=2)
    _, (running, *_) = with_two_runs(rig)
    rig.poll(after=1.0)
    assert (1, KillReason.TIMEOUT) in rig.kills
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(tag=running))
    rig.poll()
    assert running in ends_of(rig) and set(ends_of(rig).values()) == {("released", 0)}


def test_what_had_not_begun_when_its_deadline_killed_the_child_ends_by_it():
    rig = Rig()
    rig.lease(deadline_at=rig.now + 1.0)
    rig.poll(after=1.0)
    assert rig.kills == [(1, KillReason.DEADLINE)]
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(idle=True))
    rig.d.replica_ready(2)
    rig.poll()
    assert rig.events() == [("j1", "deadline_passed")] and len(rig.ran) == 1


def test_a_call_that_the_dead_child_never_took_in_is_not_blamed():
    """The answer of one call made room for another, which was sent before the death was seen."""
    rig = Rig(a_spec(concurrency=4))
    (first,) = rig.lease()
    rig.ring()
    (second,) = rig.lease()
    rig.d.replica_died(1, error=BAD, now=rig.now, jitter=0.0, traces=Traces(arrived=first.run))
    rig.poll()
    assert rig.events() == [("j1", "failed"), ("j2", "released")] and rig.ended[0].deaths == 1
    assert second.run > first.run


def test_a_replica_that_nobody_knows_may_die():
    rig = Rig()
    rig.died(9)
    assert rig.ended == []


def test_without_any_replica_what_waits_in_hand_goes_back():
    rig = Rig()
    rig.died(1)
    rig.lease()
    (end,) = rig.ended
    assert (end.event.value, end.attempt) == ("released", 0)


def test_while_the_last_replica_is_being_killed_nothing_is_kept_in_hand():
    rig = Rig(a_spec(timeout_s=0.2))
    rig.learn(0.1)
    rig.lease()
    rig.poll(after=0.097)
    rig.lease()
    rig.poll(after=0.2)
    assert rig.kills and rig.events() == [("j2", "released")]


def test_a_suspect_runs_alone_and_nothing_is_sent_beside_it():
    rig = Rig(a_spec(**BATCH), replicas=1)
    (run,) = rig.give(rig.jobs(1, suspect=True) + rig.jobs(2))
    assert (len(run.items), run.trigger) == (1, Trigger.ALONE)
    assert rig.poll(after=0.05) == []
    (next_run,) = rig.done(1)
    assert len(next_run.items) == 2


def test_suspects_never_run_together():
    rig = Rig(a_spec(**BATCH), replicas=2)
    runs = rig.lease(count=4, suspect=True)
    assert tags_of(runs) == [[1], [2]]
    assert tags_of(rig.done(1)) == [[3]]


def test_a_saturated_pool_does_not_starve_a_suspect():
    rig = Rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    alone_at = None
    seen = 0
    for step in range(400):
        if rig.asked:
            count = rig.asked["t"]
            rig.give(rig.jobs(1, suspect=True) + rig.jobs(count - 1) if step == 3 else rig.jobs(count))
        for run in rig.ran[seen : seen + 1]:
            seen += 1
            if run.trigger is Trigger.ALONE:
                alone_at = step
            rig.done(*tags_of([run])[0], after=0.001)
    assert alone_at is not None and alone_at < 60


def test_a_suspect_does_not_wait_behind_a_late_replica():
    rig = Rig(replicas=2)
    rig.lease(count=2)
    rig.poll(after=10.0)  # both late; then the second gets free
    rig.done(2)
    (run,) = rig.lease(suspect=True)
    assert run.replica == 2 and run.trigger is Trigger.ALONE


def test_a_job_that_runs_too_long_is_killed_and_charged_as_a_failure():
    rig = Rig(a_spec(timeout_s=1.0))
    rig.lease()
    assert rig.d.wake_at() <= rig.now + 1.0
    rig.poll(after=1.0)
    rig.poll(after=0.1)
    assert rig.kills == [(1, KillReason.TIMEOUT)]
    rig.died(1)
    (end,) = rig.ended
    assert (end.event.value, end.error.code, end.deaths) == ("failed", "timeout", 0)


def test_every_item_of_a_frame_has_the_whole_time():
    rig = Rig(a_spec(timeout_s=1.0))
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    rig.lease(count=3)
    rig.done(1, after=0.9)
    rig.done(2, after=0.9)
    assert rig.kills == []


def test_the_members_of_a_batch_that_ran_too_long_are_tried_alone():
    rig = Rig(a_spec(**BATCH, timeout_s=1.0))
    rig.lease(count=3)
    rig.poll(after=1.0)
    rig.died(1)
    assert [(t.event.value, t.attempt) for t in rig.ended] == [("suspected", 0)] * 3


def test_only_the_async_call_that_ran_too_long_is_charged():
    rig = Rig(a_spec(concurrency=4, timeout_s=1.0))
    rig.lease(count=1)
    rig.now += 0.5
    rig.ring()
    rig.lease(count=2)
    rig.poll(after=0.5)
    assert rig.kills == [(1, KillReason.TIMEOUT)]
    rig.died(1)
    assert rig.events() == [("j1", "failed"), ("j2", "released"), ("j3", "released")]


def test_a_short_limit_counts_though_an_older_call_has_a_long_one():
    rig = Rig(a_spec("a", concurrency=4, timeout_s=600.0), a_spec("b", timeout_s=1.0))
    while "a" not in rig.asked:
        rig.give([], next(iter(rig.asked)))
    rig.lease("a", 1)
    rig.give([], "b") if "b" in rig.asked else None
    rig.ring("b")
    rig.lease("b", 1)
    rig.poll(after=1.0)
    assert rig.kills == [(1, KillReason.TIMEOUT)]
    rig.died(1)
    assert sorted(e for _, e in rig.events()) == ["failed", "released"]
