"""How many replicas there are: up when what waits would wait too long, down when fewer were enough for long."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.estimator import Estimator
from forebay.core.scaling import ScalePolicy, Scaler, Seen, deletion_cost, wanted, wanted_of
from forebay.core.task import TaskSpec

LOOK_S = 0.25


class Set:
    """Replicas in small steps of time: jobs of one length, one after another; a start takes its time."""

    def __init__(self, *, run_s, load_s=1.0, at=0.0, knows=True, **policy):
        self.scaler = Scaler(ScalePolicy(**{"least": 1, "most": 4} | policy))
        self.run_s, self.load_s, self.now, self.knows = run_s, load_s, at, knows
        self.ready_at = [at] * self.scaler.replicas  # of each replica
        self.busy_until = [at] * self.scaler.replicas
        self.waiting, self.refused = 0, False
        self.decisions = []
        self.random = random.Random(17)

    @property
    def size(self):
        return self.scaler.replicas

    def step(self, arrivals):
        """LOOK_S pass: work is done, `arrivals` come on the way, one look is taken."""
        until = self.now + LOOK_S
        comes = sorted(self.now + LOOK_S * self.random.random() for _ in range(arrivals))
        for at in [*comes, until]:
            self._work(at)
            self.waiting += at != until
            self._start(at)
        self.now = until
        ready = [n for n, ready_at in enumerate(self.ready_at) if ready_at <= until]
        busy = sum(self.busy_until[n] > until for n in ready)
        seen = Seen(
            ready=len(ready),
            full=busy,
            load=busy,
            coming=len(self.ready_at) - len(ready),
            waiting=self.waiting,
            refused=self.refused,
            run_s=self.run_s if self.knows else None,
            load_s=self.load_s,
        )
        decision = self.scaler.decide(seen, now=until)
        if decision is not None:
            self.decisions.append((until, decision))
        while len(self.ready_at) < self.size:
            self.ready_at.append(until + self.load_s)
            self.busy_until.append(until)
        while len(self.ready_at) > self.size:
            idle = [n for n, busy_until in enumerate(self.busy_until) if busy_until <= until]
            if not idle:
                break
            del self.ready_at[idle[-1]], self.busy_until[idle[-1]]

    def _work(self, until):
        """Start what waits whenever a replica gets free."""
        while self.waiting:
            n = min(range(len(self.busy_until)), key=lambda n: max(self.busy_until[n], self.ready_at[n]))
            at = max(self.busy_until[n], self.ready_at[n], self.now)
            if at > until:
                return
            self.waiting -= 1
            self.busy_until[n] = at + self.run_s

    def _start(self, at):
        for n, busy_until in enumerate(self.busy_until):
            if self.waiting and busy_until <= at and self.ready_at[n] <= at:
                self.waiting -= 1
                self.busy_until[n] = at + self.run_s

    def run(self, seconds, rate):
        """`rate` jobs a second come, a number or a function of the time, drawn at random."""
        for _ in range(int(seconds / LOOK_S)):
            per_look = (rate(self.now) if callable(rate) else rate) * LOOK_S
            self.step(int(per_look) + (self.random.random() < per_look % 1.0))


def sizes(of):
    return [decision.replicas for _, decision in of.decisions]


# -- the number that the work needs ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "running", "run_s", "at_once", "number"),
    [
        (0, 0, 1.0, 1, 0),  # nothing is needed for nothing
        (0, 3, 600.0, 1, 3),  # what runs is held, though nothing waits: the last job is not ended
        (1_000, 0, None, 1, 1),  # unknown: one goes and sees ...
        (33, 16, None, 16, 2),  # ... then twice as many, ...
        (3, 32, None, 16, 3),  # ... and no more than batches wait
        (3, 2, 600.0, 1, 5),  # runs are longer than the wait: those that are busy help nobody
        (400, 4, 0.1, 1, 5),  # 404 x 0.1 s are 40.4 s of work, to be begun within 10 s
        (400, 4, 1.6, 16, 5),  # in batches of 16: 6 turns of 16 each
        (8, 4, 0.1, 1, 4),  # and never fewer than are busy
    ],
)
def test_replicas_are_wanted_for_what_waits_and_for_what_runs(waiting, running, run_s, at_once, number):
    found = wanted(waiting=waiting, running=running, run_s=run_s, at_once=at_once, wait_s=10.0)
    assert found == number


@given(
    waiting=st.integers(0, 10**6),
    running=st.integers(0, 10**4),
    run_s=st.none() | st.floats(1e-6, 1e4),
    at_once=st.integers(1, 512),
    wait_s=st.floats(0.1, 1e4),
)
def test_more_that_waits_never_wants_fewer_and_what_is_busy_is_always_held(
    waiting, running, run_s, at_once, wait_s
):
    terms = {"running": running, "run_s": run_s, "at_once": at_once, "wait_s": wait_s}
    number = wanted(waiting=waiting, **terms)
    assert number <= wanted(waiting=waiting + 1, **terms)
    assert number >= -(-running // at_once)
    assert (number == 0) == (waiting == running == 0)


def test_a_task_wants_as_many_as_were_busy_of_late_though_nothing_runs_at_this_instant():
    spec = TaskSpec(name="t")
    estimator = Estimator.of(spec)
    for second in range(30):
        for _ in range(25):
            estimator.ran(items=1, took_s=0.1)
        estimator.settled(final=25, now=100.0 + second)
    asked = {"waiting": 0, "running": 0, "wait_s": 10.0}
    assert wanted_of(estimator, spec, **asked, now=130.0) == 3, "25 jobs a second of 0.1 s"
    assert wanted_of(estimator, spec, **asked, now=200.0) == 0, "it is quiet now: none is needed"
    assert wanted_of(Estimator.of(spec), spec, **asked | {"waiting": 1}, now=0.0) == 1


# -- up ------------------------------------------------------------------------------------------------


def test_a_backlog_that_takes_longer_than_the_wait_starts_more_and_says_why():
    many = Set(run_s=1.0)
    many.run(20, 8)
    assert sizes(many)[:2] == [2, 4], "twice as many at most in one step, when those before are there"
    first = many.decisions[0][1]
    assert first.was == 1
    assert first.reason.startswith("all 1 are busy, and the ")
    assert first.reason.endswith(" s")


def test_a_burst_that_is_done_within_the_wait_starts_nothing():
    burst = Set(run_s=0.1)
    burst.run(5, 0)
    burst.waiting = 90
    burst.run(30, 0)
    assert burst.decisions == []


def test_long_jobs_that_wait_start_as_many_as_wait():
    long = Set(run_s=600.0, knows=False)
    long.waiting = 3
    long.run(20, 0)
    assert sizes(long) == [2, 3]
    assert long.waiting == 0


def test_no_more_are_started_while_those_before_load():
    slow = Set(run_s=600.0, load_s=50.0, knows=False)
    slow.waiting = 20
    slow.run(40, 0)
    assert sizes(slow) == [2], "the first start is not over"
    slow.run(20, 0)
    assert sizes(slow) == [2, 4]


def test_a_worn_replica_that_is_replaced_now_and_again_does_not_put_off_a_start_for_ever():
    worn = Set(run_s=1.0)
    for look in range(40):
        seen = Seen(ready=1, full=1, load=1.0, coming=look % 4 == 0, waiting=1_000, run_s=1.0)
        worn.scaler.decide(seen, now=look * LOOK_S)
    assert worn.size > 1


def test_one_that_ends_again_and_again_is_not_waited_for():
    lame = Set(run_s=1.0, most=4)
    lame.scaler.replicas = 2
    seen = Seen(ready=1, full=1, load=1.0, coming=0, waiting=1_000, run_s=1.0, broken=1)
    for look in range(40):
        lame.scaler.decide(seen, now=look * LOOK_S)
    assert lame.size == 4
    idle = seen._replace(full=0, load=0.0, waiting=0)
    last = [lame.scaler.decide(idle, now=10.0 + look * LOOK_S) for look in range(600)]
    assert [one.replicas for one in last if one] == [1], "nobody needs it"


def test_where_all_end_again_and_again_no_more_are_started():
    lame = Set(run_s=1.0)
    for look in range(400):
        seen = Seen(ready=0, full=0, load=0.0, coming=0, waiting=1_000, broken=1)
        assert lame.scaler.decide(seen, now=look * LOOK_S) is None


def test_what_the_memory_has_no_room_for_is_not_started_and_it_is_said_now_and_again():
    tight = Set(run_s=1.0)
    said = []
    for look in range(80):
        seen = Seen(ready=1, full=1, load=1.0, coming=0, waiting=1_000, run_s=1.0, room=0)
        said += filter(None, [tight.scaler.decide(seen, now=look * LOOK_S)])
    assert {(one.replicas, one.was) for one in said} == {(1, 1)}
    assert said[0].reason.endswith("1000 that wait take 17 minutes, but the memory has no room for another")
    assert len(said) <= 20 / 2.0
    tight.scaler.replicas = 2
    seen = seen._replace(ready=2, full=2, load=2.0, room=1)
    roomy = [tight.scaler.decide(seen, now=20.0 + look * LOOK_S) for look in range(20)]
    assert next(one.replicas for one in roomy if one) == 3, "there is room for one, not for twice as many"


def test_nothing_is_started_for_work_that_waits_for_something_else_than_a_replica():
    paused = Set(run_s=1.0)
    seen = Seen(ready=2, full=1, load=1.0, coming=0, waiting=1_000)
    for look in range(100):
        assert paused.scaler.decide(seen, now=look * LOOK_S) is None


def test_a_wait_shorter_than_a_start_takes_is_not_worth_a_start():
    slow = Set(run_s=1.0, load_s=60.0)
    slow.waiting = 40
    slow.run(10, 0)
    assert slow.decisions == []


def test_requests_that_are_refused_start_one_more_although_nothing_waits_long():
    asked = Set(run_s=0.05)
    asked.refused = True
    asked.run(10, 40)
    assert sizes(asked)[:1] == [2]
    assert "refused" in asked.decisions[0][1].reason


def test_the_most_is_never_passed_and_one_that_is_reached_decides_no_more():
    full = Set(run_s=10.0, most=3)
    full.run(60, 20)
    assert sizes(full) == [2, 3]


# -- down ----------------------------------------------------------------------------------------------


def test_replicas_that_were_not_needed_for_the_calm_go_at_once_and_not_before():
    quiet = Set(run_s=1.0)
    quiet.run(30, 4)
    assert quiet.size == 4
    quiet.waiting = 0
    began_at = quiet.now
    quiet.run(120, 0.05)
    at, last = quiet.decisions[-1]
    assert (last.replicas, last.was) == (1, 4)
    assert 55 <= at - began_at <= 80
    assert last.reason.endswith("of 4 were busy for 60 s")


def test_long_jobs_keep_a_replica_each_and_only_the_idle_ones_go():
    long = Set(run_s=600.0, knows=False)
    long.waiting = 4
    long.run(30, 0)
    assert (long.size, long.waiting) == (4, 0)
    long.busy_until[2:] = [0.0, 0.0]  # two of them have ended
    long.run(300, 0)
    assert sizes(long)[-1] == 2
    assert len(long.busy_until) == 2
    assert min(long.busy_until) > long.now, "those that were kept are those that work"


def test_short_jobs_that_now_and_then_fall_together_do_not_keep_what_is_hardly_used():
    short = Set(run_s=0.05)
    short.scaler.replicas = 4
    short.step(0)
    short.run(240, 15)  # 0.75 replicas' worth; four are busy at once a few times a minute
    assert short.size <= 2


def test_what_still_loads_is_not_given_up_before_it_was_of_use():
    slow = Set(run_s=600.0, load_s=200.0, knows=False)
    slow.waiting = 2
    slow.run(190, 0)
    assert sizes(slow) == [2]


# -- without end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("load", [0.3, 0.8, 1.2, 1.9, 2.5, 3.3])
@pytest.mark.parametrize("run_s", [0.05, 1.0, 5.0])
def test_steady_load_with_noise_does_not_change_their_number_without_end(load, run_s):
    steady = Set(run_s=run_s)
    steady.run(600, load / run_s)  # it finds its size
    found = len(steady.decisions)
    steady.run(1_800, lambda now: load / run_s * steady.random.uniform(0.9, 1.1))
    assert len(steady.decisions) - found <= 1_800 / 60 / 3, sizes(steady)
    assert steady.waiting * run_s / steady.size <= 10 + run_s, "and nobody waits much longer than wanted"


@pytest.mark.parametrize(
    "rate",
    [
        lambda now: 3.0 * (now % 40) / 40,  # a sawtooth shorter than the calm
        lambda now: 3.5 if now % 30 < 10 else 0.2,  # bursts
        lambda now: 30.0 if 100 <= now < 105 else 0.1,  # a spike
    ],
    ids=["sawtooth", "bursts", "spike"],
)
@pytest.mark.parametrize("run_s", [1.0, 20.0])
def test_load_that_comes_and_goes_within_the_calm_changes_their_number_once_a_calm_at_most(rate, run_s):
    restless = Set(run_s=run_s)
    restless.run(900, rate)
    ups = [at for at, one in restless.decisions if one.replicas > one.was]
    downs = [at for at, one in restless.decisions if one.replicas < one.was]
    assert all(later - sooner >= 60 for sooner, later in zip(downs, downs[1:], strict=False))
    assert len(ups) <= 3 * (len(downs) + 1), "at most from least to most between two steps down"


@given(
    looks=st.lists(
        st.tuples(
            *[st.integers(0, 6)] * 2, st.integers(0, 500), st.booleans(), st.none() | st.integers(0, 3)
        ),
        max_size=120,
    ),
    gap_s=st.floats(0.01, 100.0),
)
def test_whatever_is_seen_their_number_stays_in_its_bounds_and_each_change_has_a_reason(looks, gap_s):
    scaler = Scaler(ScalePolicy(least=2, most=5))
    for number, (ready, full, waiting, refused, room) in enumerate(looks):
        full = min(full, ready)
        seen = Seen(ready, full, float(full), 0, waiting, refused, run_s=1.0, room=room)
        before = scaler.replicas
        decision = scaler.decide(seen, now=number * gap_s)
        assert 2 <= scaler.replicas <= 5
        assert decision is not None or scaler.replicas == before
        if decision is not None:
            assert (decision.replicas, decision.was) == (scaler.replicas, before)
            assert decision.reason


# -- nodes -----------------------------------------------------------------------------------------------


def test_the_end_of_a_node_costs_what_it_runs_and_of_idle_ones_the_longest_idle_goes_first():
    costs = [
        deletion_cost(in_hand=n, idle_s=s) for n, s in [(0, 900.5), (0, 3.0), (0, 0.0), (1, 0.0), (7, 0)]
    ]
    assert costs == [-900, -3, 0, 1, 7]
    assert deletion_cost(in_hand=0, idle_s=1e12) == -(2**31 - 1)
