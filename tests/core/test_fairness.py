"""Shares, accounts, turns and chains: who goes next, and why."""

import random
from collections import Counter

import pytest

from forebay.core import fairness, settle
from forebay.core.chains import Chains
from forebay.core.fairness import FairShare, Share, Shares, ahead_among, share_problem
from forebay.core.job import Job
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import Event
from forebay.core.reserve import Reserve
from forebay.core.turns import Order, Place, Turns, order_at

T0 = 1_800_000_000.0


class Heads:
    """A line that is a list of keys."""

    def __init__(self, *keys):
        self.keys = sorted((float(key), f"{key}-{id(self)}") for key in keys)

    def head(self, now):
        return self.keys[0] if self.keys else None


def served(fair, places, count):
    """The tenants and keys of the next grants."""
    turns, got = Turns(fair, Reserve(), places, 0.0), []
    while len(got) < count and (place := turns.next()) is not None:
        key = place.line.keys.pop(0)
        turns.granted(place, key)
        got.append((place.tenant, place.priority, key[0]))
    return got


def fair_of(**shares):
    made = Shares()
    made.set({tenant: share for tenant, share in shares.items()}, [])
    return FairShare(made)


def spending(fair, **spent):
    fair.turn_on()
    for tenant, amount in spent.items():
        fair._accounts[tenant] = fairness.Account(amount, 1.0)
    fair._mean_s, fair._reached = 1.0, min(spent.values())
    return fair


def test_with_one_tenant_the_keys_decide_and_nothing_is_counted():
    fair = fair_of()
    lines = [Place(2, "a", Heads(130, 500)), Place(5, "a", Heads(300, 400))]
    assert [key for _, _, key in served(fair, lines, 9)] == [130, 300, 400, 500]
    assert not fair.on
    assert fair._accounts == {}


def test_whoever_was_served_alone_lets_the_next_one_go_ahead_a_little():
    fair = fair_of()
    line = Heads(*range(30))
    served(fair, [Place(5, "a", line)], 10)
    got = served(fair, [Place(5, "a", line), Place(5, "b", Heads(*range(100, 130)))], 16)
    assert [tenant for tenant, _, _ in got] == ["b"] * 8 + ["a", "b"] * 4


def test_tenants_alternate_when_their_jobs_cost_the_same():
    got = served(fair_of(), [Place(5, "a", Heads(*range(9))), Place(5, "b", Heads(*range(100, 109)))], 8)
    assert [tenant for tenant, _, _ in got] == list("abababab")


def test_the_more_urgent_priority_goes_first_whatever_a_tenant_had():
    fair = spending(fair_of(), a=50.0, b=45.0)
    lines = [Place(2, "a", Heads(120)), Place(5, "b", Heads(300))]
    assert served(fair, lines, 1) == [("a", 2, 120)]


def test_age_lifts_a_job_over_urgent_ones_of_a_tenant_that_had_more():
    fair = spending(fair_of(), a=45.0, b=50.0)
    assert served(fair, [Place(5, "a", Heads(10)), Place(2, "b", Heads(120))], 1) == [("a", 5, 10)]


def test_age_lifts_no_job_over_urgent_ones_of_a_tenant_that_had_less():
    fair = spending(fair_of(), a=50.0, b=45.0)
    assert served(fair, [Place(5, "a", Heads(10)), Place(2, "b", Heads(120))], 1) == [("b", 2, 120)]


def test_a_tenant_at_its_bound_is_passed_over():
    fair = fair_of(a=Share(running_max=2))
    got = served(fair, [Place(5, "a", Heads(1, 2, 3)), Place(8, "a", Heads(0)), Place(5, "b", Heads(9))], 9)
    assert sorted(tenant for tenant, _, _ in got) == ["a", "a", "b"]
    assert fair.shares.room("a") == 0
    assert fair.shares.ended("a")  # it was at its bound: somebody must ring
    assert not fair.shares.ended("a")


def test_what_a_job_took_replaces_what_was_expected():
    fair = spending(fair_of(), a=10.0, b=10.0)
    fair.charge("a", 1)
    assert fair.spent("a") == 11.0
    fair.settle(1, Event.COMPLETED, 5.0)
    assert fair.spent("a") == 15.0
    assert fair._accounts["a"].mean_s == 1.5  # an eighth of the way
    fair.settle(1, Event.COMPLETED, 5.0)  # a second time is nothing
    assert fair.spent("a") == 15.0


def test_a_hand_back_teaches_nothing_about_what_jobs_take():
    fair = spending(fair_of(), a=10.0, b=10.0)
    fair.charge("a", 1)
    fair.settle(1, Event.RELEASED, 0.0)
    assert fair.spent("a") == 10.0
    assert fair._accounts["a"].mean_s == 1.0


def test_a_clock_that_went_back_refunds_no_more_than_was_charged():
    fair = spending(fair_of(), a=10.0, b=10.0)
    fair.charge("a", 1)
    fair.settle(1, Event.COMPLETED, -100.0)
    assert fair.spent("a") == 10.0


def test_accounts_are_bounded(monkeypatch):
    monkeypatch.setattr(fairness, "ACCOUNTS_MAX", 10)
    fair = fair_of()
    fair.turn_on()
    for n in range(200):
        fair.charge(f"tenant-{n}", n)
        fair.settle(n, Event.COMPLETED, 1.0)
        assert len(fair._accounts) <= 21
    assert fair._charges == {}


def test_every_change_of_an_account_can_be_taken_back(monkeypatch):
    monkeypatch.setattr(fairness, "ACCOUNTS_MAX", 4)
    steps, chance = [], random.Random(1)
    fair = FairShare(Shares(), lambda *step: steps.append(step))
    fair.turn_on()
    for n in range(5):
        fair.charge(f"t{n}", n)
    seen = dict(fair._accounts), dict(fair._charges), fair._mean_s, fair._reached
    steps.clear()
    for n in range(5, 60):
        fair.charge(f"t{chance.randrange(30)}", n)
        fair.settle(chance.randrange(60), chance.choice((Event.COMPLETED, Event.LOST)), chance.random() * 9)
    for step in reversed(steps):
        step[0](*step[1:])
    assert (fair._accounts, fair._charges, fair._mean_s, fair._reached) == seen


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (Share(0.0), "weight"),
        (Share(float("inf")), "weight"),
        (Share(float("nan")), "weight"),
        (Share(1.0, 0), "running_max"),
        (Share(0.5, 1), None),
    ],
)
def test_shares_are_checked(share, says):
    problem = share_problem(share)
    assert (problem is None) if says is None else says in problem


def test_a_place_beside_others_counts_their_share():
    assert ahead_among(0, 1.0, [(1000, 1.0)]) == 0
    assert ahead_among(5, 1.0, [(1000, 1.0), (3, 1.0)]) == 8
    assert ahead_among(6, 3.0, [(1000, 1.0)]) == 2


def test_a_job_without_a_deadline_counts_as_due_in_a_day():
    assert order_at(Order.ARRIVAL, 5.0, 9.0) == 5.0
    assert order_at(Order.DEADLINE, 5.0, 9.0) == 9.0
    assert order_at(Order.DEADLINE, 5.0, None) == 86_405.0


def test_a_chain_has_one_head_and_every_step_can_be_taken_back():
    chance, steps = random.Random(7), []
    chains = Chains(lambda *step: steps.append(step))
    key, members, running = ("t", "", "k"), set(), None
    history = []
    for n in range(400):
        history.append((len(steps), chains.snapshot()))
        draw = chance.random()
        if draw < 0.4:
            member = chance.randrange(1_000)
            if member not in members:
                chains.enter(key, member)
                members.add(member)
        elif draw < 0.6 and members and running is None:
            running = min(members)
            chains.run(key, running)
        elif draw < 0.7 and running is not None:
            following = chains.rest(key, running)
            assert following == (None if min(members) == running else min(members))
            running = None
        elif members:
            gone = chance.choice(sorted(members))
            was_head = gone == (running if running is not None else min(members))
            following = chains.leave(key, gone)
            members.discard(gone)
            running = None if gone == running else running
            assert following == (min(members) if was_head and members else None), n
        expected = running if running is not None else min(members, default=None)
        assert chains.head(key) == expected
    while history:
        length, snapshot = history.pop()
        while len(steps) > length:
            step = steps.pop()
            step[0](*step[1:])
        assert chains.snapshot() == snapshot
    assert not chains


def test_in_a_long_run_tenants_get_their_weights_of_the_service():
    chance, book = random.Random(5), Ledger()
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    book.set_shares({tenant: Share(weight) for tenant, weight in weights.items()})
    cost = {"a": 5.0, "b": 1.0, "c": 0.3}
    jobs = [Job(book.new_id(T0), "t", b"{}", T0, T0, tenant=t) for t in weights for _ in range(8_000)]
    book.enqueue(jobs, now=T0)
    got, now, running = Counter(), T0, []
    for _ in range(6_000):
        while len(running) < 4:
            (lease,) = book.lease("t", limit=1, lease_s=1e9, worker="w", now=now)
            running.append((now + cost[lease.job.tenant] * (0.5 + chance.random()), lease))
        running.sort(key=lambda one: one[0])
        now, lease = running.pop(0)
        got[lease.job.tenant] += now - lease.leased_at
        book.commit([settle.complete(lease, output=b"1", now=now)], now=now)
    total = sum(got.values())
    for tenant, weight in weights.items():
        assert abs(got[tenant] / total - weight / 8.0) < 0.02, got
