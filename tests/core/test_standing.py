"""Turns that stand from lease to lease are those that are made anew for each, whatever happens in between."""

import random

import pytest

from forebay.core.fairness import FairShare, Share, Shares
from forebay.core.lifecycle import Event
from forebay.core.reserve import Reserve
from forebay.core.standing import STALE_MIN, StandingTurns
from forebay.core.turns import Place, Turns


class Line:
    """Jobs by key, each with the time from which it may not be granted."""

    def __init__(self):
        self.jobs = {}  # (key, number) -> end

    def head(self, now):
        return min((key for key, end in self.jobs.items() if end > now), default=None)


class World:
    """One set of lines and two sets of books: one read anew at each lease, one that stands."""

    def __init__(self, seed, tenants, *, bounds=False, reserved=False):
        self.draw = random.Random(seed)
        self.tenants = [f"t{n}" for n in range(tenants)]
        self.lines = {}
        self.number, self.now, self.looks = 0, 0.0, 0
        self.books = [(FairShare(Shares()), Reserve()) for _ in range(2)]
        shares = {name: Share(self.draw.choice((0.5, 1.0, 4.0))) for name in self.tenants[::3]}
        if bounds:
            shares |= {name: Share(1.0, self.draw.choice((1, 2, 5))) for name in self.tenants[1::3]}
        others_max = self.draw.choice((3, 8)) if reserved else None
        for fair, reserve in self.books:
            fair.shares.set(shares, ())
            reserve.set(others_max, ())
        self.running = []  # (tenant, priority, job, since)
        self.standing = StandingTurns(*self.books[1], self.head)

    def head(self, key, now):
        self.looks += 1
        line = self.lines.get(key)
        return None if line is None else line.head(now)

    def enter(self, count):
        for _ in range(count):
            self.number += 1
            key = (self.draw.choice((2, 5, 5, 5, 8)), self.draw.choice(self.tenants))
            at = self.now + self.draw.choice((0.0, 0.0, -5.0)) + key[0] * 60.0
            end = self.now + self.draw.choice((float("inf"), float("inf"), 2.0, 7.0))
            self.lines.setdefault(key, Line()).jobs[at, self.number] = end
            self.standing.touch(key)

    def leave(self):
        full = [key for key, line in self.lines.items() if line.jobs]
        if full:
            key = self.draw.choice(full)
            del self.lines[key].jobs[self.draw.choice(list(self.lines[key].jobs))]
            self.standing.touch(key)

    def settle(self):
        if self.running:
            tenant, priority, job, since = self.running.pop(self.draw.randrange(len(self.running)))
            took = self.draw.choice((0.0, 0.1, 1.0, 9.0))
            event = self.draw.choice((Event.COMPLETED, Event.COMPLETED, Event.RELEASED))
            for fair, reserve in self.books:
                fair.settle(job, event, took)
                fair.shares.ended(tenant)
                reserve.ended(priority)

    def lease(self, limit):
        """Lease by both; return the jobs."""
        fair, reserve = self.books[0]
        places = [Place(*key, line) for key, line in self.lines.items() if line.jobs]
        turns = Turns(fair, reserve, places, self.now)
        kept, expected = {key: dict(line.jobs) for key, line in self.lines.items()}, []
        while len(expected) < limit and (place := turns.next()) is not None:
            job = place.line.head(self.now)
            del place.line.jobs[job]
            turns.granted(place, job)
            expected.append((place.priority, place.tenant, job))
        for key, jobs in kept.items():
            self.lines[key].jobs = jobs
        self.standing.begin(self.now)
        found = []
        while len(found) < limit and (key := self.standing.next()) is not None:
            job = self.lines[key].head(self.now)
            del self.lines[key].jobs[job]
            self.standing.granted(key, job)
            found.append((*key, job))
        assert found == expected
        assert self.books[0][0].on == self.books[1][0].on
        self.running += [(tenant, priority, job, self.now) for priority, tenant, job in found]
        return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "more", [{}, {"bounds": True}, {"reserved": True}, {"bounds": True, "reserved": True}], ids=str
)
def test_standing_turns_are_those_made_anew(seed, more):
    world = World(seed, tenants=(1, 2, 3, 12)[seed % 4], **more)
    draw, granted = world.draw, 0
    for _ in range(250):
        world.now += draw.choice((0.0, 0.1, 1.0))
        step = draw.random()
        if step < 0.35:
            world.enter(draw.choice((1, 3, 9)))
        elif step < 0.45:
            world.leave()
        elif step < 0.7:
            world.settle()
        else:
            granted += len(world.lease(draw.choice((0, 1, 2, 7))))
    assert granted > 30


def test_a_lease_looks_at_few_lines_however_many_wait():
    world = World(3, tenants=3_000)
    world.enter(20_000)
    world.lease(5)
    for _ in range(20):
        world.looks = 0
        assert len(world.lease(5)) == 5
        assert world.looks <= 60, world.looks
        world.now += 0.01
        for _ in range(5):
            world.settle()
        world.enter(5)


def test_what_is_over_is_not_kept_for_ever():
    world = World(4, tenants=8)
    for _ in range(2_000):
        world.enter(3)
        world.lease(3)
        for _ in range(3):
            world.settle()
    standing = world.standing
    heaps = [*standing._by_key.values(), *standing._idle.values(), *standing._served.values()]
    assert sum(map(len, heaps)) <= 9 * (STALE_MIN + 4 * 24) + 60
