"""Intake: how submissions enter: known by key or id, joined with equal work, or stored."""

from collections.abc import Sequence
from typing import Any, Final

from forebay.brokers.redis.rows import item_of
from forebay.brokers.redis.store import Tx
from forebay.brokers.shared.states import STATES, UUID
from forebay.core.job import Job, Receipt, Verdict
from forebay.errors import InvalidError

_VERDICTS: Final = {
    b"s": Verdict.STORED,
    b"r": Verdict.REPLAYED,
    b"j": Verdict.JOINED,
    b"c": Verdict.CONFLICT,
}


async def enqueue(tx: Tx, jobs: Sequence[Job], now: float) -> list[Receipt]:
    """Store each job once; answer in order. `now` is of the caller's clock: what is due by either is due."""
    if not jobs:
        return []
    items = [checked(job) for job in jobs]
    answers = await tx.run("enqueue", jobs=items, at=float(now))
    return [entered(tx, job, answer) for job, answer in zip(jobs, answers, strict=True)]


def checked(job: Job) -> tuple[str, list[bytes], list[str]]:
    """Return a submission as the scripts take it. Raises InvalidError for an id that is none."""
    if UUID.fullmatch(job.id) is None:
        raise InvalidError("the id of a job must be a UUID in lower case")
    return item_of(job)


def entered(tx: Tx, job: Job, answer: Sequence[Any]) -> Receipt:
    """Return the receipt that a script gave, and tell of what it stored."""
    receipt = receipt_of(answer)
    if receipt.verdict is Verdict.STORED:
        tx.news.changed(job.id, job.task, receipt.state)
    return receipt


def receipt_of(answer: Sequence[Any]) -> Receipt:
    """Return a receipt as a script gives it."""
    verdict, job_id, state = answer
    return Receipt(_VERDICTS[verdict], job_id.decode(), STATES[int(state)])
