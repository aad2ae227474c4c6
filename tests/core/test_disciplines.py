"""Disciplines: what becomes of waiting requests once their queue stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.admission import Reason, Rejected
from forebay.core.codel import Discipline
from forebay.core.requests import Request, RequestPolicy, Reservoir
from forebay.core.shedding import bounds_s
from tests.core.serving import MODEL, RequestRig
from tests.core.test_reservoir import a_request
from tests.sim.rig import a_spec

RUN_S = 0.052


def a_rig(discipline, **more):
    spec = a_spec(**MODEL, discipline=Discipline(discipline), wait_target_s=0.05, wait_interval_s=0.2)
    return RequestRig(spec, **more).learn_model()


def crowd(rig, rounds, count, **asked):
    """Let `count` come before each of so many runs; return the verdicts."""
    verdicts = []
    for _ in range(rounds):
        verdicts += [rig.offer(deadline_s=30.0, **asked) for _ in range(count)]
        rig.poll()
        rig.done(*list(rig.d.hand.items), after=RUN_S)
    return verdicts


def standing(rig):
    return rig.d.hand.tasks["t"].codel.standing


@pytest.mark.parametrize("discipline", ["newest", "codel"])
def test_below_capacity_nothing_is_shed_and_the_order_stays(discipline):
    rig = a_rig(discipline)
    crowd(rig, 20, 12)
    assert not standing(rig) and set(rig.ends().values()) == {"done"}


def test_codel_sheds_and_refuses_once_the_queue_stands_and_says_when_to_come_back():
    rig = a_rig("codel")
    verdicts = crowd(rig, 40, 40)
    refused = [one for one in verdicts if isinstance(one, Rejected)]
    assert standing(rig) and {one.reason for one in refused} == {Reason.SHED}
    shed = [one for one in rig.told.values() if one.end.value == "shed"]
    assert shed and all(one.retry_after_s > 0 for one in [*shed, *refused])
    waits = [one.request.started_at - one.request.job.created_at for one in list(rig.told.values())[-100:]
             if one.end.value == "done"]  # fmt: skip
    assert max(waits) <= 0.2 + 2 * RUN_S


def test_codel_gives_up_the_less_urgent_first():
    rig = a_rig("codel")
    for _ in range(40):
        for priority in (2, 8):
            for _ in range(12):
                rig.offer(deadline_s=30.0, priority=priority)
        rig.poll()
        rig.done(*list(rig.d.hand.items), after=RUN_S)
    shed = [one.request.job.priority for one in rig.told.values() if one.end.value == "shed"]
    assert shed and set(shed) == {8}


def test_codel_gives_up_those_of_a_tenant_that_floods():
    rig = a_rig("codel")
    for _ in range(40):
        rig.offer(deadline_s=30.0, tenant="quiet")
        for _ in range(30):
            rig.offer(deadline_s=30.0, tenant="loud")
        rig.poll()
        rig.done(*list(rig.d.hand.items), after=RUN_S)
    shed = [one.request.job.tenant for one in rig.told.values() if one.end.value == "shed"]
    assert shed and set(shed) == {"loud"}


def test_newest_turns_the_line_when_the_queue_stands_and_back_when_it_moves():
    rig = a_rig("newest")
    reservoir = rig.d.hand.basin.reservoirs["t"]
    crowd(rig, 40, 40)
    assert reservoir.newest_first
    last = rig.offer(deadline_s=30.0)
    (run,) = rig.done(*list(rig.d.hand.items), after=RUN_S)
    assert last.job.id in {lease.job.id for _, lease in run.items}
    oldest = reservoir.oldest()
    assert oldest is not None and rig.now - oldest.job.created_at <= 0.2 + RUN_S
    for _ in range(60):
        rig.done(*list(rig.d.hand.items), after=RUN_S)
    assert not len(reservoir)
    rig.ask(deadline_s=30.0)
    assert not reservoir.newest_first and not standing(rig)


def test_at_its_bound_the_oldest_makes_room_where_the_newest_go_first():
    rig = a_rig("newest", policy=RequestPolicy(requests_max=100))
    crowd(rig, 20, 24)
    reservoir = rig.d.hand.basin.reservoirs["t"]
    assert reservoir.newest_first
    while len(reservoir) < 100:
        rig.offer(deadline_s=30.0)
    oldest = reservoir.oldest()
    assert isinstance(rig.offer(deadline_s=30.0), Request)
    assert oldest.end is not None and oldest.end.value == "shed" and len(reservoir) == 100


def test_without_bounds_of_its_own_a_task_has_those_of_what_was_measured():
    rig = RequestRig(a_spec(**MODEL, discipline=Discipline.CODEL))
    assert bounds_s(rig.d.hand.tasks["t"]) == (0.005, 0.1)
    rig.learn_model()
    assert bounds_s(rig.d.hand.tasks["t"]) == pytest.approx((RUN_S, 10 * RUN_S), rel=0.01)


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "turn"]), st.integers(0, 9), st.floats(0, 100))))
def test_turning_the_line_loses_nobody_and_every_place_is_right(steps):
    reservoir, waiting, newest = Reservoir(RequestPolicy()), [], False
    for seq, (step, number, deadline_at) in enumerate(steps, 1):
        if step == "put":
            request = a_request(seq, priority=number, deadline_at=deadline_at)
            place = reservoir.ahead(number, deadline_at)
            reservoir.put(request)
            waiting.append(request)
            assert reservoir.at(place) is request
        elif step == "take" and waiting:
            assert reservoir.take(waiting.pop(number % len(waiting)))
        elif step == "turn":
            newest = not newest
            reservoir.turn(newest_first=newest)
        by_key = sorted(waiting, key=lambda one: (one.job.priority, -one.seq) if newest else one.key)
        assert list(reservoir) == by_key
        assert reservoir.oldest() is (min(waiting, key=lambda one: one.seq) if waiting else None)
        if by_key:
            assert reservoir.first_of(by_key[-1].job.priority) is next(
                one for one in by_key if one.job.priority == by_key[-1].job.priority
            )
