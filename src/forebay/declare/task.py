"""Task: one declared task, and its limits read from the arguments it was declared with."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay.core.codel import Discipline
from forebay.core.settle import SettlePolicy
from forebay.core.task import TaskSpec
from forebay.declare.options import Exceptions, Reader, refuse
from forebay.declare.signature import Signature
from forebay.declare.variants import Way

BATCH_WAIT = "5ms"  # default wait for a batch to fill, when batches are larger than 1
CONCURRENCY_FUNCTION = 32  # async functions running at once in one child
DOC_LENGTH_MAX = 4_000
RETENTION_LEAST_S = 1.0
REPLICAS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One declared task: its limits, and what only the process that runs it needs."""

    spec: TaskSpec
    target: Callable[..., Any]  # the class or the function
    signature: Signature
    variants: tuple[Way, ...] = ()  # one for each rung of the ladder
    split: bool = True  # halve a failed batch to find the bad item
    retry_on: Exceptions | None = None  # only these are tried again; None: all
    permanent_on: Exceptions = ()
    breaker_ignore: Exceptions = ()  # these say nothing to the task's breaker

    @property
    def is_class(self) -> bool:
        """Whether it is a class with predict, not a plain function."""
        return self.spec.kind == "class"


def read_spec(
    read: Reader, name: str, target: Callable[..., Any], given: dict[str, Any], signature: Signature
) -> TaskSpec:
    """Return the limits of a task. Raises AppError naming argument, rule and value."""
    is_class = inspect.isclass(target)
    batch_max = read.count("batch_max", given["batch_max"], most=65_536)
    wait = given["batch_wait"]
    if wait is None:
        wait = BATCH_WAIT if batch_max > 1 else 0
    concurrency = given["concurrency"]
    if concurrency is not None and concurrency != 1 and not signature.is_async:
        raise refuse(read.where, "concurrency", "1 unless the handler is async", concurrency)
    if concurrency is None:
        concurrency = CONCURRENCY_FUNCTION if signature.is_async and not is_class else 1
    memory, spared = given["recycle_memory"], given["quarantine_deaths"]
    return TaskSpec(
        name=name,
        kind="class" if is_class else "function",
        doc=_doc(target),
        version=read.version(given["version"]),
        priority=read.priority(given["priority"]),
        order=read.order(given["order"]),
        reserve=read.share("reserve", given["reserve"]),
        batch_max=batch_max,
        batch_wait_s=read.seconds("batch_wait", wait, positive=False),
        timeout_s=read.seconds("timeout", given["timeout"]),
        load_timeout_s=read.seconds("load_timeout", given["load_timeout"]),
        attempts_max=read.count("attempts_max", given["attempts_max"], most=1000),
        ttl_s=read.seconds("ttl", given["ttl"]),
        deadline_s=None if given["deadline"] is None else read.seconds("deadline", given["deadline"]),
        **_discipline(read, given),
        queue_max=read.count_or_none("queue_max", given["queue_max"], most=100_000_000),
        queue_bytes_max=read.size_or_none("queue_bytes_max", given["queue_bytes_max"]),
        concurrency=read.count("concurrency", concurrency, most=10_000),
        **_replicas(read, given),
        devices=read.devices(given["devices"]),
        recycle_after=read.count_or_none("recycle_after", given["recycle_after"]),
        recycle_memory_b=None if memory is None else read.size("recycle_memory", memory),
        coalesce=_coalesces(read, given["coalesce"], given["cache"]),
        cache_s=0.0 if given["cache"] is None else read.seconds("cache", given["cache"]),
        retention_s=_kept_s(read, "retention", given),
        retention_failed_s=_kept_s(read, "retention_failed", given),
        on_version=read.choice("on_version", given["on_version"], ("run", "wait", "fail")),
        settle=SettlePolicy(
            retry=read.backoff(given["backoff"]),
            deaths_max=read.count("deaths_max", given["deaths_max"], most=1000),
            quarantine_deaths=None if spared is None else read.count("quarantine_deaths", spared, least=0),
        ),
    )


def _kept_s(read: Reader, argument: str, given: dict[str, Any]) -> float | None:
    kept_s = None if given[argument] is None else read.seconds(argument, given[argument])
    if kept_s is not None and kept_s < RETENTION_LEAST_S:
        raise refuse(read.where, argument, "at least 1 second", given[argument])
    return kept_s


def _replicas(read: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Return how many replicas there are, and the least of a range such as "1..4"."""
    least, most = read.range_or_none("replicas", given["replicas"], most=REPLICAS_MAX)
    if least is not None and given["reserve"]:
        raise refuse(read.where, "reserve", "left out where replicas is a range", given["reserve"])
    return {"replicas": most, "replicas_least": least}


def _discipline(read: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Return what the discipline of waiting requests is, and its bounds where it has any."""
    discipline = read.discipline(given["discipline"])
    told = {key: given[key] for key in ("wait_target", "wait_interval") if given[key] is not None}
    if told and discipline is Discipline.DEADLINE:
        argument = next(iter(told))
        raise refuse(read.where, argument, "used with discipline newest or codel only", told[argument])
    waits_s: dict[str, Any] = {f"{key}_s": read.seconds(key, value) for key, value in told.items()}
    if waits_s.get("wait_target_s", 0.0) > waits_s.get("wait_interval_s", float("inf")):
        raise refuse(read.where, "wait_target", "at most wait_interval", told["wait_target"])
    return {"discipline": discipline} | waits_s


def _coalesces(read: Reader, coalesce: object, cache: object) -> bool:
    if coalesce is None:
        return cache is not None
    if cache is not None and coalesce is False:
        raise refuse(read.where, "coalesce", "True where cache is given", coalesce)
    return read.flag("coalesce", coalesce)


def _doc(target: object) -> str:
    doc = inspect.cleandoc(getattr(target, "__doc__", None) or "")
    return doc[:DOC_LENGTH_MAX]
