"""What a node's plan says of order and reserve reaches the engine."""

import asyncio

from forebay.brokers.memory import MemoryBroker
from forebay.core.job import Job
from forebay.core.retention import Retention
from forebay.core.task import TaskSpec
from forebay.core.turns import Order
from forebay.node.node import NodePlan
from forebay.node.order import say_order

T0 = 1_800_000_000.0


def plan(*tasks, workers):
    return NodePlan(
        app="x", tasks=tasks, workers=workers, gpus=0, threads=1, lease_s=30.0, result_bytes_max=1, env={}
    )


def warned(broker, asked):
    """Say it all to the broker; return the tasks that were warned of."""
    told = []
    asyncio.run(
        say_order(
            broker, asked, of_all=Retention(9.0, 90.0), warn=lambda event, *, task, hint: told.append(task)
        )
    )
    return told


def test_the_engine_hears_of_the_order_and_the_reserve_of_each_task():
    broker = MemoryBroker()
    model = TaskSpec(name="model", kind="class", replicas=4, batch_max=2, reserve=0.25, order=Order.DEADLINE)
    assert warned(broker, plan(model, TaskSpec(name="echo"), workers=1)) == []
    jobs = [Job(broker.new_id(T0), "model", b"{}", T0, T0, deadline_at=T0 + 100 - n) for n in range(10)]

    async def run():
        await broker.enqueue(jobs, now=T0)
        leases = await broker.lease("model", limit=9, lease_s=9.0, worker="w", now=T0)
        assert [lease.job.id for lease in leases] == [job.id for job in reversed(jobs)][:6]

    asyncio.run(run())


def test_one_replica_keeps_nothing_free_and_that_is_said():
    lone, single = (
        TaskSpec(name="lone", reserve=0.5),
        TaskSpec(name="one", kind="class", replicas=1, reserve=0.5),
    )
    assert warned(MemoryBroker(), plan(lone, single, workers=1)) == ["lone", "one"]
    assert warned(MemoryBroker(), plan(lone, workers=2)) == []
