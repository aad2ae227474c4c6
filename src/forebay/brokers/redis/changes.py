"""Changes: the seldom verbs that change stored jobs: taps, amendments, edits, redrives, purges."""

from collections.abc import Sequence
from typing import Final

from forebay.brokers.redis.deadly import Deadly
from forebay.brokers.redis.intake import checked, entered, receipt_of
from forebay.brokers.redis.store import Tx
from forebay.brokers.shared.gauge import Gauge
from forebay.brokers.shared.states import STATES
from forebay.core.blobs import named
from forebay.core.job import Amendment, AmendVerdict, Job, Receipt

PURGED_KEPT_S: Final = 7 * 86_400.0  # how long the ids of purged jobs are told from those that never were


class Changes:
    """Verbs that few call."""

    def __init__(self, deadly: Deadly, gauge: Gauge) -> None:
        self._deadly = deadly
        self._gauge = gauge

    async def tap(self, tx: Tx, task: str, tap: str, *, to: bool) -> None:
        """Turn one tap of a task."""
        taps = await tx.run("tap", task=task, tap=tap, to="1" if to else "0")
        self._gauge.turned(task, taps[:1] == b"1", taps[1:2] == b"1")
        if not to:
            tx.news.work.add(task)

    async def amend(self, tx: Tx, job_id: str, change: Amendment) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task."""
        priority = None if change.priority is None else str(change.priority)
        verdict, *more = await tx.run("amend", id=job_id, prio=priority, task=change.task, ver=change.version)
        if more:
            before, task, state = more
            tx.news.changed(job_id, task.decode(), STATES[int(state)])
            tx.news.ready({before.decode()})
        return AmendVerdict(verdict.decode())

    async def edit(self, tx: Tx, job_id: str, payload: bytes) -> bool:
        """Keep a payload for the redrive of a dead job."""
        return bool(await tx.run("edit", id=job_id, payload=payload, blobs=list(named(payload))))

    async def redrive(self, tx: Tx, job_id: str, job: Job, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        job = job._replace(redriven_from=job_id)
        answer = await tx.run("redrive", id=job_id, job=checked(job), at=float(now))
        if not answer:
            return None
        return entered(tx, job, answer) if answer[1] == job.id.encode() else receipt_of(answer)

    async def purge(self, tx: Tx, ids: Sequence[str] | None, limit: int) -> int:
        """Remove final jobs: the named ones, or those past retention."""
        if ids is None:
            await self._deadly.age_out(tx)
        named_ids = None if ids is None else list(ids)
        return int(await tx.run("purge", ids=named_ids, limit=max(limit, 0), gone_kept=PURGED_KEPT_S))
