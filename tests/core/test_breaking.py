"""A task's breaker in the Dispatcher: while it is open jobs wait, are answered, or run elsewhere as guests."""

from dataclasses import replace

import pytest

from forebay.core.breaker import BreakerPolicy, BreakerState, Cause, CircuitBreaker, Ending
from forebay.core.breaking import PROBES_FREE_MAX
from forebay.core.degraded import FALLBACK
from forebay.core.guard import CANNED_MAX, guards_of, guests_of
from forebay.core.job import Hold, JobError
from forebay.core.task import TaskSpec
from forebay.core.upstream import UpstreamSpec
from tests.core.dispatching import tags_of
from tests.core.serving import RequestRig
from tests.sim.rig import BAD, Rig

THREE = BreakerPolicy(failures=3, rate=None, window_s=5.0, open_s=30.0)
OPEN, HALF, CLOSED = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED


def guarded(*, replicas=1, policy=THREE, **fields):
    """A rig of one task with a breaker; `rig.breaker` is it."""
    spec = TaskSpec(name="t", breaker=policy, **fields)
    breaker = CircuitBreaker(policy)
    rig = Rig(spec, replicas=replicas, guards=guards_of([spec], [], {"t": breaker}))
    rig.breaker = breaker
    return rig


def tripped(**fields):
    """The same after three failures, just open."""
    rig = guarded(**fields)
    for _ in range(3):
        if "t" not in rig.asked:
            rig.ring()
        (run,) = rig.lease()
        rig.done(*[tag for tag, _ in run.items], error=BAD)
    assert rig.breaker.state(now=rig.now) is OPEN
    rig.ended.clear()
    return rig


def empty(rig):
    """Whatever is asked for, there is nothing."""
    while rig.asked:
        rig.give([], next(iter(rig.asked)))


def test_while_it_is_open_nothing_is_leased_and_it_wakes_for_the_probe():
    rig = tripped()
    empty(rig)
    rig.ring()
    assert rig.asked == {}
    rig.poll(after=29.0)
    assert rig.asked == {}
    rig.poll(after=1.0)
    assert rig.asked == {"t": 1}


def test_one_probe_is_leased_and_when_it_goes_well_all_is_as_before():
    rig = tripped(replicas=4)
    empty(rig)
    rig.poll(after=30.0)
    (run,) = rig.lease()
    rig.ring()
    assert rig.asked == {}, "a second one beside the probe"
    rig.done(*[tag for tag, _ in run.items])
    assert rig.events() == [("j4", "completed")]
    assert rig.breaker.state(now=rig.now) is CLOSED
    rig.ring()
    assert rig.asked["t"] >= 4


def test_a_probe_that_fails_is_handed_back_uncharged_and_its_place_goes_to_the_end():
    rig = tripped()
    empty(rig)
    rig.poll(after=30.0)
    (run,) = rig.give(rig.jobs(1, attempt=3))  # its last attempt: still not charged
    rig.done(run.items[0][0], error=BAD)
    (end,) = rig.ended
    assert (end.event.value, end.attempt, end.releases) == ("deferred", 2, 1)
    assert end.ready_at == pytest.approx(rig.now + 30.0)
    assert end.error.message == BAD.message
    assert rig.breaker.state(now=rig.now) is OPEN


def test_a_job_that_never_works_does_not_probe_for_ever():
    rig = tripped()
    empty(rig)
    rig.poll(after=30.0)
    (run,) = rig.give(rig.jobs(1, releases=PROBES_FREE_MAX))
    rig.done(run.items[0][0], error=BAD)
    (end,) = rig.ended
    assert (end.event.value, end.attempt) == ("failed", 1)


def test_a_job_that_may_run_once_is_no_free_probe():
    rig = tripped()
    empty(rig)
    rig.poll(after=30.0)
    (lease,) = rig.jobs(1)
    (run,) = rig.give([lease._replace(job=lease.job._replace(attempts_max=1))])
    rig.done(run.items[0][0], error=BAD)
    assert [event for _, event in rig.events()] == ["exhausted"]


def test_a_probe_that_can_never_succeed_is_charged_and_says_nothing():
    rig = tripped()
    empty(rig)
    rig.poll(after=30.0)
    (run,) = rig.lease()
    rig.done(run.items[0][0], error=BAD, permanent=True)
    assert rig.events() == [("j4", "exhausted")]
    assert rig.breaker.state(now=rig.now) is HALF
    rig.ring()
    assert rig.asked == {"t": 1}


@pytest.mark.parametrize("how", ["cancelled", "lost", "killed with its node", "past its deadline"])
def test_a_probe_that_goes_without_an_answer_frees_its_place(how):
    rig = tripped()
    empty(rig)
    rig.poll(after=30.0)
    deadline_at = rig.now + 1.0 if how == "past its deadline" else None
    (run,) = rig.lease(deadline_at=deadline_at)
    tag = run.items[0][0]
    if how == "cancelled":
        rig.cancel(tag)
        rig.done(tag, error=JobError("cancelled", ""))
    elif how == "lost":
        rig.d.renew_now()
        rig.poll()
        rig.answer(Hold.LOST)
        rig.d.replica_ready(2)  # the first one still works on what nobody wants
    elif how == "killed with its node":
        rig.d.abandon()
        rig.died(1)
        rig.d.replica_ready(2)
    else:
        rig.poll(after=1.5)
        rig.died(1)
        rig.d.replica_ready(2)
    rig.poll()
    rig.ring()
    assert rig.breaker.state(now=rig.now) is HALF
    assert rig.asked == {"t": 1}


def test_deaths_and_timeouts_of_the_process_open_it():
    rig = guarded(replicas=3)
    runs = [run for _ in range(1) for run in rig.lease(count=3)]
    assert len(runs) == 3
    for replica in (1, 2, 3):
        rig.died(replica)
    assert rig.breaker.state(now=rig.now) is OPEN


def test_what_is_the_jobs_own_fault_opens_nothing():
    rig = guarded()
    for fields in (dict(permanent=True), dict(ignored=True)) * 3:
        (run,) = rig.lease()
        rig.done(run.items[0][0], error=BAD, **fields)
        rig.ring()
    assert rig.breaker.state(now=rig.now) is CLOSED
    assert rig.breaker.trips == 0


def test_runs_that_take_longer_than_slow_open_it():
    rig = guarded(policy=BreakerPolicy(failures=3, window_s=60.0, slow_s=1.0))
    for took_s in (1.1, 1.1, 0.9, 1.1):
        assert rig.breaker.state(now=rig.now) is CLOSED
        (run,) = rig.lease()
        rig.done(run.items[0][0], after=took_s)
        rig.ring()
    assert rig.breaker.state(now=rig.now) is OPEN
    assert [event for _, event in rig.events()] == ["completed"] * 4


def test_when_it_opens_what_waits_in_hand_goes_back_with_its_place_and_what_was_sent_is_asked_back():
    rig = guarded(policy=BreakerPolicy(failures=2, window_s=60.0))
    rig.learn(0.001)
    rig.give([])
    rig.ring()
    runs = rig.lease(count=4)
    first, second, *rest = [tag for run in runs for tag, _ in run.items]
    assert rest, "the child has more than it runs"
    rig.done(first, second, error=BAD)
    assert rig.backs == [1]
    rig.ended.clear()
    rig.returned(*rest)
    assert {event for _, event in rig.events()} == {"released"}
    assert len(rig.ended) == len(rest)
    assert all(end.attempt == 0 for end in rig.ended)


def test_leases_on_their_way_when_it_opens_go_back():
    rig = guarded(policy=BreakerPolicy(failures=1, window_s=60.0), replicas=2)
    (run,) = rig.lease()
    rig.ring()
    leases = rig.jobs(1)
    rig.done(run.items[0][0], error=BAD)
    assert rig.give(leases) == []
    assert rig.events()[-1] == ("j2", "released")


def test_a_canned_answer_ends_what_waits_and_says_that_it_is_one():
    rig = tripped(canned=b'"busy"')
    empty(rig)
    rig.ring()
    assert rig.asked == {"t": CANNED_MAX}
    assert rig.lease(count=3) == []
    assert {(end.event.value, end.output, end.degraded) for end in rig.ended} == {
        ("completed", b'"busy"', FALLBACK)
    }
    assert len(rig.ended) == 3


def test_with_a_canned_answer_one_job_still_probes():
    rig = tripped(canned=b'"busy"')
    empty(rig)
    rig.poll(after=30.0)
    runs = rig.lease(count=5)
    assert [len(tags) for tags in tags_of(runs)] == [1]
    assert len(rig.ended) == 4
    rig.done(runs[0].items[0][0])
    assert (rig.ended[-1].output, rig.ended[-1].degraded) == (b"1", 0)
    assert rig.breaker.state(now=rig.now) is CLOSED


def test_a_canned_answer_needs_no_replica():
    rig = tripped(canned=b"null")
    empty(rig)
    rig.died(1)
    rig.ring()
    rig.lease(count=2)
    assert len(rig.ended) >= 2
    assert all(end.degraded == FALLBACK for end in rig.ended[-2:])


def test_a_job_that_needs_something_away_goes_back_uncharged():
    rig = Rig()
    (run,) = rig.lease()
    rig.done(run.items[0][0], error=JobError("breaker_open", "shut"), after_s=12.0, uncharged=True)
    (end,) = rig.ended
    assert (end.event.value, end.attempt, end.releases, end.ready_at) == ("deferred", 0, 0, rig.now + 12.0)
    assert end.error.code == "breaker_open"


@pytest.mark.parametrize("calls_max", [0, 1, 3])
def test_a_replica_that_takes_so_many_calls_is_given_no_more(calls_max):
    rig = Rig(TaskSpec(name="t", kind="upstream", concurrency=256))
    rig.give([])
    rig.d.hand.replicas[1].limit_calls(calls_max)
    rig.ring()
    assert rig.asked == ({"t": calls_max} if calls_max else {})
    if calls_max:
        runs = rig.lease(count=calls_max)
        assert sum(len(run.items) for run in runs) == calls_max
        assert rig.asked == {}
        rig.done(runs[0].items[0][0])
        assert rig.asked == {"t": 1}
        rig.d.hand.replicas[1].limit_calls(0)
        assert rig.lease() == [], "what was on its way waits in hand"


def test_an_upstream_that_fails_again_and_again_is_not_retired_while_its_calls_are_out():
    rig = Rig(TaskSpec(name="t", kind="upstream", concurrency=256), replicas=0)
    rig.d.replica_ready(1, "up", 100)
    rig.poll()
    runs = rig.lease(count=40)
    tags = [tag for run in runs for tag, _ in run.items]
    rig.done(tags[0])
    rig.done(*tags[1:30], error=BAD)
    assert rig.stops == []
    rig.ring()
    assert rig.asked["t"] == 90, "calls begin beside those that are out"


def test_jobs_of_an_upstream_that_were_lost_with_their_node_do_not_run_one_by_one():
    rig = Rig(TaskSpec(name="t", kind="upstream", concurrency=256, upstream=UpstreamSpec(url="http://a/")))
    runs = rig.lease(count=20, suspect=True)
    assert sum(len(run.items) for run in runs) == 20
    rig.done(*[tag for run in runs for tag, _ in run.items], error=BAD)
    assert {end.suspect for end in rig.ended} == {False}


# -- guests


def hosting(policy=THREE):
    """The replicas of `small`, which stands in for `big`."""
    big = TaskSpec(name="big", breaker=policy, fallback="small", version="7", batch_max=1)
    small = TaskSpec(name="small", batch_max=4, batch_wait_s=0.0, timeout_s=5.0)
    breaker = CircuitBreaker(policy)
    guests = guests_of([small], [big, small])
    rig = Rig(small, *(guest for guest, _ in guests), guards=guards_of([small], guests, {"big": breaker}))
    rig.breaker = breaker
    return rig


def trip(breaker, now):
    for _ in range(3):
        breaker.ended(breaker.ask(now=now), Ending.BAD, now=now)


def test_guests_are_leased_only_while_the_breaker_of_their_task_is_not_closed():
    rig = hosting()
    rig.give([], "small")
    rig.ring("big")
    assert "big" not in rig.asked
    trip(rig.breaker, rig.now)
    rig.ring("big")
    assert rig.asked["big"] >= 4
    rig.give([], "big")
    probe = rig.breaker.ask(now=rig.now + 30.0)
    rig.poll(after=30.0)
    rig.give([], "small")
    rig.ring("big")
    assert "big" in rig.asked, "while the probe is out the others need not wait"
    empty(rig)
    rig.breaker.ended(probe, Ending.GOOD, now=rig.now)
    rig.ring("big")
    assert "big" not in rig.asked


def test_the_results_of_guests_say_so_and_failures_do_not():
    rig = hosting()
    rig.give([], "small")
    trip(rig.breaker, rig.now)
    rig.ring("big")
    (run,) = rig.lease("big", count=2)
    assert (run.task, run.singles) == ("big", False)  # batched, as `small` is
    first, second = (tag for tag, _ in run.items)
    rig.done(first)
    rig.done(second, error=BAD)
    assert [(end.event.value, end.degraded) for end in rig.ended] == [("completed", FALLBACK), ("failed", 0)]


def test_own_jobs_of_the_fallback_are_results_of_their_own():
    rig = hosting()
    (run,) = rig.lease("small")
    rig.done(run.items[0][0])
    assert rig.ended[0].degraded == 0


def test_guests_keep_the_rules_of_their_own_task():
    big = TaskSpec(name="big", version="7", on_version="wait", attempts_max=9, fallback="small", canned=None)
    ((guest, host),) = guests_of([TaskSpec(name="small", timeout_s=5.0, batch_max=4)], [big])
    assert (guest.name, host) == ("big", "small")
    assert (guest.version, guest.on_version, guest.attempts_max) == ("7", "wait", 9)
    assert (guest.timeout_s, guest.batch_max, guest.fallback) == (5.0, 4, "")


def test_guests_wait_while_the_fallback_is_broken_itself():
    big = TaskSpec(name="big", breaker=THREE, fallback="small")
    small = TaskSpec(name="small", breaker=THREE)
    breakers = {"big": CircuitBreaker(THREE), "small": CircuitBreaker(THREE)}
    guests = guests_of([small], [big, small])
    rig = Rig(small, guests[0][0], guards=guards_of([small], guests, breakers))
    rig.give([], "small")
    trip(breakers["big"], rig.now)
    trip(breakers["small"], rig.now)
    rig.ring("big")
    assert rig.asked == {}


def test_changes_are_kept_for_whoever_tells_of_them():
    rig = tripped()
    ((guard, entry),) = rig.d.hand.guarded
    assert entry.spec.name == "t"
    assert [(change.was, change.state, change.cause) for change in guard.changes] == [
        (CLOSED, OPEN, Cause.FAILURES)
    ]


# -- requests that wait alone, as one of them may have killed its worker -------------------------------


def suspected():
    """Two requests ran together when their worker died, and so often that the breaker opened; none has a
    replica."""
    spec = TaskSpec(name="t", kind="class", batch_max=4, breaker=replace(THREE, failures=2))
    breaker = CircuitBreaker(spec.breaker)
    rig = RequestRig(spec, guards=guards_of([spec], [], {"t": breaker}))
    rig.breaker = breaker
    for _ in range(3):
        rig.offer(deadline_s=100.0)
    rig.poll()
    rig.died(1)
    return rig


def test_they_are_told_that_the_breaker_is_open_and_are_not_handed_back_at_every_look():
    rig = suspected()
    assert rig.breaker.state(now=rig.now) is OPEN
    for _ in range(200):
        rig.poll(after=0.01)
    assert rig.ends() == {"r1": "barred", "r2": "barred", "r3": "barred"}
    assert all(0 < ended.retry_after_s <= 30.0 for ended in rig.told.values())
    assert not rig.d.hand.suspects and not rig.d.hand.items


def test_one_that_waits_alone_when_the_breaker_opens_is_the_probe_once_its_time_has_come():
    spec = TaskSpec(name="t", kind="class", batch_max=4, breaker=THREE)
    breaker = CircuitBreaker(THREE)
    rig = RequestRig(spec, guards=guards_of([spec], [], {"t": breaker}))
    for _ in range(2):
        rig.offer(deadline_s=100.0)
    rig.poll()
    rig.died(1)
    assert len(rig.d.hand.suspects) == 2, "two deaths are too few for the breaker"
    breaker.told(OPEN, wait_s=0.5, reason="another process found out", now=rig.now)
    rig.now = breaker.open_until
    rig.poll()
    assert sorted(rig.ends().values()) == ["barred"]
    (probe,) = rig.d.hand.suspects
    rig.d.replica_ready(2)
    rig.poll()
    rig.done(probe.tag, after=0.1)
    assert sorted(rig.ends().values()) == ["barred", "done"]
    assert breaker.state(now=rig.now) is CLOSED
