"""Faults of overload that queues and model servers really had (F079, F116, F117, F118), in virtual time."""

import asyncio
from collections import Counter
from dataclasses import replace

from forebay.brokers.memory import MemoryBroker
from forebay.core.admission import Reason, Rejected
from forebay.core.job import Job, Query
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import State
from forebay.core.requests import RequestPolicy
from forebay.core.task import TaskSpec
from forebay.node.lane import Lane
from forebay.sim.arrivals import poisson
from forebay.sim.chance import Chance
from forebay.sim.service import Service
from forebay.sim.serving import ServingWorld, Wanted
from forebay.sim.storm import Storm, play
from tests.sim.test_agreement import VirtualClock, VirtualLoop
from tests.sim.test_serving import CAPACITY, MODEL, SERVICE, good_per_s
from tests.sim.test_serving_agreement import FIRST_S, Child, model


def test_f116_at_ten_times_the_capacity_no_more_wait_than_may_and_those_let_in_wait_for_the_line_alone():
    limit = 100
    asked = [Wanted(at, "M", 30.0) for at in poisson(Chance(5), 10 * CAPACITY, start=0.0, until=4.0)]
    world = ServingWorld([MODEL], {"M": SERVICE}, asked, policy=RequestPolicy(requests_max=limit))
    most = 0
    for step in range(1, 300):
        world.play(until=step / 50)
        most = max(most, len(world.dispatcher.hand.basin.reservoirs["M"]))
    assert most <= limit
    assert good_per_s(world.answers, 1.0, 4.0) >= 0.9 * CAPACITY
    waits = sorted(one.at - one.wanted.at for one in world.answers if one.good)
    assert waits[int(0.99 * len(waits))] <= limit / CAPACITY + 3 * 0.052
    refused = [one.refused for one in world.answers if one.refused is not None]
    assert {one.reason for one in refused} == {Reason.FULL} and all(one.retry_after_s > 0 for one in refused)


def test_f117_callers_who_give_up_and_ask_again_leave_no_dead_work_in_the_line():
    capacity = 16 / 0.52
    storm = Storm(
        service=Service(fixed_s=0.20, each_s=0.02),
        rate_per_s=3 * capacity,
        patience_s=2.0,
        gives_up_s=10.0,
        until=24.0,
        budget=False,
    )

    def answered_per_s(storm):
        return sum(one.good_at is not None and 8.0 <= one.good_at < 24.0 for one in play(storm)) / 16.0

    assert answered_per_s(storm) >= 0.95 * capacity
    assert answered_per_s(replace(storm, refusal=False)) <= 0.1 * capacity, "as in a line that holds them"


def test_f118_a_hundred_short_ones_pass_one_that_takes_two_minutes():
    spec = TaskSpec(name="f")
    asked = [Wanted(0.0, "f", 600.0, cost=12_000.0)]
    asked += [Wanted(0.5 + n / 1_000, "f", 600.0) for n in range(100)]
    world = ServingWorld([spec], {"f": Service(each_s=0.010)}, asked, replicas=2)
    answers = world.play(until=200.0)
    assert all(one.good for one in answers)
    assert max(one.at for one in answers[1:]) <= 3.0 and answers[0].at >= 119.0


def test_f079_nothing_is_kept_of_requests_that_ended_however_they_did():
    loop, chance, ends = VirtualLoop(), Chance(6), []

    async def main():
        clock = VirtualClock(loop)
        lane = Lane([model(16)], broker=MemoryBroker(ledger=Ledger()), clock=clock, worker="w")
        lane.child_ready(1, Child(lane, loop, SERVICE, []))

        def come(number):
            now = clock.now()
            deadline_s = chance.pick((0.03, 0.2, 2.0))
            job = Job(
                f"r{number}", "M", b"1", now, now, attempts_max=2, deadline_at=now + deadline_s, tenant="a"
            )
            verdict = lane.requests.offer(job, lambda ended: ends.append(ended.end.value))
            if isinstance(verdict, Rejected):
                ends.append("refused")
            elif chance.hit(0.3):
                loop.call_later(chance.between(0.0, 0.1), gone, verdict)

        def gone(request):
            lane.requests.withdraw(request)
            ends.append("gone")

        arrivals = poisson(chance, 3 * CAPACITY, start=FIRST_S, until=FIRST_S + 3.0)
        for number, at in enumerate(arrivals):
            loop.call_at(at, come, number)
        await asyncio.sleep(FIRST_S + 3.0 + 5.0)
        hand = lane.dispatcher.hand
        basin = hand.basin
        kept = (basin.open, basin._held, basin.ended, hand.items, hand.cancelling, lane.requests._on_end)
        assert [len(one) for one in kept] == [0] * len(kept)
        assert basin.waiting == len(basin.reservoirs["M"]) == basin.reservoirs["M"].bytes == 0
        assert len(basin._due) <= 64 and len(basin.reservoirs["M"]._came) <= 64
        assert {"done", "refused", "gone"} <= set(ends)
        lane.drain()
        await lane.close()

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_jobs_behind_a_late_run_are_not_given_back_until_they_are_dead_while_requests_wait():
    """Nothing was measured yet, and the first run of jobs takes longer than a replica may be without word."""
    loop = VirtualLoop()

    async def main():
        clock, broker = VirtualClock(loop), MemoryBroker(ledger=Ledger())
        lane = Lane([model(16)], broker=broker, clock=clock, worker="w")
        broker.on_work(lane.knock)
        lane.child_ready(1, Child(lane, loop, Service(fixed_s=0.20, each_s=0.02), []))

        def ask(number):
            now = clock.now()
            job = Job(f"r{number}", "M", b"1", now, now, attempts_max=2, deadline_at=now + 2.0)
            lane.requests.offer(job, lambda _: None)

        await asyncio.sleep(FIRST_S)
        now = clock.now()
        await broker.enqueue([Job(broker.new_id(now), "M", b"1", now, now) for _ in range(64)], now=now)
        for number in range(100):
            loop.call_later(0.1 + 0.05 * number, ask, number)
        await asyncio.sleep(30.0)
        page = await broker.find(Query(limit=100), now=clock.now())
        assert Counter(one.standing.state for one in page.records) == {State.SUCCEEDED: 64}
        lane.drain()
        await lane.close()

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
