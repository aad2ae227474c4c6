"""`forebay size --url`: the same answers from what a running server measured and how it is set."""

from typing import Any

from forebay.cli.arrivals import Arrived, read_arrivals
from forebay.cli.asked import Asked
from forebay.cli.options import connect
from forebay.cli.show import Stop, clean
from forebay.cli.sizing import ITEM_B, law_of, platform_of
from forebay.cli.sizing_text import Answer, answer_of
from forebay.client.plans import whole
from forebay.core.admission import HURRIED_S
from forebay.core.retry import RetryPolicy
from forebay.core.sizing.crew import QUANTILE
from forebay.core.sizing.findings import Finding, Limits, findings
from forebay.core.sizing.law import ServiceLaw
from forebay.core.sizing.measured import retry_waits_s
from forebay.core.sizing.plan import Load, sized
from forebay.core.sizing.platform import platform_findings

View = dict[str, Any]


# What may stand beside the limits of a server, or before what was measured there.
FLAGS = (
    *("url", "api_key", "task", "peak", "arrivals", "service", "per_replica", "batch_max", "wait_max"),
    *("quantile", "item_size", "replicas", "memory", "hpa_target", "budget"),
    *("health_check", "unhealthy_after", "drain", "cooldown", "start", "replicas_max"),
)


def live_answers(asked: Asked) -> list[Answer]:
    """Return one answer for each task of the server, and one more when its producers' budgets are too large.
    Flags go before what was measured."""
    asked.only(FLAGS, "--url: the server says it")
    source = asked.text("arrivals")
    arrived = None if source is None else read_arrivals(source)
    with connect(asked.text("url"), asked.text("api_key")) as client:
        tasks = {str(view["task"]): view for view in client.tasks()}
        queues = {str(view["task"]): view for view in client.queues()}
        budgets = client.run(whole("/v1/budgets", client.terms))
    wanted = asked.text("task")
    if wanted is not None and wanted not in tasks:
        raise Stop(f"there is no task {clean(wanted, 100)}; there are {clean(', '.join(tasks), 300)}", 1)
    names = list(tasks) if wanted is None else [wanted]
    try:
        found = [_answer(asked, arrived, tasks[name], queues[name]) for name in names]
        return [*found, *_producers(budgets, list(queues.values()))]
    except KeyError as error:
        raise Stop(f"the server does not tell {error}: it is of another version") from None


def _producers(budgets: list[View], queues: list[View]) -> list[Answer]:
    """Compare what all budgets let in with what all tasks can do; nothing is said where a task never ran."""
    capacities = [queue["rates"]["capacity_per_s"] for queue in queues]
    if not budgets or None in capacities:
        return []
    limits = Limits(budget_per_s=sum(one["rate_per_s"] for one in budgets), capacity_per_s=sum(capacities))
    found = findings(limits)
    return [answer_of(None, None, found)] if found else []


def _answer(asked: Asked, arrived: Arrived | None, task: View, queue: View) -> Answer:
    rates = queue["rates"]
    peak = arrived.peaks.p99_per_s if arrived else asked.rate("peak") or rates["arrivals_p99_per_s"]
    law = law_of(asked) or _law(task)
    spread = float(task["service"]["variance"]) if task["service"] else 1.0
    load = Load(
        peak_per_s=peak,
        mean_per_s=arrived.mean_per_s if arrived else None,
        law=law,
        spread=spread,
        wait_max_s=asked.seconds("wait_max"),
        quantile=asked.number("quantile", 0, 1) or QUANTILE,
        batch_wait_s=task["batch_wait_s"],
        item_b=asked.bytes("item_size") or _item_b(queue),
        replicas=asked.count("replicas", 1_000_000) or task["replicas"] or None,
    )
    # Without arrivals there is nothing to size; what is set can contradict itself all the same.
    known = load if peak > 0 else None
    does = None if known is None else sized(known)
    limits = _limits(asked, task, queue, law)
    around = platform_findings(platform_of(asked, known, does, limits), task=limits.task)
    return answer_of(known, does, [*findings(limits), *around], arrived, task=limits.task)


def contradictions(asked: Asked, task: View, queue: View) -> list[Finding]:
    """Return where the limits of one task contradict each other, what was measured, or a flag. Raises
    KeyError when the server does not tell one of them."""
    return findings(_limits(asked, task, queue, law_of(asked) or _law(task)))


def _law(task: View) -> ServiceLaw | None:
    """Return the measured law of one replica, None before the first run."""
    service = task["service"]
    if not service or service["fixed_s"] + service["each_s"] <= 0:
        return None
    return ServiceLaw(
        fixed_s=service["fixed_s"],
        each_s=service["each_s"],
        batch_max=task["batch_max"],
        at_once=task["concurrency"],
    )


def _item_b(queue: View) -> int:
    """Return the mean bytes of what the queue holds now, ITEM_B when it is empty or not told here."""
    return max(1, round(queue["bytes"] / queue["open"])) if queue.get("open") else ITEM_B


def _limits(asked: Asked, task: View, queue: View, law: ServiceLaw | None) -> Limits:
    service = task["service"]
    policy = RetryPolicy(**task["backoff"])
    return Limits(
        task=str(task["task"]),
        lease_s=task["lease_s"],
        heartbeat_s=task["heartbeat_s"],
        timeout_s=task["timeout_s"],
        runs=service["runs"] if service else 0,
        run_late_s=service["p999_s"] if service else None,
        ttl_s=task["ttl_s"],
        ttl_judged=task["ttl_s"] < HURRIED_S,
        grace_s=task["grace_s"],
        attempts_max=task["attempts_max"],
        retry_waits_s=retry_waits_s(policy, task["attempts_max"]),
        batch_wait_s=task["batch_wait_s"],
        deadline_s=task["deadline_s"],
        queue_max=task["queue_max"],
        queue_bytes_max=task["queue_bytes_max"],
        item_b=_item_b(queue) if queue.get("open") else None,
        memory_b=asked.bytes("memory"),
        capacity_per_s=queue["rates"]["capacity_per_s"],
        replica_per_s=None if law is None else law.rate_per_s,
        wait_max_s=asked.seconds("wait_max"),
        hpa_target=asked.count("hpa_target"),
        replicas_min=max(1, task["replicas"]),
        budget_per_s=asked.rate("budget"),
    )
