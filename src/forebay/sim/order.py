"""check_served: whether a lease granted what it had to, by the records that held before it."""

from collections.abc import Iterable, Sequence

from forebay.core.job import JobRecord, Lease
from forebay.core.lifecycle import FINAL, State
from forebay.sim.invariants import BrokenError


def check_served(
    records: Sequence[JobRecord], leases: Iterable[Lease], *, limit: int, now: float, ageing_s: float
) -> None:
    """Raise BrokenError unless as many were granted as could be, each the most urgent of its tenant and
    priority (with one tenant: of all), and of each ordering key none but its head.
    """
    heads = _chain_heads(records)
    waiting = sorted(
        (standing.ready_at + job.priority * ageing_s, job.id, (job.tenant, job.priority))
        for job, standing, *_ in records
        if standing.state is State.QUEUED
        and (job.waits_until is None or job.waits_until > now)
        and (job.ordering_key is None or heads[job.tenant, job.ordering_key] == job.id)
    )
    granted = [lease.job for lease in leases]
    for job in granted:
        key = job.ordering_key
        head = job.id if key is None else heads.get((job.tenant, key), job.id)
        if head != job.id:
            raise BrokenError("K1", f"{job.id} was granted while {head} of its key {key!r} is open")
    if len(granted) != min(limit, len(waiting)):
        raise BrokenError(
            "P1", f"{[job.id for job in granted]} granted, {len(waiting)} could be, up to {limit}"
        )
    for job in granted:
        shared = len({tenant for _, _, (tenant, _) in waiting}) > 1
        mine = (job.tenant, job.priority)
        expected = next((waits for _, waits, kin in waiting if kin == mine or not shared), None)
        if expected != job.id:
            raise BrokenError("P1", f"{job.id} was granted, {expected} was more urgent")
        waiting = [one for one in waiting if one[1] != job.id]


def _chain_heads(records: Sequence[JobRecord]) -> dict[tuple[str, str], str]:
    """Return who may go of each ordering key: the one that runs, else the earliest that is open."""
    heads: dict[tuple[str, str], str] = {}
    running: dict[tuple[str, str], str] = {}
    for job, standing, *_ in records:
        if job.ordering_key is None or standing.state in FINAL:
            continue
        key = (job.tenant, job.ordering_key)
        heads[key] = min(heads.get(key, job.id), job.id)
        if standing.state is State.RUNNING:
            running[key] = job.id
    return {**heads, **running}
