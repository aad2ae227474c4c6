"""Replicas for a load: enough not to fall behind, and enough that hardly anybody waits too long."""

import math

from forebay.core.sizing.erlang import SERVERS_MAX, Wait, late_of, servers_for, wait, waiting
from forebay.core.sizing.law import ServiceLaw

QUANTILE = 0.99


def replicas_for_load(law: ServiceLaw, rate_per_s: float) -> int:
    """Return the fewest replicas that do not fall behind: ⌈λ / μ⌉, at least 1.

    10,000/s at 4,000/s each are 3; 5,001/s are 2.
    """
    return max(1, math.ceil(rate_per_s / law.rate_per_s - 1e-9))


def wait_of(
    law: ServiceLaw,
    rate_per_s: float,
    replicas: int,
    *,
    quantile: float = QUANTILE,
    spread: float = 1.0,
    batch_wait_s: float = 0.0,
) -> Wait:
    """Return how long items wait for their run at a Poisson rate, at most `batch_wait_s` of it for company.

    `spread` is the squared coefficient of variation of one run: 1 exponential (Erlang C as it stands, the
    cautious choice), 0 always the same. Batches see two waits: for the next replica that gets free, and, when
    runs are full, for the runs ahead. Full batches are taken for the customers of Erlang C, arriving
    `batch_max` times as regularly (cₐ² = 1/B). The quantile is the sum of both, so rather late than early.
    """
    if law.batch_max == 1:
        servers, erlangs = replicas * law.at_once, rate_per_s * law.full_s
        return wait(servers, erlangs, law.full_s, quantile=quantile, spread=(1.0 + spread) / 2)
    return _batched(law, rate_per_s, replicas, quantile, spread, batch_wait_s)


def replicas_for_wait(
    law: ServiceLaw,
    rate_per_s: float,
    wait_max_s: float,
    *,
    quantile: float = QUANTILE,
    spread: float = 1.0,
    batch_wait_s: float = 0.0,
) -> int | None:
    """Return the fewest replicas with which that quantile of items waits `wait_max_s` at most.

    None when no number does, as when the wait for company alone is longer.
    """
    if law.batch_max == 1:
        servers = servers_for(
            rate_per_s * law.full_s,
            law.full_s,
            wait_max_s,
            quantile=quantile,
            spread=(1.0 + spread) / 2,
        )
        return None if servers is None else max(1, math.ceil(servers / law.at_once))

    def good(count: int) -> bool:
        found = wait_of(law, rate_per_s, count, quantile=quantile, spread=spread, batch_wait_s=batch_wait_s)
        return found.late_s <= wait_max_s

    low = replicas_for_load(law, rate_per_s)
    high = low
    while not good(high):  # doubled, then halved: thousands of replicas take a few tries
        if high >= SERVERS_MAX:
            return None
        low, high = high + 1, min(SERVERS_MAX, high * 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle + 1, high)
    return high


def workers_by_rule(cpus: float, *, blocking: bool) -> int:
    """Return the worker count of a common rule of thumb: 2 × CPUs + 1 for handlers that block, CPUs for
    asynchronous ones. It knows nothing of the load: what was measured goes before it."""
    whole = max(1, math.floor(cpus))
    return 2 * whole + 1 if blocking else whole


def _batched(
    law: ServiceLaw, rate_per_s: float, replicas: int, quantile: float, spread: float, batch_wait_s: float
) -> Wait:
    servers = replicas * law.at_once
    full = rate_per_s * law.full_s / law.batch_max  # erlangs, in full runs
    if full >= servers:
        return Wait(full / servers, 1.0, math.inf, math.inf)
    usual = law.usual_batch(rate_per_s / replicas)
    run_s = law.run_s(usual)
    busy = waiting(servers, rate_per_s * run_s / usual)
    # The next of so many runs in progress ends: the least of that many uniform times.
    free_late_s = run_s * (1.0 - _rest((1.0 - quantile) / busy, servers)) if busy > 1.0 - quantile else 0.0
    free_mean_s = busy * run_s / (servers + 1)
    behind = waiting(servers, full)
    each_s = (1.0 / law.batch_max + spread) / 2 * law.full_s / (servers - full)
    mean_s = batch_wait_s + free_mean_s + behind * each_s
    late_s = batch_wait_s + free_late_s + late_of(behind, each_s, quantile)
    return Wait(full / servers, busy, mean_s, late_s)


def _rest(share: float, servers: int) -> float:
    """Return 1 less the point that the least of `servers` uniform numbers exceeds with chance `share`."""
    return math.exp(math.log(share) / servers)
