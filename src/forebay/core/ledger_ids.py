"""CountedIds: the ids a Ledger gives out when nobody else does; PurgedIds: those of jobs that are gone."""

PURGED_KEPT = 100_000


class CountedIds:
    """Ids of uuid7 form out of the given time and a counter: in order, never twice, the same every run."""

    def __init__(self) -> None:
        self._count = 0
        self._ms = 0

    def __call__(self, now: float) -> str:
        """Return the next id."""
        self._ms = max(self._ms, int(now * 1000))
        self._count += 1
        count, ms = self._count, f"{self._ms:012x}"
        return f"{ms[:8]}-{ms[8:]}-7000-8{count >> 48:03x}-{count & 0xFFFF_FFFF_FFFF:012x}"


class PurgedIds:
    """The newest ids of purged jobs and whose they were, to tell "gone" from "never was"."""

    def __init__(self) -> None:
        self._tenants: dict[str, str] = {}

    def get(self, job_id: str) -> str | None:
        """Return the tenant of a purged job, None when it is not remembered."""
        return self._tenants.get(job_id)

    def add(self, job_id: str, tenant: str) -> None:
        """Remember an id; the oldest is forgotten for it when there are PURGED_KEPT."""
        self._tenants[job_id] = tenant
        if len(self._tenants) > PURGED_KEPT:
            del self._tenants[next(iter(self._tenants))]

    def discard(self, job_id: str) -> None:
        """Forget an id that is stored again."""
        self._tenants.pop(job_id, None)
