"""say_order: tell an engine the order, the reserve and the retention of each task; it keeps none of them."""

from collections.abc import Callable

from forebay.core.reserve import others_max
from forebay.core.retention import Retention
from forebay.core.task import TaskSpec
from forebay.core.turns import Order
from forebay.node.node import NodePlan
from forebay.ports.broker import Broker


async def say_order(
    broker: Broker, plan: NodePlan, *, of_all: Retention, warn: Callable[..., object]
) -> NodePlan:
    """Return the plan. A task that asks for a reserve and has too few replicas for one is warned of."""
    broker.set_retention({spec.name: kept for spec in plan.tasks if (kept := _own(spec, of_all)) != of_all})
    for spec in plan.tasks:
        if spec.order is not Order.ARRIVAL:
            await broker.set_order(spec.name, spec.order)
        if spec.reserve:
            replicas = spec.replicas if spec.kind == "class" and spec.replicas else plan.workers
            most = others_max(spec.reserve, replicas, max(spec.batch_max, spec.concurrency))
            broker.set_reserve(spec.name, most)
            if most is None:
                warn("nothing_reserved", task=spec.name, hint="a reserve needs at least 2 replicas")
    return plan


def _own(spec: TaskSpec, of_all: Retention) -> Retention:
    """Return the retention of a task: what it names in place of that of all."""
    return Retention(
        of_all.ended_s if spec.retention_s is None else spec.retention_s,
        of_all.dead_s if spec.retention_failed_s is None else spec.retention_failed_s,
    )
