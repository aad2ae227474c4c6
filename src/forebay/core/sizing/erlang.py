"""Erlang's formulas: the chance to wait, and how long, for `servers` alike with independent arrivals.

A. K. Erlang, 1917. Exact for Poisson arrivals and exponential service (M/M/c). Steadier service waits less:
Allen and Cunneen's factor (cₐ² + cₛ²) / 2 (Allen 1990) makes the mean wait that of other spreads; it is exact
for M/M/c and M/G/1 and an approximation elsewhere.
"""

import math
from typing import NamedTuple

SERVERS_MAX = 1_000_000


class Wait(NamedTuple):
    """How long items wait. Seconds; infinity where the line grows for ever."""

    utilisation: float  # share of the time that a server is busy; 1 and more: the line grows
    waiting_share: float  # of the items: those that wait at all
    mean_s: float  # over all items
    late_s: float  # the asked quantile over all items


def blocked(servers: int, erlangs: float) -> float:
    """Return Erlang B: the share of time in which all `servers` are busy when nobody waits.

    By the recurrence B(0) = 1, B(n) = a B(n-1) / (n + a B(n-1)): no factorials, nothing overflows.
    """
    found = 1.0
    for n in range(1, servers + 1):
        found = erlangs * found / (n + erlangs * found)
    return found


def waiting(servers: int, erlangs: float) -> float:
    """Return Erlang C: the share of items that wait; 1 when the load is all that the servers can do.

    C = B / (1 − ρ (1 − B)) with ρ = a / c.
    """
    return _waiting(servers, erlangs, blocked(servers, erlangs)) if erlangs < servers else 1.0


def wait(
    servers: int, erlangs: float, service_s: float, *, quantile: float = 0.99, spread: float = 1.0
) -> Wait:
    """Return the wait of items with a mean service of `service_s`.

    Those that wait do so for an exponential time with mean service / (c − a), times `spread`: the factor of
    Allen and Cunneen, 1 for exponential service, 0.5 for one that always takes the same.
    """
    if erlangs >= servers:
        return Wait(erlangs / servers, 1.0, math.inf, math.inf)
    return _wait(servers, erlangs, service_s, blocked(servers, erlangs), quantile, spread)


def servers_for(
    erlangs: float, service_s: float, wait_max_s: float, *, quantile: float = 0.99, spread: float = 1.0
) -> int | None:
    """Return the least number of servers with which that quantile of items waits `wait_max_s` at most; None
    when even SERVERS_MAX are too few."""
    b = 1.0
    for n in range(1, SERVERS_MAX + 1):
        b = erlangs * b / (n + erlangs * b)
        if erlangs < n and _wait(n, erlangs, service_s, b, quantile, spread).late_s <= wait_max_s:
            return n
    return None


def late_of(share: float, mean_s: float, quantile: float) -> float:
    """Return the quantile over all of a wait that `share` have, exponential with mean `mean_s`, and the rest
    have not: ln(share / (1 − q)) × mean, 0 when fewer than 1 − q wait."""
    return mean_s * max(0.0, math.log(share / (1.0 - quantile))) if share > 0 else 0.0


def _waiting(servers: int, erlangs: float, b: float) -> float:
    return b / (1.0 - erlangs / servers * (1.0 - b))


def _wait(servers: int, erlangs: float, service_s: float, b: float, quantile: float, spread: float) -> Wait:
    share = _waiting(servers, erlangs, b)
    each_s = spread * service_s / (servers - erlangs)
    return Wait(erlangs / servers, share, share * each_s, late_of(share, each_s, quantile))
