"""The Dispatcher: what it leases, and which replica runs it."""

import pytest

from forebay.core.ahead import AHEAD_S
from forebay.core.dispatcher import POLL_S
from forebay.core.hand import FRAME_MAX
from forebay.core.lateness import LATE_S
from forebay.core.planning import FORESEEN_S, LEASE_MAX
from tests.core.dispatching import tags_of
from tests.sim.rig import Rig, a_spec


def test_it_asks_for_one_job_per_replica_before_anything_was_measured():
    assert Rig(replicas=3).asked == {"t": 3}


def test_it_asks_for_nothing_without_a_replica():
    rig = Rig(replicas=0)
    assert rig.asked == {} and rig.ring() == [] and rig.asked == {}
    assert rig.d.wake_at() is None


def test_a_short_answer_is_asked_again_at_the_knock_or_after_the_poll_time():
    rig = Rig()
    rig.give([])
    assert rig.asked == {} and rig.d.wake_at() == rig.now + POLL_S
    rig.ring()
    assert rig.asked == {"t": 1}
    rig.give([])
    rig.poll(after=POLL_S)
    assert rig.asked == {"t": 1}


def test_a_full_answer_is_asked_again_as_soon_as_there_is_room():
    rig = Rig()
    (run,) = rig.lease()
    assert rig.asked == {}
    rig.done(*tags_of([run])[0], after=1.0)
    assert rig.asked == {"t": 1}


def test_only_one_request_of_a_task_is_out_at_a_time():
    rig = Rig()
    rig.ring()
    rig.ring()
    assert rig.asked == {"t": 1}  # the rig itself refuses a second


def test_it_never_spins_while_every_replica_is_busy_and_the_queue_was_dry():
    rig = Rig(replicas=2)
    rig.lease()  # one of two: short
    rig.ring()
    rig.lease(count=1)
    rig.poll(after=5 * POLL_S)
    assert rig.d.wake_at() > rig.now


@pytest.mark.parametrize(("each_s", "most"), [(1e-5, 256), (1e-3, 16), (0.1, 3), (30.0, 2)])
def test_leasing_ahead_is_a_few_milliseconds_of_measured_work(each_s, most):
    rig = Rig(replicas=2)
    rig.learn(each_s)
    held = 0
    while rig.asked:
        asked = rig.asked["t"]
        held += asked
        rig.lease(count=asked)
    # Beyond the item that runs on each replica, at most what two windows of work take.
    ahead_s = (held - 2) * each_s
    assert ahead_s <= 2 * (3 * AHEAD_S) + each_s
    assert held <= most * 2 * 3


def test_no_second_long_job_is_ever_taken_in_hand():
    rig = Rig(replicas=2)
    rig.learn(30.0)
    rig.lease(count=2)
    for _ in range(60):
        rig.ring()
        rig.poll(after=1.0)
        assert rig.asked == {}


def test_a_foreseeable_run_lets_the_next_piece_be_leased_just_before_it_ends():
    rig = Rig()
    rig.learn(0.1)
    rig.lease()
    assert rig.asked == {}
    assert rig.d.wake_at() == pytest.approx(rig.now + 0.1 - AHEAD_S)
    rig.poll(after=0.1 - AHEAD_S + 1e-9)
    assert rig.asked == {"t": 1}
    assert rig.lease() == []  # in hand, until the replica is free
    assert len(rig.done(1, after=AHEAD_S)) == 1


def test_the_end_of_a_long_run_is_not_foreseen():
    rig = Rig()
    rig.learn(FORESEEN_S * 2)
    rig.lease()
    rig.poll(after=FORESEEN_S * 2 - AHEAD_S / 2)
    assert rig.asked == {}


def test_a_request_is_bounded_however_fast_the_work():
    rig = Rig(replicas=50)
    rig.give([])
    rig.learn(1e-9)
    rig.ring()
    assert rig.asked == {"t": LEASE_MAX}


def test_a_frame_of_single_items_is_bounded():
    rig = Rig()
    rig.learn(1e-9)
    rig.give([])
    rig.ring()
    runs = rig.lease(count=rig.asked["t"])
    assert runs and all(len(run.items) <= FRAME_MAX and run.singles for run in runs)


def test_free_replicas_share_what_is_in_hand_evenly():  # a frame for one while another idles: F046
    rig = Rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    runs = rig.lease(count=4)
    assert sorted((run.replica, len(run.items)) for run in runs) == [(1, 2), (2, 2)]


def test_short_jobs_behind_one_that_turns_out_long_move_to_the_other_replica():  # F046
    rig = Rig(replicas=2)
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    first, second = rig.lease(count=4)
    rig.done(*tags_of([second])[0], after=0.002)
    if rig.asked:
        rig.give([])
    rig.poll(after=LATE_S)
    assert rig.backs == [first.replica]
    behind = tags_of([first])[0][1]
    (again,) = rig.returned(behind)
    assert again.replica == second.replica and tags_of([again]) == [[behind]]


def test_what_is_in_hand_goes_back_to_the_store_when_every_replica_is_late():
    rig = Rig()
    rig.learn(0.1)
    rig.lease()
    rig.poll(after=0.098)
    rig.lease()  # foreseen: in hand
    rig.poll(after=LATE_S)
    assert rig.events() == [("j2", "released")]
    assert rig.ended[0].attempt == 0 and not rig.ended[0].suspect
    rig.ring()
    assert rig.asked == {}  # and not taken again before the replica is free
    rig.done(1, after=1.0)
    assert rig.asked == {"t": 1} or rig.ring() is not None and rig.asked == {"t": 1}


def test_nothing_is_sent_behind_a_run_of_unknown_length():
    rig = Rig(a_spec("long"), a_spec("short"), replicas=1)
    rig.learn(0.001, task="short")
    while rig.asked:
        for task in list(rig.asked):
            rig.give(rig.jobs(1, "long") if task == "long" else [], task)
        if rig.ran:
            break
    rig.give([], "short") if "short" in rig.asked else None
    assert len(rig.ran) == 1 and rig.ran[0].task == "long"
    rig.ring("short")
    assert rig.asked == {}


def test_a_long_job_of_one_function_leaves_the_other_replica_to_another_function():
    rig = Rig(a_spec("long"), a_spec("short"), replicas=2)
    rig.learn(30.0, task="long")
    rig.learn(0.01, task="short")
    started = []
    waiting = {"long": 1, "short": 20}
    for _ in range(200):
        for task in list(rig.asked):
            count = min(waiting[task], rig.asked[task])
            waiting[task] -= count
            rig.lease(task, count)
        for run in rig.ran[len(started) :]:
            started.append(run.task)
            if run.task == "short":
                rig.done(*tags_of([run])[0], after=0.01)
        if not waiting["short"]:
            break
        rig.ring("short")
    assert started.count("short") and sum(len(r.items) for r in rig.ran if r.task == "short") == 20
    assert rig.now < 110


@pytest.mark.parametrize("each_s", [0.001, 0.05, 1.0])
def test_functions_that_share_a_pool_get_turns(each_s):
    names = ["a", "b", "c"]
    rig = Rig(*[a_spec(name) for name in names], replicas=1)
    for name in names:
        rig.learn(each_s, task=name)
    ran = dict.fromkeys(names, 0)
    seen = 0
    for _ in range(600):
        for task in list(rig.asked):
            rig.lease(task, rig.asked[task])  # an endless backlog of each
        if seen < len(rig.ran):
            run = rig.ran[seen]
            seen += 1
            ran[run.task] += len(run.items)
            rig.done(*tags_of([run])[0], after=each_s * len(run.items))
    total = sum(ran.values())
    assert total > 30 and min(ran.values()) > 0.2 * total, ran


def test_what_other_functions_hold_or_ask_for_counts_as_taken():
    rig = Rig(*[a_spec(f"f{i}") for i in range(10)], replicas=2)
    assert sum(rig.asked.values()) == 2  # not two for each of ten


def test_async_calls_fill_their_places_and_a_plain_function_still_gets_in():
    rig = Rig(a_spec("calls", concurrency=4), a_spec("plain"), replicas=1)
    rig.give([], "plain") if "plain" in rig.asked else None
    runs = rig.lease("calls", 4)
    assert len(runs) == 1 and len(runs[0].items) == 4
    rig.ring("calls")
    assert "calls" not in rig.asked
    rig.ring("plain")
    (run,) = rig.lease("plain", 1)
    assert run.task == "plain"
    rig.ring("calls")
    rig.done(1)
    assert rig.asked.get("calls", 0) <= 1


def test_async_calls_are_spread_over_replicas():
    rig = Rig(a_spec(concurrency=8), replicas=2)
    runs = rig.lease(count=4)
    assert [sum(len(run.items) for run in runs if run.replica == one) for one in (1, 2)] == [2, 2]
