"""Share, Shares, FairShare: who of several tenants is served next, by the service each has had.

Virtual-time fair queueing over service time. A tenant's account grows by the service its jobs take, divided
by its weight; the tenant with the smallest account goes next. A grant is charged with what such a job is
expected to take and corrected when it has ended, so that heavy jobs count for what they cost.

Accounts live in memory only: after a restart all tenants start equal.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from forebay.core.lifecycle import Event

NOMINAL_S: Final = 1.0  # what a job is taken to cost before any of its task has ended
LEARNED_OF: Final = 8.0  # a mean follows about this many of the latest jobs
# A tenant that was idle comes back this many mean jobs ahead of those that were served meanwhile: enough
# to be next at once, too little to save up.
LEAD_JOBS: Final = 8.0
ACCOUNTS_MAX: Final = 4_096  # of one task; past twice as many, those that had the least are forgotten
WEIGHT_MIN, WEIGHT_MAX = 1e-3, 1e6

_RAN: Final = frozenset({Event.COMPLETED, Event.FAILED, Event.EXHAUSTED})  # tells what such a job costs


class Share(NamedTuple):
    """What one tenant may take. Raises nothing: whoever reads settings checks them with `share_problem`."""

    weight: float = 1.0  # beside others with work waiting, its part of the service grows with it
    running_max: int | None = None  # jobs of it that may run at once, over all tasks; None for any number


DEFAULT_SHARE: Final = Share()


def share_problem(share: Share) -> str | None:
    """Return what is wrong with a share in one line, None when nothing is."""
    if not (math.isfinite(share.weight) and WEIGHT_MIN <= share.weight <= WEIGHT_MAX):
        return f"weight must be from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, not {share.weight!r}"
    if share.running_max is not None and share.running_max < 1:
        return f"running_max must be at least 1, not {share.running_max!r}"
    return None


class Shares:
    """The shares of all tenants of a store, and how many jobs of the bounded ones run."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}
        self._running: dict[str, int] = {}  # of tenants with a bound only
        self.bounded = False

    def set(self, shares: Mapping[str, Share], running: Iterable[str]) -> None:
        """Replace all shares. `running` names the tenant of each job that runs.

        Raises ValueError with one line for a share that makes no sense; nothing has changed then.
        """
        for tenant, share in shares.items():
            problem = share_problem(share)
            if problem is not None:
                raise ValueError(f"share of tenant {tenant[:60]!r}: {problem}")
        self._shares = dict(shares)
        self.bounded = any(share.running_max is not None for share in shares.values())
        self.recount(running)

    def recount(self, running: Iterable[str]) -> None:
        """Count again what runs."""
        self._running = {t: 0 for t, share in self._shares.items() if share.running_max is not None}
        if self._running:
            for tenant in running:
                if tenant in self._running:
                    self._running[tenant] += 1

    def weight(self, tenant: str) -> float:
        """Return the weight of a tenant, 1 for one that was not named."""
        return self._shares.get(tenant, DEFAULT_SHARE).weight

    def room(self, tenant: str) -> float:
        """Return how many more jobs of the tenant may run now; infinity when it has no bound."""
        most = self._shares.get(tenant, DEFAULT_SHARE).running_max
        return math.inf if most is None else most - self._running[tenant]

    def began(self, tenant: str) -> None:
        """Count a job that runs from now on."""
        if tenant in self._running:
            self._running[tenant] += 1

    def ended(self, tenant: str) -> bool:
        """Count a job that runs no more; returns whether the tenant was at its bound."""
        if tenant not in self._running:
            return False
        full = self.room(tenant) <= 0
        self._running[tenant] -= 1
        return full


class Account(NamedTuple):
    """What one tenant had of one task."""

    spent: float = 0.0  # virtual seconds: service divided by weight
    mean_s: float | None = None  # service of its jobs lately


class Charge(NamedTuple):
    """What a running job was charged with."""

    tenant: str
    virtual: float


def _keep_nothing(*_step: Any) -> None:
    """Take a step of undoing for whoever never undoes."""


class FairShare:
    """The accounts of one task. Off, and free of cost, until two tenants wait in it at the same time.

    `undo_by` takes the calls that take a change back, newest last; an engine that rolls back calls them.
    """

    def __init__(self, shares: Shares, undo_by: Callable[..., None] = _keep_nothing) -> None:
        self.shares = shares
        self.on = False
        self._undo_by = undo_by
        self._accounts: dict[str, Account] = {}
        self._charges: dict[Hashable, Charge] = {}  # of what runs
        self._mean_s: float | None = None  # over all tenants
        self._alone: str | None = None  # who was served last while nobody else waited
        self._reached = 0.0  # where the account of the tenant served last stood
        self._moved: dict[str, None] | None = None  # tenants whose account has moved; None: nobody asks

    def turn_on(self) -> None:
        """Keep accounts from now on. Whoever was served alone until now begins where the others are ahead
        of it, as if they had been idle meanwhile."""
        if self.on:
            return
        self.on = True
        self._undo_by(setattr, self, "on", False)
        if self._alone is not None:
            self._remember(self._alone, None)
            self._reached = LEAD_JOBS * self._expected_s(None)
            self._accounts[self._alone] = Account(self._reached)

    def watch(self) -> None:
        """Take note from now on of the tenants whose accounts move."""
        self._moved = {}

    def take_moved(self) -> list[str]:
        """Return and forget the tenants whose accounts have moved."""
        moved, self._moved = list(self._moved or ()), {}
        return moved

    def account_of(self, tenant: str) -> float:
        """Return what a tenant had, without a lift; less than anything when nothing is known of it."""
        account = self._accounts.get(tenant)
        return -math.inf if account is None else account.spent

    def least(self) -> float:
        """Return where a tenant stands that was idle for long."""
        return self._reached - LEAD_JOBS * self._expected_s(None)

    def spent(self, tenant: str) -> float:
        """Return the virtual time a tenant stands at: its account, lifted when it was idle for long."""
        return max(self.account_of(tenant), self.least())

    def charge(self, tenant: str, job: Hashable) -> None:
        """Charge a grant with what the job is expected to take."""
        if not self.on:
            if tenant != self._alone:
                self._undo_by(setattr, self, "_alone", self._alone)
                self._alone = tenant
            return
        account = self._accounts.get(tenant, Account())
        stands = self.spent(tenant)
        virtual = self._expected_s(account.mean_s) / self.shares.weight(tenant)
        self._remember(tenant, job)
        self._accounts[tenant] = account._replace(spent=stands + virtual)
        self._charges[job] = Charge(tenant, virtual)
        self._reached = max(self._reached, stands)
        if len(self._accounts) > 2 * ACCOUNTS_MAX:
            self._forget_some()

    def settle(self, job: Hashable, event: Event, service_s: float) -> None:
        """Correct what the job was charged with, now that it holds its place in a worker no more."""
        charge = self._charges.get(job)
        if charge is None:
            return
        tenant = charge.tenant
        self._remember(tenant, job)
        del self._charges[job]
        account = self._accounts.get(tenant)
        if account is None:
            return
        service_s = max(0.0, service_s)
        spent = account.spent + service_s / self.shares.weight(tenant) - charge.virtual
        mean_s = account.mean_s
        if event in _RAN:
            mean_s = _followed(mean_s, service_s)
            self._mean_s = _followed(self._mean_s, service_s)
        self._accounts[tenant] = Account(spent, mean_s)

    def _expected_s(self, mean_s: float | None) -> float:
        if mean_s is not None:
            return mean_s
        return NOMINAL_S if self._mean_s is None else self._mean_s

    def _remember(self, tenant: str, job: Hashable) -> None:
        if self._moved is not None:
            self._moved[tenant] = None
        account, charge = self._accounts.get(tenant), self._charges.get(job)
        self._undo_by(self._restore, tenant, account, job, charge, self._mean_s, self._reached)

    def _restore(
        self,
        tenant: str,
        account: Account | None,
        job: Hashable,
        charge: Charge | None,
        mean_s: float | None,
        reached: float,
    ) -> None:
        _put_back(self._accounts, tenant, account)
        _put_back(self._charges, job, charge)
        self._mean_s, self._reached = mean_s, reached

    def _forget_some(self) -> None:
        # Most of these stand where a newcomer would: forgetting them changes nothing.
        oldest = sorted(self._accounts, key=lambda tenant: (self._accounts[tenant].spent, tenant))
        for tenant in oldest[:-ACCOUNTS_MAX]:
            if self._moved is not None:
                self._moved[tenant] = None
            self._undo_by(self._accounts.__setitem__, tenant, self._accounts.pop(tenant))


def ahead_among(rank: int, weight: float, rivals: Iterable[tuple[int, float]]) -> int:
    """Return about how many jobs of other tenants go before one that `rank` of its own tenant go before.

    `rivals` are (jobs that wait, weight). While `rank` own jobs are served, a rival gets its share beside
    them. An estimate: it takes all jobs for equally long.
    """
    return sum(min(jobs, int(rank * other / weight)) for jobs, other in rivals)


def _followed(mean: float | None, value: float) -> float:
    return value if mean is None else mean + (value - mean) / LEARNED_OF


def _put_back(held: dict[Any, Any], key: Hashable, value: object) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value
