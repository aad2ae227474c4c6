"""The burst of a pipeline in virtual time: 3 runs of 400 jobs at once, 3 replicas of 150/s, a queue of 200.

Built from what decides in the client and at the door: pace, patience, budget, gate. Nothing here has a clock.
"""

import heapq
import random
from dataclasses import dataclass, field

import pytest

from forebay.client.pace import Pace
from forebay.client.policy import Hint, Known, Patience
from forebay.core.admission import AdmissionPolicy, Gate, Reason, Rejected, Snapshot
from forebay.core.budget import Budget

RUNS, JOBS, BOUND, PER_S = 3, 400, 200, 3 * 150
CALL_S = 0.004  # of one call, there and back
CHUNK = 200  # lines


@dataclass
class Door:
    """A queue with its gate, in front of replicas that drain it evenly."""

    shared: Budget | None
    draw: random.Random
    gate: Gate = field(default_factory=lambda: Gate(AdmissionPolicy(jobs_max=BOUND)))
    free_at: float = 0.0  # when all that was taken has been done
    most: int = 0
    waits_s: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def open_jobs(self, now):
        return max(0, round((self.free_at - now) * PER_S))

    def one(self, now):
        """Return None when one job is taken, else its refusal."""
        if self.shared is not None and not self.shared.has(1, now=now):
            return Rejected(Reason.OVER_BUDGET, None)
        held = Snapshot(self.open_jobs(now), 0, float(PER_S))
        verdict = self.gate.admit(jobs=1, size_b=0, snapshot=held, now=now, jitter=self.draw.random())
        if type(verdict) is Rejected:
            return verdict
        if self.shared is not None:
            self.shared.take(1, now=now)
        self.waits_s.append(max(0.0, self.free_at - now))
        self.free_at = max(self.free_at, now) + 1 / PER_S
        self.most = max(self.most, self.open_jobs(now))
        return None

    def call(self, lines, now):
        """Answer so many lines; return how many were taken and what the others were told together."""
        refused = [why for why in (self.one(now) for _ in range(lines)) if why is not None]
        over = [why for why in refused if why.reason is Reason.OVER_BUDGET]
        times = [why.retry_after_s for why in refused if why.reason is not Reason.OVER_BUDGET]
        if over:
            times.append(self.shared.refuse(len(over), now=now))
        self.told += times
        exact = bool(over) and len(over) == len(refused)
        return lines - len(refused), Hint(max(times), None, exact) if times else None


class Run:
    """One producer with calls one after another, as `forebay submit` makes them."""

    def __init__(self, rate_per_s):
        self.left, self.known, self.calls = JOBS, Known(), 0
        self.pace = Pace(rate_per_s=rate_per_s, in_flight_max=CHUNK)
        self.patience = Patience(now=0.0, retry_for_s=300.0, known=self.known)

    def step(self, door, now, draw):
        """Make one call, or wait for the pace; return when to go on."""
        count, wait_s = self.pace.take(min(CHUNK, self.left), now=now)
        if not count:
            return now + wait_s
        self.calls += 1
        taken, hint = door.call(count, now)
        self.pace.answered(taken=taken, refused=count - taken)
        self.left -= taken
        if taken:
            self.patience.success(now)
        if hint is not None:
            wait_s = self.patience.wait_s(hint, now=now, draw=draw.random())
            assert wait_s is not None, "gave up"
            self.pace.hold(wait_s, now=now + CALL_S, shrink=not hint.exact)
        return now + CALL_S


def burst(seed, *, budget):
    draw = random.Random(seed)
    shared = None
    if budget:
        shared = Budget(tenant="", name="ci", rate_per_s=300.0, declared=False, now=0.0)
    door = Door(shared, draw)
    runs = [Run(300.0 if budget else None) for _ in range(RUNS)]
    heap = [(0.0, n) for n in range(RUNS)]
    now = 0.0
    while heap:
        now, n = heapq.heappop(heap)
        assert now < 60.0, "it ends"
        if runs[n].left:
            heapq.heappush(heap, (runs[n].step(door, now, draw), n))
    return door, runs, now


@pytest.mark.parametrize("seed", range(10))
def test_with_a_budget_all_are_done_in_four_seconds_and_hardly_wait(seed):
    door, runs, took_s = burst(seed, budget=True)
    assert len(door.waits_s) == RUNS * JOBS and door.shared.granted == RUNS * JOBS
    assert door.most <= BOUND
    assert sorted(door.waits_s)[int(0.95 * RUNS * JOBS)] < 0.2
    assert 3.8 <= took_s <= 1.25 * 4.0, "the rate is kept, and used"
    assert sum(run.calls for run in runs) <= 300, "in few calls: a turn is for as many as may come at once"


@pytest.mark.parametrize("seed", range(10))
def test_without_one_the_queue_keeps_its_bound_and_refusals_alone_pace_the_runs(seed):
    door, _, took_s = burst(seed, budget=False)
    assert len(door.waits_s) == RUNS * JOBS and door.told
    assert door.most <= BOUND and max(door.waits_s) <= BOUND / PER_S + 0.01
    assert took_s <= 3 * RUNS * JOBS / PER_S, "and the replicas are busy most of the time"
