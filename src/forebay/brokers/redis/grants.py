"""Grants: which jobs a lease gets, by the one rule of core.turns, as far as others left them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from forebay.brokers.redis.rows import lease_of
from forebay.brokers.redis.store import Tx
from forebay.brokers.shared.granted import Granted
from forebay.core.fairness import FairShare, Share, Shares
from forebay.core.job import AGEING_S, Lease
from forebay.core.lifecycle import State
from forebay.core.reserve import INTERACTIVE, Reserve
from forebay.core.turns import Order, Place, Turns

CANDIDATES_MAX: Final = 4_096  # jobs looked at for one lease, over all lanes
ROUNDS_MAX: Final = 3  # of one lease that others were ahead of
LANES: Final = {Order.ARRIVAL: "q", Order.DEADLINE: "e"}


class Candidates:
    """The jobs of one priority and tenant that a lease may take, in order."""

    __slots__ = ("_at", "keys")

    def __init__(self, keys: list[tuple[float, str]]) -> None:
        self.keys = keys
        self._at = 0

    def head(self, now: float) -> tuple[float, str] | None:
        """Return the first that was not taken."""
        return self.keys[self._at] if self._at < len(self.keys) else None

    def take(self) -> str:
        """Take the first."""
        self._at += 1
        return self.keys[self._at - 1][1]


class Grants:
    """Leases jobs, and keeps the accounts that say whose turn it is. The accounts are of this process."""

    def __init__(self, waiting: Callable[[], set[str]]) -> None:
        self._waiting = waiting  # tasks that have queued jobs
        self.shares = Shares()
        self._running_max: dict[str, int] = {}
        self._fairs: dict[str, FairShare] = {}
        self._reserves: dict[str, Reserve] = {}
        self.orders: dict[str, Order] = {}
        self.granted = Granted()
        self._undo: list[Callable[[], object]] = []  # of the round that runs

    def set_shares(self, shares: dict[str, Share]) -> None:
        """Give tenants their shares. Raises ValueError for one that makes no sense."""
        self.shares.set(shares, ())
        self._running_max = {
            tenant: share.running_max for tenant, share in shares.items() if share.running_max is not None
        }

    def set_reserve(self, task: str, others_max: int | None) -> None:
        """Keep room for urgent jobs of a task."""
        self._reserves.setdefault(task, Reserve()).set(others_max, ())

    def frees(self, task: str, tenant: str, priority: int) -> bool:
        """Say whether the end of a running job may let others go that were held back."""
        reserve = self._reserves.get(task)
        kept = reserve is not None and reserve.others_max is not None and priority > INTERACTIVE
        return kept or tenant in self._running_max

    def freed(self, task: str, tenant: str) -> set[str]:
        """Return the tasks of which a job may be granted now that this one runs no more."""
        return {task, *(self._waiting() if tenant in self._running_max else ())}

    def settled(self, task: str, job_id: str, event: Any, service_s: float) -> None:
        """Take note that a job runs no more: what its tenant was charged with is corrected."""
        fair = self._fairs.get(task)
        if fair is not None:
            fair.settle(job_id, event, service_s)
            self._undo.clear()

    async def lease(self, tx: Tx, task: str, *, limit: int, lease_s: float, worker: str) -> list[Lease]:
        """Grant up to `limit` jobs of `task`."""
        leases: list[Lease] = []
        for _ in range(ROUNDS_MAX):
            if limit <= len(leases):
                break
            found, missed = await self._round(tx, task, limit - len(leases), lease_s, worker)
            leases += found
            if not missed:
                break
        self._tell(tx, task, leases)
        return leases

    def asked(self, task: str, *, limit: int, lease_s: float, worker: str) -> dict[str, Any]:
        """Return what a script is asked that grants jobs of one line."""
        return {
            "task": task,
            "limit": limit,
            "order": LANES[self.order(task)],
            "bounded": self.shares.bounded or self._reserve(task).others_max is not None,
            "lease": float(lease_s),
            "worker": worker,
        }

    def took(self, tx: Tx, task: str, rows: Sequence[Any]) -> list[Lease]:
        """Take in what a script granted along with submissions."""
        leases = [lease_of(row, skew_s=tx.skew_s) for row in rows]
        self._charge(self._fair(task), leases)
        self._tell(tx, task, leases)
        return leases

    def _tell(self, tx: Tx, task: str, leases: Sequence[Lease]) -> None:
        tx.news.looked.add(task)
        for lease in leases:
            tx.news.changed(lease.job.id, task, State.RUNNING)
        self.granted.put(leases)

    async def _round(
        self, tx: Tx, task: str, limit: int, lease_s: float, worker: str
    ) -> tuple[list[Lease], int]:
        """Return what was granted, and how many others took first."""
        reserve, tenants = self._reserve(task), sorted(self._running_max)
        asked = self.asked(task, limit=limit, lease_s=lease_s, worker=worker)
        done, *rest = await tx.run("lease", tenants=tenants, candidates_max=CANDIDATES_MAX, **asked)
        fair = self._fair(task)
        if done == b"1":
            leases = [lease_of(row, skew_s=tx.skew_s) for row in rest[0]]
            self._charge(fair, leases)
            return leases, 0
        lanes, running, others = rest
        reserve.recount([INTERACTIVE + 1] * int(others))
        if self.shares.bounded:
            self.shares.recount(_each(zip(tenants, map(int, running), strict=True)))
        turns = Turns(fair, reserve, places_of(lanes), tx.now)
        self._undo.clear()
        chosen = self._chosen(turns, limit)
        if not chosen:
            return [], 0
        self._take_back()  # charged as they are granted
        found, missed = await tx.run(
            "grant",
            task=task,
            ids=chosen,
            running_max=self._running_max,
            others_max=reserve.others_max,
            lease=float(lease_s),
            worker=worker,
        )
        leases = [lease_of(row, skew_s=tx.skew_s) for row in found]
        self._charge(fair, leases)
        return leases, int(missed)

    def _chosen(self, turns: Turns[Candidates], limit: int) -> list[str]:
        chosen: list[str] = []
        while len(chosen) < limit and (place := turns.next()) is not None:
            job_id = place.line.take()
            chosen.append(job_id)
            turns.granted(place, job_id)
        return chosen

    def _charge(self, fair: FairShare, leases: Sequence[Lease]) -> None:
        for lease in leases:
            fair.charge(lease.job.tenant, lease.job.id)
        self._undo.clear()

    def _take_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    def order(self, task: str) -> Order:
        """Return what the order of a task goes by."""
        return self.orders.get(task, Order.ARRIVAL)

    def _reserve(self, task: str) -> Reserve:
        return self._reserves.get(task) or self._reserves.setdefault(task, Reserve())

    def _fair(self, task: str) -> FairShare:
        fair = self._fairs.get(task)
        if fair is None:
            fair = self._fairs[task] = FairShare(self.shares, self._undo_by)
        return fair

    def _undo_by(self, step: Callable[..., object], *arguments: Any) -> None:
        self._undo.append(lambda: step(*arguments))


def places_of(lanes: Sequence[Any]) -> list[Place[Candidates]]:
    """Return the lanes that a script showed."""
    places: list[Place[Candidates]] = []
    for name, flat in lanes:
        priority, tenant = lane_of(name)
        keys = [
            (float(at) + priority * AGEING_S, job_id.decode())
            for job_id, at in zip(flat[::2], flat[1::2], strict=True)
        ]
        places.append(Place(priority, tenant, Candidates(keys)))
    return places


def lane_of(name: bytes) -> tuple[int, str]:
    """Return the priority and the tenant of a lane."""
    priority, tenant = name.split(b"\0", 1)
    return int(priority), tenant.decode()


def _each(counted: Any) -> Iterator[Any]:
    """Yield each key as often as it was counted."""
    for key, count in counted:
        for _ in range(count):
            yield key
