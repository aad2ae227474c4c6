"""Holdings: how many open jobs and bytes each tenant has, in memory."""

from collections.abc import Collection

from forebay.brokers.sqlite.journal import Journal
from forebay.core.job import Job
from forebay.core.many import TENANT_OF
from forebay.core.tenant import Held

NOTHING = Held()
_NAMELESS = frozenset({""})


class Holdings:
    """One entry for each tenant that has open jobs. The tenant without a name is not counted: it is what the
    queues hold beyond all others, and most stores know no other."""

    def __init__(self, journal: Journal) -> None:
        self.by_tenant: dict[str, Held] = {}
        self._journal = journal

    def add(self, jobs: Collection[Job], sign: int = 1) -> None:
        """Count jobs that were opened, or (sign -1) that have ended."""
        if _NAMELESS.issuperset(map(TENANT_OF, jobs)):
            return
        tally: dict[str, list[int]] = {}
        for job in jobs:
            tenant = job.tenant
            if tenant:
                held = tally.get(tenant)
                if held is None:
                    held = tally[tenant] = [0, 0]
                held[0] += sign
                held[1] += sign * (len(job.payload) + len(job.metadata))
        for tenant, (count, size) in tally.items():
            self.change(tenant, count, size)
            self._journal.undo_by(self.change, tenant, -count, -size)

    def change(self, tenant: str, jobs: int, size: int) -> None:
        """Count without a trace in the journal."""
        held = self.by_tenant.get(tenant, NOTHING)
        left = Held(held.jobs + jobs, held.bytes + size)
        if left == NOTHING:
            self.by_tenant.pop(tenant, None)
        else:
            self.by_tenant[tenant] = left
