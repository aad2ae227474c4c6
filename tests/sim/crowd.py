"""crowd: how long a quiet tenant's jobs wait, alone or beside a noisy one, on any Book in virtual time."""

import random

from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import Job

T0 = 1_800_000_000.0
QUIET_S = 0.1  # what a job of the quiet tenant takes
REPLICAS = 4


def waits(book, *, noisy, noisy_s=QUIET_S, noisy_max=None, bursts=30, burst=20, seed=3):
    """Return the waits of a quiet tenant that sends `bursts` bursts, in order of length.

    `noisy`: beside another one that has a hundred jobs for each of its own, all there from the start.
    """
    chance, now = random.Random(seed), T0
    book.set_shares({} if noisy_max is None else {"noisy": Share(running_max=noisy_max)})
    gap_s = 5.0 * burst * QUIET_S / REPLICAS
    arrivals = [(T0 + n * gap_s + chance.random() * gap_s / 2, burst, "quiet") for n in range(1, bursts)]
    if noisy:
        arrivals.append((T0, 100 * burst * bursts, "noisy"))
    arrivals.sort()
    free, running, found = REPLICAS, [], []
    while len(found) < burst * (bursts - 1):
        while arrivals and arrivals[0][0] <= now:
            _, count, tenant = arrivals.pop(0)
            jobs = [Job(book.new_id(now), "t", b"{}", now, now, tenant=tenant) for _ in range(count)]
            book.enqueue(jobs, now=now)
        for lease in book.lease("t", limit=free, lease_s=1e9, worker="w", now=now):
            free -= 1
            quiet = lease.job.tenant == "quiet"
            running.append((now + (QUIET_S if quiet else noisy_s) * (0.8 + 0.4 * chance.random()), lease))
            if quiet:
                found.append(now - lease.ready_at)
        running.sort(key=lambda one: one[0])
        now = min([at for at, _, _ in arrivals[:1]] + [at for at, _ in running[:1]], default=now)
        while running and running[0][0] <= now:
            _, lease = running.pop(0)
            book.commit([settle.complete(lease, output=b"1", now=now)], now=now)
            free += 1
    return sorted(found)


def p99(values):
    """Return the 99th percentile of sorted values."""
    return values[int(0.99 * (len(values) - 1))]
