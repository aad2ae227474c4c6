"""join: the answer to a submission that asks for work another job does or did."""

from collections.abc import Callable

from forebay.core.job import Job, Receipt, Verdict
from forebay.core.ledger_entry import Entry
from forebay.core.ledger_shelf import Shelf
from forebay.core.settle import joinable


def join(shelf: Shelf, job: Job, *, seen: Callable[[str], Entry | None], now: float) -> Receipt | None:
    """Return the receipt of the equal job that `job` joins; None when it must be stored.

    `seen` finds a job that is not past its retention.
    """
    if job.fingerprint is None or job.redriven_from is not None:
        return None
    twin = shelf.twins.newest(job.fingerprint)
    entry = None if twin is None else seen(twin)
    if entry is None or not joinable(entry.state, entry.cancel_requested, entry.finished_at, entry.job, now):
        return None
    if job.idempotency_key is not None:
        shelf.name(entry, (job.tenant, job.idempotency_key), job.body_hash)
    return Receipt(Verdict.JOINED, entry.job.id, entry.state)
