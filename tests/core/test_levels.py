"""Levels in the Dispatcher: batches of one level, a law for each, and the level on everything that ends."""

import pytest

from forebay.core import levels
from forebay.core.actions import Outcome
from forebay.core.codel import Discipline
from forebay.core.entry import expected_wait_s
from forebay.core.job import PRIORITY_HIGH, PRIORITY_NORMAL
from forebay.core.levels import fill_of
from forebay.core.requests import End, RequestPolicy
from forebay.core.variants import LadderPolicy, Rung, Seen
from tests.core.serving import RequestRig, a_spec
from tests.sim.rig import BAD

LADDER = LadderPolicy(rungs=(Rung(name="medium"), Rung(name="small")))
MODEL = dict(kind="class", batch_max=16, ladder=LADDER)


def rig_of(**fields):
    return RequestRig(a_spec(**(MODEL | fields))).learn_model()


def down(rig, steps=1, task="t"):
    """Bring the ladder of the task down."""
    entry = rig.d.hand.tasks[task]
    for _ in range(steps):
        rig.now += 1.0
        entry.ladder.ran(rig.now)
        assert entry.ladder.see(Seen(1.0, 0.0, urgent=True), now=rig.now)
    entry.refit()
    return rig


def learn(rig, level, fixed_s, each_s, task="t"):
    for number in range(32):
        items = 1 + number % 16
        rig.d.hand.tasks[task].fits[level].observe(items, fixed_s + each_s * items)
    rig.d.hand.tasks[task].refit()
    return rig


def levels_run(rig):
    return [(run.level, len(run.items)) for run in rig.ran]


def test_jobs_run_by_the_variant_of_the_moment_and_their_results_say_so():
    rig = down(rig_of())
    (run,) = rig.lease("t", 3)
    assert run.level == 1
    rig.done(*[tag for tag, _ in run.items], after=0.01)
    assert [(one.state.value, one.degraded) for one in rig.ended] == [("succeeded", 1)] * 3


def test_what_the_task_itself_made_is_not_marked():
    rig = rig_of()
    (run,) = rig.lease("t", 2)
    rig.done(*[tag for tag, _ in run.items], after=0.01)
    assert run.level == 0 and [one.degraded for one in rig.ended] == [0, 0]


def test_a_failure_at_a_level_is_a_failure_and_no_result():
    rig = down(rig_of())
    (run,) = rig.lease("t", 1)
    rig.done(run.items[0][0], after=0.01, error=BAD)
    assert [one.degraded for one in rig.ended] == [0]


def test_requests_run_by_the_same_level_and_their_answers_say_so():
    rig = down(rig_of())
    request = rig.ask()
    (run,) = rig.ran
    assert run.level == 1
    rig.done(run.items[0][0], after=0.01)
    assert request.end is End.DONE and request.level == 1


def test_a_result_keeps_the_level_at_which_it_was_sent_when_the_task_has_moved_since():
    rig = down(rig_of())
    request = rig.ask(deadline_s=5.0)
    down(rig)
    rig.done(rig.ran[0].items[0][0], after=0.01)
    assert rig.d.hand.tasks["t"].ladder.step == 2 and request.level == 1


def test_a_batch_is_of_one_level_that_of_its_most_urgent_member():
    rig = down(rig_of())
    rig.ask(priority=PRIORITY_NORMAL)  # the replica is busy
    for priority in (PRIORITY_NORMAL, PRIORITY_HIGH, PRIORITY_NORMAL):
        rig.ask(priority=priority, deadline_s=5.0)
    rig.done(rig.ran[0].items[0][0], after=0.02)
    rig.done(*[tag for tag, _ in rig.ran[1].items], after=0.02)
    rig.ask(priority=PRIORITY_NORMAL)
    assert levels_run(rig) == [(1, 1), (0, 3), (1, 1)]
    assert sorted(one.request.level for one in rig.told.values()) == [0, 0, 0, 1]


def test_a_batch_of_jobs_is_of_one_level_too():
    rig = down(rig_of(batch_max=4))
    mixed = [
        lease._replace(job=lease.job._replace(priority=PRIORITY_HIGH if at == 2 else PRIORITY_NORMAL))
        for at, lease in enumerate(rig.jobs(4))
    ]
    (run,) = rig.give(mixed, "t")
    assert (run.level, len(run.items)) == (0, 4)


def test_single_calls_of_one_run_are_of_one_level():
    rig = down(RequestRig(a_spec(ladder=LADDER)))
    for level in (0, 1):
        for _ in range(32):
            rig.d.hand.tasks["t"].fits[level].observe(1, 0.0001)
    rig.d.hand.tasks["t"].refit()
    for priority in (PRIORITY_HIGH, PRIORITY_HIGH, PRIORITY_NORMAL):
        rig.offer(priority=priority, deadline_s=5.0)
    assert [(run.level, len(run.items)) for run in rig.poll()] == [(0, 2), (1, 1)]


def test_each_level_has_a_law_of_its_own():
    rig = down(rig_of())
    task = rig.d.hand.tasks["t"]
    rig.ask()
    rig.done(rig.ran[0].items[0][0], after=0.004)
    assert task.fits[0].run_s(16) == pytest.approx(0.052)
    assert task.fits[1].runs == 1 and task.fit is task.fits[1]
    (ran,) = rig.d.take_ran()
    assert ran.level == 1


def test_nobody_counts_on_the_speed_of_a_variant_that_never_ran():
    rig = down(rig_of())
    task = rig.d.hand.tasks["t"]
    assert task.fit is task.fits[0]
    assert task.fit_at(2) is task.fits[0]
    learn(rig, 1, 0.008, 0.0008)
    assert task.fit_at(2) is task.fits[1]


def test_what_can_be_done_in_time_follows_the_level():
    rig = learn(down(rig_of()), 1, 0.008, 0.0008)
    # Three batches of 20.8 ms wait: the task itself would need 52 ms for each.
    for _ in range(1 + 3 * 16):
        rig.offer(deadline_s=0.2)
    rig.poll()
    assert expected_wait_s(rig.d.hand, "t", now=rig.now) == pytest.approx(0.0088 + 0.0416 + 0.0208, abs=0.03)
    assert rig.ends() == {}


def test_an_urgent_request_is_told_by_the_law_of_its_own_level():
    rig = learn(down(rig_of()), 1, 0.0008, 0.0001)
    rig.ask(deadline_s=5.0)
    refused = rig.offer(priority=PRIORITY_HIGH, deadline_s=0.02)
    taken = rig.offer(priority=PRIORITY_NORMAL, deadline_s=0.02)
    assert refused.reason.value == "cannot_meet_deadline" and taken.end is None


def test_ordinary_requests_count_on_batches_that_urgent_ones_make_slow():
    rig = learn(down(rig_of()), 1, 0.0008, 0.0001)
    task, hand = rig.d.hand.tasks["t"], rig.d.hand
    assert levels.slower(hand, task, rig.now) == 1.0
    for number in range(80):  # 100 a second, half of them urgent: some in each batch of the large model
        rig.offer(priority=PRIORITY_HIGH if number % 2 == 0 else PRIORITY_NORMAL, deadline_s=5.0)
        rig.now += 0.01
    assert levels.slower(hand, task, rig.now) == pytest.approx(0.052 / 0.0024, rel=0.01)
    refused = rig.offer(priority=PRIORITY_NORMAL, deadline_s=0.1)
    assert refused.reason.value == "cannot_meet_deadline"


def test_callers_that_find_it_nearly_full_bring_it_down_before_anybody_is_refused():
    rig = rig_of()
    task = rig.d.hand.tasks["t"]
    while not task.ladder.step:
        verdict = rig.offer(deadline_s=0.2)
        assert verdict.__class__.__name__ == "Request"
        rig.poll(after=0.0005)
    assert task.ladder.step == 1
    name, moved = rig.d.hand.moved[0]
    assert (name, moved.was, moved.step) == ("t", 0, 1) and 0.75 <= moved.fill < 1.0


def test_a_bound_of_the_reservoir_fills_it_as_well_as_the_deadline_does():
    rig = RequestRig(a_spec(**MODEL), policy=RequestPolicy(requests_max=20)).learn_model()
    for _ in range(16 + 15):
        rig.offer(deadline_s=60.0)
        rig.poll()
    assert rig.d.hand.tasks["t"].ladder.step == 1


def test_where_the_discipline_bounds_the_wait_that_wait_is_what_fills_it():
    rig = rig_of(discipline=Discipline.CODEL, wait_interval_s=0.2)
    while not rig.d.hand.tasks["t"].ladder.step:
        assert len(rig.d.hand.basin.reservoirs["t"]) < 100
        rig.offer(deadline_s=60.0)
        rig.poll()


def test_a_queue_of_jobs_that_is_told_to_be_full_brings_it_down_and_back():
    rig = rig_of()
    task = rig.d.hand.tasks["t"]
    rig.d.filled("t", 0.8)
    rig.poll()
    assert task.ladder.step == 1
    rig.d.filled("t", 0.1)
    wakes = 0
    while task.ladder.step:
        wake_at = rig.d.wake_at()
        assert wake_at is not None and wakes < 100
        rig.poll(after=wake_at - rig.now)
        wakes += 1
    assert [moved.step for _, moved in rig.d.hand.moved] == [1, 0]


def test_what_came_a_moment_ago_keeps_it_down_and_what_no_longer_comes_does_not():
    rig = learn(down(rig_of()), 1, 0.008, 0.0008)
    task = rig.d.hand.tasks["t"]
    for _ in range(700):  # 350 a second, more than the 307 that the task itself does
        rig.offer(deadline_s=0.2)
        rig.poll(after=1 / 350)
        for run in rig.ran:
            open_tags = [tag for tag, _ in run.items if tag in rig.d.hand.items]
            if open_tags:
                rig.done(*open_tags)
    assert task.ladder.step == 1
    for _ in range(30):
        rig.poll(after=0.1)
    assert task.ladder.step == 0


def test_a_suspect_runs_alone_at_the_level_of_its_priority():
    rig = down(rig_of())
    (run,) = rig.lease("t", 1, suspect=True)
    assert run.level == 1 and run.trigger.value == "alone"


def test_a_result_for_what_was_asked_back_says_the_level_all_the_same():
    rig = down(rig_of(batch_max=1))
    rig.learn(0.0001)
    (run,) = rig.lease("t", 1)
    tag = run.items[0][0]
    rig.returned(tag)
    rig.d.results([Outcome(tag, b"1")], now=rig.now, jitter=0.5)
    rig.poll()
    assert [(one.state.value, one.degraded) for one in rig.ended] == [("succeeded", 1)]


def test_fill_is_of_what_could_run_in_items_or_in_bytes():
    full = dict(jobs_max=1000, bytes_max=10_000)
    assert fill_of(queued=950, open_jobs=1000, bytes_open=0, **full) == 0.95
    assert fill_of(queued=10, open_jobs=20, bytes_open=10_000, **full) == 0.5
    assert fill_of(queued=0, open_jobs=0, bytes_open=0, **full) == 0.0
