"""Calls of very uneven length on several nodes: none of them goes back and forth, and no node idles for it."""

import pytest

from forebay.core.breaker import BreakerPolicy, CircuitBreaker
from forebay.core.task import TaskSpec
from forebay.sim.chance import Chance
from tests.sim import nodes
from tests.sim.nodes import Shop

ONE = TaskSpec(name="t")
PAIR = (TaskSpec(name="t"), TaskSpec(name="u"))
OFTEN = (
    12  # hand-backs of one job: more, and it goes in circles; `releases_max` makes it a dead letter at 100
)


def uneven(share, fast_s, slow_s, count=1_500, tasks=("t",), seed=1):
    """So many calls, a share of which take long."""
    chance = Chance(seed)
    return [(chance.pick(tasks), slow_s if chance.hit(share) else fast_s) for _ in range(count)]


@pytest.mark.parametrize("store_s", [0.001, 0.03])
@pytest.mark.parametrize(("count", "replicas"), [(1, 1), (2, 1), (2, 4)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_quick_calls_beside_slow_ones_are_handed_back_a_few_times_at_most(
    share, count, replicas, store_s, monkeypatch
):
    monkeypatch.setattr(nodes, "STORE_S", store_s)
    shop = Shop([ONE], uneven(share, 0.00002, 0.3), nodes=count, replicas=replicas)
    took_s = shop.play()
    assert (len(shop.queue.ended), shop.dead) == (1_500, 0), shop.told()
    assert max(shop.queue.releases.values()) <= OFTEN, shop.told()
    assert shop.queue.leases <= 8 * 1_500, shop.told()
    if store_s < 0.01:
        assert took_s <= 1.2 * shop.ideal_s + 1.0, shop.told()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tasks_that_share_replicas_and_take_turns_to_be_slow_send_nothing_in_circles(seed):
    lasts = []
    for part in range(6):
        slow = "tu"[part % 2]
        lasts += [
            (task, 0.02 if task == slow else 0.0001) for task, _ in uneven(0, 0, 0, 200, "tu", seed + part)
        ]
    shop = Shop(PAIR, lasts, nodes=2, replicas=2)
    took_s = shop.play()
    assert (len(shop.queue.ended), shop.dead) == (1_200, 0), shop.told()
    assert max(shop.queue.releases.values()) <= OFTEN, shop.told()
    assert took_s <= 1.3 * shop.ideal_s + 0.5, shop.told()


@pytest.mark.parametrize("count", [1, 2])
def test_suspects_and_calls_behind_a_breaker_take_part(count):
    spec = TaskSpec(name="t", breaker=BreakerPolicy(failures=3, rate=None, slow_s=0.2, open_s=0.5))
    breakers = {"t": CircuitBreaker(spec.breaker)}
    shop = Shop(
        [spec, TaskSpec(name="u")], uneven(0.05, 0.0001, 0.3, 400, "tu"), nodes=count, breakers=breakers
    )
    shop.queue.suspects.update(range(0, 400, 40))
    shop.play()
    assert (len(shop.queue.ended), shop.dead) == (400, 0), shop.told()
    assert max(shop.queue.releases.values()) <= OFTEN, shop.told()


def test_what_was_quick_and_is_slow_from_now_on_is_shared_out():
    shop = Shop([ONE], [("t", 0.0001)] * 400 + [("t", 0.01)] * 400, nodes=4)
    took_s = shop.play()
    assert took_s <= 1.3 * shop.ideal_s + 0.3, shop.told()
    assert max(shop.queue.releases.values()) <= 4, shop.told()


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_requests_beside_uneven_jobs_are_answered_and_the_jobs_stay(share):
    shop = Shop([ONE], uneven(share, 0.0001, 0.3, 600), nodes=2, replicas=2)
    for number in range(1_000):
        node, took_s = shop.nodes[number % 2], 0.001 if number % 20 else 0.3
        shop.after(0.01 * number, node.ask, "t", took_s, 1.0)
    shop.play()
    assert (len(shop.queue.ended), shop.dead) == (600, 0), shop.told()
    assert max(shop.queue.releases.values()) <= OFTEN, shop.told()
    shop.engine.run(until=shop.began_at + 60.0)
    assert shop.answers.total() == 1_000
    assert shop.answers["done"] >= 900, shop.answers


def test_children_that_die_meanwhile_cost_no_job_its_end():
    shop = Shop(PAIR, uneven(0.05, 0.0001, 0.3, 600, "tu"), nodes=2, replicas=2)

    def kill(number):
        children = list(shop.nodes[number % 2].children.values())
        children[number % len(children)].die()

    for number in range(40):
        shop.after(0.07 * number, kill, number)
    shop.play()
    assert len(shop.queue.ended) == 600, shop.told()
    assert max(shop.queue.releases.values()) <= OFTEN, shop.told()
    assert not shop.queue.out
