"""A burst of 1,200 callers at once onto 3 replicas of 150 a second, in virtual time, and the bound for it.

The real gate, the waits of our client and the bound that sizing computes. A bound of 200 does not keep 200 ms:
200 at 450 a second are 444 ms. What keeps it is a bound made from the wait.
"""

import math
from collections import deque

import pytest

from forebay.client.policy import backoff_s
from forebay.core.admission import Accepted, AdmissionPolicy, Gate, Snapshot
from forebay.core.sizing.findings import Limits, findings
from forebay.core.sizing.law import law_of_rate
from forebay.core.sizing.plan import Load, sized
from forebay.sim.chance import Chance
from forebay.sim.engine import Engine

CLIENTS, REPLICAS, WAIT_MAX_S = 1_200, 3, 0.2
ONE = law_of_rate(150.0)
CAPACITY_PER_S = REPLICAS * ONE.rate_per_s
TRIES_MAX = 50


class Burst:
    """Everybody comes at once; who is refused comes back as our client does. Served in order of arrival."""

    def __init__(self, *, queue_max, seed=1):
        self.chance = Chance(seed)
        self.engine = Engine(self.chance.fork(1))
        self.gate = Gate(AdmissionPolicy(jobs_max=queue_max))
        self.line, self.running = deque(), 0
        self.latencies, self.refusals, self.tries, self.longest, self.untold = [], 0, [0] * CLIENTS, 0, 0
        for client in range(CLIENTS):
            self.engine.at(self.engine.now, self.submit, client)
        self.began = self.engine.now
        self.engine.run(until=self.engine.now + 120)
        self.took_s = self.engine.now - self.began

    def submit(self, client):
        now, self.tries[client] = self.engine.now, self.tries[client] + 1
        held = Snapshot(len(self.line) + self.running, 0, CAPACITY_PER_S)
        verdict = self.gate.admit(jobs=1, size_b=0, snapshot=held, now=now, jitter=self.chance.random())
        if not isinstance(verdict, Accepted):
            self.untold += verdict.retry_after_s is None
            wait_s = backoff_s(
                failures=self.tries[client], draw=self.chance.random(), after_s=verdict.retry_after_s
            )
            return self.refused(client, wait_s)
        self.line.append(now)
        self.serve()
        return None

    def refused(self, client, wait_s):
        self.refusals += 1
        if self.tries[client] < TRIES_MAX:
            self.engine.after(wait_s, self.submit, client)

    def serve(self):
        while self.line and self.running < REPLICAS:
            self.running += 1
            self.engine.after(ONE.each_s, self.served, self.line.popleft())
        self.longest = max(self.longest, len(self.line))

    def served(self, since):
        self.running -= 1
        self.latencies.append(self.engine.now - since)
        self.serve()

    def p95_s(self):
        ordered = sorted(self.latencies)
        return ordered[math.ceil(0.95 * len(ordered)) - 1]


def test_m31_m32_a_bound_of_200_and_a_p95_of_200_ms_contradict_each_other_at_450_a_second():
    limits = Limits(queue_max=200, capacity_per_s=CAPACITY_PER_S, wait_max_s=WAIT_MAX_S)
    (found,) = findings(limits)
    assert (found.code, found.change) == ("queue_over_wait", "queue_max=90")
    assert "444 ms at 450/s" in found.evidence
    assert 0.35 < Burst(queue_max=200).p95_s() < 0.5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_bound_from_the_wait_keeps_it_and_everybody_is_served_in_the_end(seed):
    queue_max = sized(Load(peak_per_s=CAPACITY_PER_S, wait_max_s=WAIT_MAX_S)).queue.waiting
    burst = Burst(queue_max=int(queue_max), seed=seed)
    assert len(burst.latencies) == CLIENTS and burst.untold == 0
    assert burst.longest <= queue_max <= 200 and burst.p95_s() <= WAIT_MAX_S + ONE.each_s
    assert burst.took_s < 3 * CLIENTS / CAPACITY_PER_S and max(burst.tries) <= 10


def test_three_replicas_keep_up_with_300_a_second_and_not_with_1200():
    assert sized(Load(peak_per_s=300.0, law=ONE, replicas=REPLICAS, wait_max_s=WAIT_MAX_S)).verdict.good
    burst = sized(Load(peak_per_s=1_200.0, law=ONE, replicas=REPLICAS, wait_max_s=WAIT_MAX_S))
    assert not burst.verdict.good and burst.lost == pytest.approx(0.625)
