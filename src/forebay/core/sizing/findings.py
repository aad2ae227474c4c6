"""findings(): limits that contradict each other or what was measured: evidence, and the exact change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from forebay.core.sizing import words
from forebay.core.sizing.little import wait_at

T = TypeVar("T")

NEAR = 0.8  # of the timeout: runs that come so near will pass it one day
ROOM = 1.5  # times what was measured: what a limit above it should leave
BEATS = 3.0  # renewals that fit into a lease: two may be lost


class Finding(NamedTuple):
    """One contradiction. `code` is stable and for programs."""

    code: str
    evidence: str
    change: str
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is set for one task, and what was measured of it. None: not known; its rules are silent."""

    task: str = ""
    lease_s: float | None = None
    heartbeat_s: float | None = None  # time between renewals of a lease; None: it is not renewed
    timeout_s: float | None = None
    timeout_chosen: bool = False  # somebody set it for this load, so it says how long runs may take
    runs: int = 0  # measured
    run_late_s: float | None = None  # p99.9 of them; the slowest when there are fewer than 1,000
    ttl_s: float | None = None
    ttl_judged: bool = False  # the door refuses what would outlive it, so the queue may be longer
    grace_s: float | None = None
    attempts_max: int | None = None
    retry_waits_s: tuple[float, ...] = ()  # after each failed attempt, at the longest
    batch_wait_s: float = 0.0
    deadline_s: float | None = None
    queue_max: int | None = None
    queue_bytes_max: int | None = None
    item_b: int | None = None
    memory_b: int | None = None  # that the queue may use
    disk_free_b: int | None = None
    capacity_per_s: float | None = None  # of all replicas
    replica_per_s: float | None = None
    wait_max_s: float | None = None
    hpa_target: float | None = None  # waiting items for each replica
    replicas_min: int = 1
    budget_per_s: float | None = None  # of all producers together


def findings(limits: Limits) -> list[Finding]:
    """Return every contradiction, in the order of the rules; empty when there is none."""
    return told_by(RULES, limits, limits.task)


def told_by(rules: Iterable[Callable[[T], Finding | None]], has: T, task: str) -> list[Finding]:
    """Return what each rule finds, in their order, under the name of the task."""
    told = (rule(has) for rule in rules)
    return [found._replace(task=task) for found in told if found is not None]


def _lease_timeout(has: Limits) -> Finding | None:
    if has.lease_s is None or has.timeout_s is None or has.heartbeat_s is not None:
        return None
    if has.lease_s > has.timeout_s:
        return None
    evidence = (
        f"a lease of {words.span(has.lease_s)} that nobody renews ends before a timeout of "
        f"{words.span(has.timeout_s)}: a second worker starts what the first still runs"
    )
    return Finding("lease_under_timeout", evidence, f'lease = "{words.setting_s(has.timeout_s * 1.1)}"')


def _lease_runs(has: Limits) -> Finding | None:
    if has.lease_s is None or has.run_late_s is None or has.heartbeat_s is not None:
        return None
    if has.lease_s > has.run_late_s:
        return None
    evidence = f"a lease of {words.span(has.lease_s)} that nobody renews; {_slowest(has)}"
    return Finding("lease_under_runs", evidence, f'lease = "{words.setting_s(has.run_late_s * ROOM)}"')


def _lease_heartbeat(has: Limits) -> Finding | None:
    if has.lease_s is None or has.heartbeat_s is None or has.heartbeat_s * BEATS <= has.lease_s:
        return None
    evidence = (
        f"a renewal each {words.span(has.heartbeat_s)} and a lease of {words.span(has.lease_s)}: "
        "one late renewal loses the job"
    )
    return Finding("heartbeat_over_lease", evidence, f'lease = "{words.setting_s(has.heartbeat_s * BEATS)}"')


def _timeout_runs(has: Limits) -> Finding | None:
    if has.timeout_s is None or has.run_late_s is None or has.run_late_s <= NEAR * has.timeout_s:
        return None
    evidence = f"a timeout of {words.span(has.timeout_s)}; {_slowest(has)}"
    return Finding("timeout_near_runs", evidence, f'timeout="{words.setting_s(has.run_late_s * ROOM)}"')


def _ttl_timeout(has: Limits) -> Finding | None:
    if has.ttl_s is None or has.timeout_s is None or (has.attempts_max or 1) < 2:
        return None
    first_s = has.retry_waits_s[0] if has.retry_waits_s else 0.0
    if has.ttl_s > has.timeout_s + first_s:
        return None
    evidence = (
        f"a ttl of {words.span(has.ttl_s)} is over when a run has used its timeout of "
        f"{words.span(has.timeout_s)}: the second of {has.attempts_max} attempts never starts"
    )
    whole_s = (has.attempts_max or 1) * has.timeout_s + sum(has.retry_waits_s)
    return Finding("ttl_under_timeout", evidence, f'ttl="{words.setting_s(whole_s)}", or attempts_max=1')


def _ttl_waits(has: Limits) -> Finding | None:
    if has.ttl_s is None or sum(has.retry_waits_s) < has.ttl_s:
        return None
    total_s, attempts = 0.0, 1
    for wait_s in has.retry_waits_s:
        total_s += wait_s
        if total_s >= has.ttl_s:
            break
        attempts += 1
    whole_s = sum(has.retry_waits_s)
    evidence = (
        f"the pauses between {len(has.retry_waits_s) + 1} attempts are {words.span(whole_s)} together, "
        f"the ttl is {words.span(has.ttl_s)}: attempts after number {attempts} never start"
    )
    return Finding(
        "ttl_under_waits", evidence, f'attempts_max={attempts}, or ttl="{words.setting_s(whole_s * 1.1)}"'
    )


def _attempts_waits(has: Limits) -> Finding | None:
    waits, attempts = len(has.retry_waits_s), has.attempts_max
    if attempts is None or waits == 0 or waits == attempts - 1:
        return None
    if waits < attempts - 1:
        evidence = f"{attempts} attempts have {attempts - 1} pauses between them, and {waits} are given"
    else:
        unused = waits - attempts + 1
        evidence = f"{waits} pauses are given for {attempts} attempts: the last {unused} can never happen"
    return Finding("attempts_and_waits", evidence, f"attempts_max={waits + 1}, or {attempts - 1} pauses")


def _grace_runs(has: Limits) -> Finding | None:
    if has.grace_s is None:
        return None
    if has.run_late_s is not None:
        longest_s, why = has.run_late_s, _slowest(has)
    elif has.timeout_s is not None and has.timeout_chosen:
        longest_s, why = has.timeout_s, f"a run may take {words.span(has.timeout_s)}"
    else:
        return None
    if has.grace_s >= longest_s:
        return None
    evidence = f"a grace of {words.span(has.grace_s)} at a stop; {why}: what is cut runs again from its start"
    return Finding("grace_under_runs", evidence, f'grace = "{words.setting_s(longest_s)}", or checkpoints')


def _batch_deadline(has: Limits) -> Finding | None:
    if has.deadline_s is None or has.batch_wait_s < has.deadline_s or has.batch_wait_s == 0:
        return None
    evidence = (
        f"an item waits up to {words.span(has.batch_wait_s)} for company and must be done within "
        f"{words.span(has.deadline_s)}"
    )
    return Finding(
        "batch_wait_over_deadline", evidence, f'batch_wait="{words.setting_s(has.deadline_s / 10)}"'
    )


def _queue_ttl(has: Limits) -> Finding | None:
    return None if has.ttl_judged else _too_long(has, "queue_over_ttl", has.ttl_s, "the ttl is")


def _queue_wait(has: Limits) -> Finding | None:
    return _too_long(has, "queue_over_wait", has.wait_max_s, "the longest wait may be")


def _too_long(has: Limits, code: str, limit_s: float | None, what: str) -> Finding | None:
    if has.queue_max is None or not has.capacity_per_s or limit_s is None:
        return None
    wait_s = wait_at(has.queue_max, has.capacity_per_s)
    if wait_s <= limit_s * 1.05:
        return None
    evidence = (
        f"the last of a full queue of {has.queue_max:,} is served after {words.span(wait_s)} at "
        f"{words.rate(has.capacity_per_s)}; {what} {words.span(limit_s)}"
    )
    return Finding(code, evidence, f"queue_max={max(1, int(limit_s * has.capacity_per_s))}")


def _hpa_wait(has: Limits) -> Finding | None:
    if has.hpa_target is None or not has.replica_per_s or has.wait_max_s is None:
        return None
    wait_s = wait_at(has.hpa_target, has.replica_per_s)
    if wait_s < has.wait_max_s:
        return None
    evidence = (
        f"an autoscaler that keeps {words.count(has.hpa_target)} waiting for each replica of "
        f"{words.rate(has.replica_per_s)} keeps a wait of {words.span(wait_s)}; the whole of it may be "
        f"{words.span(has.wait_max_s)}"
    )
    target = max(1, int(0.8 * has.replica_per_s * has.wait_max_s + 1e-9))
    return Finding("hpa_over_wait", evidence, f"averageValue: {target}")


def _hpa_queue(has: Limits) -> Finding | None:
    if has.hpa_target is None or has.queue_max is None:
        return None
    if has.hpa_target * has.replicas_min < has.queue_max:
        return None
    evidence = (
        f"the queue refuses at {has.queue_max:,}, and the autoscaler acts above "
        f"{words.count(has.hpa_target)} for each of {has.replicas_min}: it never does"
    )
    return Finding(
        "hpa_over_queue", evidence, f"averageValue: {max(1, has.queue_max // (2 * has.replicas_min))}"
    )


def _budget_capacity(has: Limits) -> Finding | None:
    if has.budget_per_s is None or not has.capacity_per_s or has.budget_per_s <= has.capacity_per_s:
        return None
    more = has.budget_per_s - has.capacity_per_s
    evidence = (
        f"producers may send {words.rate(has.budget_per_s)}, the replicas do "
        f"{words.rate(has.capacity_per_s)}: the queue grows by {words.rate(more)}"
    )
    return Finding("budget_over_capacity", evidence, f"a budget of {words.rate(has.capacity_per_s * 0.9)}")


def _queue_memory(has: Limits) -> Finding | None:
    if has.memory_b is None:
        return None
    items_b = None if has.queue_max is None or not has.item_b else has.queue_max * has.item_b
    known = [size for size in (items_b, has.queue_bytes_max) if size is not None]
    if not known or min(known) <= has.memory_b:
        return None
    evidence = (
        f"the queue may hold {words.size(min(known))}, and {words.size(has.memory_b)} of memory is there"
    )
    change = f'queue_bytes_max="{has.memory_b}"'
    if has.item_b:
        change += f" or queue_max={max(1, has.memory_b // has.item_b)}"
    return Finding("queue_over_memory", evidence, change)


def _queue_disk(has: Limits) -> Finding | None:
    if has.disk_free_b is None or has.queue_bytes_max is None or has.queue_bytes_max <= has.disk_free_b:
        return None
    evidence = (
        f"the queue may hold {words.size(has.queue_bytes_max)}, and {words.size(has.disk_free_b)} of the "
        "disk is free: the disk is full first, and then every write fails"
    )
    return Finding("queue_over_disk", evidence, f'queue_bytes_max="{int(has.disk_free_b * NEAR)}"')


def _slowest(has: Limits) -> str:
    took = words.span(has.run_late_s or 0.0)
    if has.runs >= 1000:
        return f"one run in a thousand takes {took} or more ({has.runs:,} measured)"
    return (
        f"the slowest of {has.runs} runs took {took}" if has.runs else f"one run in a thousand takes {took}"
    )


RULES: tuple[Callable[[Limits], Finding | None], ...] = (
    _lease_timeout, _lease_runs, _lease_heartbeat, _timeout_runs, _ttl_timeout, _ttl_waits, _attempts_waits,
    _grace_runs, _batch_deadline, _queue_ttl, _queue_wait, _hpa_wait, _hpa_queue, _budget_capacity,
    _queue_memory, _queue_disk,
)  # fmt: skip
