"""Changes: the seldom verbs that change stored jobs: taps, amendments, edits, redrives, purges."""

from collections.abc import Sequence
from typing import Final

from forebay.brokers.postgres.deadly import Deadly
from forebay.brokers.postgres.intake import Intake, Known, add_links
from forebay.brokers.postgres.rows import columns, record_of
from forebay.brokers.postgres.schema import COUNTED_SQL, DEAD, STATE_SQL, SUCCEEDED
from forebay.brokers.postgres.store import Tx
from forebay.brokers.shared.states import FINAL_NUMBERS, STATES, UUID
from forebay.core.blobs import named
from forebay.core.job import Amendment, AmendVerdict, Job, JobRecord, Receipt, Verdict, amended
from forebay.core.lifecycle import FINAL, State
from forebay.core.retention import Keeping, Retention

PURGED_KEPT_S: Final = 7 * 86_400.0  # how long the ids of purged jobs are told from those that never were
_LOCKED: Final = f"SELECT {columns('j')} FROM jobs j WHERE j.id = %s::uuid FOR UPDATE"
_TAP: Final = {
    "paused": (
        "INSERT INTO taps (task, paused) VALUES (%s, %s)"
        " ON CONFLICT (task) DO UPDATE SET paused = excluded.paused"
    ),
    "draining": (
        "INSERT INTO taps (task, draining) VALUES (%s, %s)"
        " ON CONFLICT (task) DO UPDATE SET draining = excluded.draining"
    ),
}
_AMEND: Final = "UPDATE jobs SET priority = %s, task = %s, version = %s, fingerprint = %s WHERE id = %s::uuid"
_TASKS: Final = f"SELECT task FROM tallies WHERE {COUNTED_SQL} GROUP BY task HAVING sum(jobs) > 0"
# Longest past first, of each task by its own retention. Every branch walks an index from its left. (`= false`
# would be taken for `<>`, which no index knows: all ended jobs of a task would be gone through each time.)
_PAST: Final = (
    "SELECT p.id::text FROM unnest(%s::text[], %s::float8[], %s::float8[]) AS t(task, ended_s, dead_s)"
    " CROSS JOIN LATERAL ("
    f"(SELECT id, finished_at + t.ended_s AS gone_at FROM jobs WHERE task = t.task"
    f" AND (state = {DEAD}) IS FALSE"
    " AND finished_at IS NOT NULL AND finished_at + t.ended_s <= %s AND finished_at <= %s - t.ended_s + 1"
    " ORDER BY finished_at, id LIMIT %s)"
    " UNION ALL "
    f"(SELECT id, finished_at + t.dead_s FROM jobs WHERE task = t.task AND (state = {DEAD}) IS TRUE"
    " AND finished_at IS NOT NULL AND finished_at + t.dead_s <= %s AND finished_at <= %s - t.dead_s + 1"
    " ORDER BY finished_at, id LIMIT %s)"
    ") AS p ORDER BY p.gone_at, p.id LIMIT %s"
)
_PURGE: Final = (
    f"WITH gone AS (DELETE FROM jobs j WHERE j.id = ANY(%s::uuid[]) AND {STATE_SQL} >= {SUCCEEDED}"
    " RETURNING id, tenant),"
    " k AS (DELETE FROM keys WHERE job_id IN (SELECT id FROM gone)),"
    " l AS (DELETE FROM links WHERE job_id IN (SELECT id FROM gone)),"
    " d AS (DELETE FROM deliveries WHERE job_id IN (SELECT id FROM gone)),"
    " p AS (INSERT INTO purged SELECT id, tenant, %s FROM gone"
    " ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, at = excluded.at)"
    " SELECT count(*) FROM gone"
)
_FORGET: Final = "DELETE FROM purged WHERE id IN (SELECT id FROM purged WHERE at < %s ORDER BY at LIMIT %s)"


class Changes:
    """Verbs that few call."""

    def __init__(self, keeping: Keeping, intake: Intake, deadly: Deadly) -> None:
        self._keeping = keeping
        self._intake = intake
        self._deadly = deadly

    async def tap(self, tx: Tx, task: str, name: str, *, to: bool) -> None:
        """Turn one tap of a task."""
        await tx.run(_TAP[name], [task, to])
        if not to:
            await tx.run("DELETE FROM taps WHERE task = %s AND NOT paused AND NOT draining", [task])
            tx.news.work.add(task)

    async def amend(self, tx: Tx, job_id: str, change: Amendment) -> AmendVerdict:
        """Give a waiting job another priority, or move it to another task."""
        record = await self._seen(tx, job_id)
        if record is None:
            return AmendVerdict.UNKNOWN
        job, stands = record.job, record.standing
        if stands.state in FINAL:
            return AmendVerdict.FINAL
        if stands.state is State.RUNNING:
            return AmendVerdict.RUNNING
        now_is = amended(job, change)
        await tx.run(_AMEND, [now_is.priority, now_is.task, now_is.version, now_is.fingerprint, job_id])
        tx.news.changed(job_id, now_is.task, stands.state)
        tx.news.ready({job.task})
        return AmendVerdict.AMENDED

    async def edit(self, tx: Tx, job_id: str, payload: bytes) -> bool:
        """Keep a payload for the redrive of a dead job."""
        record = await self._seen(tx, job_id)
        if record is None or record.standing.state is not State.DEAD:
            return False
        await tx.run("UPDATE jobs SET edited = %s WHERE id = %s::uuid", [payload, job_id])
        await tx.run("DELETE FROM links WHERE job_id = %s::uuid AND place = 'e'", [job_id])
        await add_links(tx, [(blob, job_id, "e") for blob in named(payload)])
        return True

    async def redrive(self, tx: Tx, job_id: str, job: Job, now: float) -> Receipt | None:
        """Store `job` as the successor of the dead job `job_id`."""
        record = await self._seen(tx, job_id)
        if record is None or record.standing.state is not State.DEAD:
            return None
        if record.redriven_as is not None:
            rows = await tx.rows("SELECT state FROM jobs WHERE id = %s::uuid", [record.redriven_as])
            if rows:
                return Receipt(Verdict.REPLAYED, record.redriven_as, STATES[rows[0][0]])
        (receipt,) = await self._intake.enqueue(tx, [job._replace(redriven_from=job_id)], now)
        if receipt.verdict is Verdict.STORED:
            await tx.run("UPDATE jobs SET redriven_as = %s::uuid WHERE id = %s::uuid", [job.id, job_id])
        return receipt

    async def purge(self, tx: Tx, ids: Sequence[str] | None, limit: int) -> int:
        """Remove final jobs: the named ones, or those past retention."""
        if ids is None:
            ids = await self._past(tx, limit)
            await self._deadly.age_out(tx)
            await tx.run(_FORGET, [tx.now - PURGED_KEPT_S, max(limit, 0)])
        known = [job_id for job_id in ids if UUID.fullmatch(job_id) is not None]
        if not known:
            return 0
        ((count,),) = await tx.rows(_PURGE, [known, tx.now])
        return int(count)

    async def _past(self, tx: Tx, limit: int) -> list[str]:
        tasks = [row[0] for row in await tx.rows(_TASKS)]
        if not tasks or limit <= 0:
            return []
        kept = [self._keeping.by_task.get(task, self._keeping.of_all) for task in tasks]
        arrays = [tasks, [float(one.ended_s) for one in kept], [float(one.dead_s) for one in kept]]
        terms = [tx.now, tx.now, limit]
        return [row[0] for row in await tx.rows(_PAST, [*arrays, *terms, *terms, limit])]

    async def _seen(self, tx: Tx, job_id: str) -> JobRecord | None:
        if UUID.fullmatch(job_id) is None:
            return None
        rows = await tx.rows(_LOCKED, [job_id])
        if not rows:
            return None
        record = record_of(rows[0])
        stands = record.standing
        gone_at = self._keeping.gone_at(record.job.task, stands.state, stands.finished_at)
        return record if gone_at > tx.now else None


__all__ = ["FINAL_NUMBERS", "Changes", "Known", "Retention"]
