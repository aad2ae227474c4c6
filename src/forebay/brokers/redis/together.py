"""Together: submissions, and the lease of who waits for them, are one script: one way there and back."""

from collections.abc import Sequence
from typing import Any

from forebay.brokers.redis.grants import Grants
from forebay.brokers.redis.intake import checked, entered
from forebay.brokers.redis.store import Store, Tx
from forebay.brokers.shared.committer import Kind, Op
from forebay.brokers.shared.news import News
from forebay.core.job import Lease, Receipt
from forebay.errors import StoreFullError

Stored = tuple[list[Any], News]  # the answers of the first calls of a group, and what there is to tell


class Together:
    """Stores groups of submissions that end with a lease. None for every other group: nothing is done."""

    def __init__(self, store: Store, grants: Grants) -> None:
        self._store = store
        self._grants = grants

    async def take(self, group: Sequence[Op[Any]]) -> Stored | None:
        """Store the submissions of a group, and grant its lease where one line waits; else that is left."""
        stores = [op for op in group if op.kind is Kind.ENQUEUE]
        if not stores or len(stores) == len(group):
            return None
        lease = group[len(stores)]
        try:
            (receipts, leases), news = await self._store.write(
                lambda tx: self._both(tx, stores, lease.terms), now=lease.now
            )
        except StoreFullError as error:  # what is there already must be granted, or it never gets less
            return [error] * len(stores), News()
        answers: list[Any] = []
        for op in stores:
            answers.append(receipts[: len(op.items)])
            del receipts[: len(op.items)]
        return answers if leases is None else [*answers, leases], news

    async def _both(
        self, tx: Tx, stores: Sequence[Op[Any]], terms: Any
    ) -> tuple[list[Receipt], list[Lease] | None]:
        task, limit, lease_s, worker = terms
        jobs = [job for op in stores for job in op.items]
        items = [checked(job) for job in jobs]
        asked = self._grants.asked(task, limit=limit, lease_s=lease_s, worker=worker)
        answers, rows = await tx.run("enqueue", jobs=items, at=float(stores[-1].now), **asked)
        receipts = [entered(tx, job, answer) for job, answer in zip(jobs, answers, strict=True)]
        return receipts, None if rows is None else self._grants.took(tx, task, rows)
