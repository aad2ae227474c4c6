"""Endings: transitions, cancels and what time alone decides, stored while their fence is current."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from forebay.brokers.postgres.deadly import Deadly
from forebay.brokers.postgres.grants import Grants
from forebay.brokers.postgres.intake import add_links
from forebay.brokers.postgres.outbox import owe
from forebay.brokers.postgres.rows import Row, columns, job_of, lease_of, parameters_of
from forebay.brokers.postgres.schema import (
    CANCELLED,
    QUEUED,
    RETRYING,
    RUNNING,
    SCHEDULED,
    STATE_SQL,
    WAITING_SQL,
)
from forebay.brokers.postgres.store import Store, Tx
from forebay.brokers.shared.news import News
from forebay.brokers.shared.states import FINAL_NUMBERS, NUMBERS, STATES, UUID
from forebay.core import settle
from forebay.core.blobs import named
from forebay.core.job import CancelVerdict, Job, JobError, Sweep, Transition
from forebay.core.lifecycle import FINAL, Event, State
from forebay.core.retention import Keeping
from forebay.packed import attempts_bytes, error_bytes

_STEP: Final = (
    ("id", "uuid"), ("fence", "int8"), ("forced", "bool"), ("state", "int2"), ("final", "bool"),
    ("at", "float8"),
    ("attempt", "int4"), ("deaths", "int4"), ("releases", "int4"), ("suspect", "bool"),
    ("ready_at", "float8"),
    ("output", "bytea"), ("error", "bytea"), ("attempts", "bytea"), ("worker", "text"),
    ("checkpoint", "bytea"),
    ("degraded", "int2"),
)  # fmt: skip
_NAMES: Final = ", ".join(name for name, _ in _STEP)
_STEPS: Final = {  # one, many
    True: f"(VALUES ({', '.join(f'%s::{kind}' for _, kind in _STEP)}, 1)) AS u({_NAMES}, ord)",
    False: f"unnest({', '.join(f'%s::{kind}[]' for _, kind in _STEP)}) WITH ORDINALITY AS u({_NAMES}, ord)",
}
_COMMIT: Final = (
    "UPDATE jobs j SET state = u.state, attempt = u.attempt, deaths = u.deaths, releases = u.releases,"
    " suspect = u.suspect, ready_at = CASE WHEN u.final THEN j.ready_at ELSE u.ready_at END,"
    " lease_until = NULL, cancel_at = NULL, progress = NULL, output = u.output, error = u.error,"
    " attempts = u.attempts, degraded = u.degraded,"
    " worker = CASE WHEN u.worker = '' THEN j.worker ELSE u.worker END,"
    " finished_at = CASE WHEN u.final THEN u.at END,"
    " checkpoint = CASE WHEN u.final THEN NULL ELSE coalesce(u.checkpoint, j.checkpoint) END"
    f" FROM {{}} WHERE j.id = u.id AND {STATE_SQL} = {RUNNING} AND j.fence = u.fence"
    " AND (u.forced OR NOT j.cancel_requested){}"
    " RETURNING u.ord::int4, j.task, j.tenant, j.priority, j.callback_url, j.ordering_key IS NOT NULL,"
    " j.started_at, j.marked"
)
_COMMITS: Final = {one: _COMMIT.format(source, "") for one, source in _STEPS.items()}
# Where nothing else is to be stored with it.
_COMMIT_ALONE: Final = _COMMIT.format(_STEPS[True], " AND j.callback_url IS NULL AND NOT j.marked")
_ASKED: Final = (
    f"SELECT {columns('j')} FROM jobs j WHERE j.id = ANY(%s::uuid[]) AND {STATE_SQL} = {RUNNING}"
    " AND j.cancel_requested ORDER BY j.id FOR UPDATE"
)
_JOBS: Final = f"SELECT {columns('j', output=False)} FROM jobs j WHERE j.id = ANY(%s::uuid[])"
_LOCKED: Final = (
    "SELECT id::text, state, attempt, task, callback_url, finished_at, marked FROM jobs"
    " WHERE id = ANY(%s::uuid[]) ORDER BY id FOR UPDATE"
)
_END_WAITING: Final = (
    "UPDATE jobs j SET state = u.state, finished_at = %s, suspect = false, checkpoint = NULL,"
    " error = u.error, cancel_requested = j.cancel_requested OR u.asked"
    " FROM unnest(%s::uuid[], %s::int2[], %s::bytea[], %s::bool[]) AS u(id, state, error, asked)"
    " WHERE j.id = u.id"
)
_ASK: Final = (
    "UPDATE jobs SET cancel_requested = true, cancel_at = coalesce(cancel_at, %s) WHERE id = ANY(%s::uuid[])"
)
# The orders are those of indexes: where most jobs were due when the statistics were taken, all jobs would be
# gone through in search of one.
_DUE_AT: Final = (
    f"SELECT (SELECT id FROM jobs WHERE state IN {WAITING_SQL} AND waits_until <= {{at}}"
    " ORDER BY waits_until, id LIMIT 1) IS NOT NULL,"
    f" (SELECT id FROM jobs WHERE state IN ({SCHEDULED}, {RETRYING}) AND ready_at <= {{at}}"
    " ORDER BY ready_at, id LIMIT 1) IS NOT NULL,"
    f" (SELECT id FROM jobs WHERE state = {RUNNING} AND lease_until <= {{at}}"
    " ORDER BY lease_until, id LIMIT 1) IS NOT NULL"
)
_DUE: Final = _DUE_AT.format(at="%s")
_DUE_NOW: Final = "WITH clock AS MATERIALIZED (SELECT {clock} AS now) " + _DUE_AT.format(
    at="(SELECT now FROM clock)"
)
_EXPIRING: Final = (
    "SELECT id::text, attempt, task, callback_url, marked, expires_at, deadline_at, waits_until FROM jobs"
    f" WHERE state IN {WAITING_SQL} AND waits_until <= %s"
    " ORDER BY waits_until, id LIMIT %s FOR UPDATE SKIP LOCKED"
)
_PROMOTE: Final = (
    f"WITH due AS (SELECT id FROM jobs WHERE state IN ({SCHEDULED}, {RETRYING}) AND ready_at <= %s"
    " ORDER BY ready_at, id LIMIT %s FOR UPDATE SKIP LOCKED)"
    f" UPDATE jobs j SET state = {QUEUED} FROM due WHERE j.id = due.id"
    " RETURNING j.ready_at, j.id::text, j.task"
)
_OVERDUE: Final = (
    f"SELECT {columns('j')} FROM jobs j WHERE j.state = {RUNNING} AND j.lease_until <= %s"
    " ORDER BY j.lease_until, j.id LIMIT %s"
)
_DROP_CHECKPOINT_LINKS: Final = "DELETE FROM links WHERE job_id = ANY(%s::uuid[]) AND place = 'c'"


class Waiting(NamedTuple):
    """A waiting job that ends now."""

    job_id: str
    task: str
    state: State
    event: Event
    attempt: int
    callback_url: str | None
    marked: bool


class Endings:
    """Applies what was decided. Decides nothing but who comes too late."""

    def __init__(self, keeping: Keeping, grants: Grants, deadly: Deadly) -> None:
        self._keeping = keeping
        self._grants = grants
        self._deadly = deadly

    async def commit(self, tx: Tx, transitions: Sequence[Transition]) -> list[bool]:
        """Apply each transition whose fence is current and whose job is running; answer in order."""
        applied = [False] * len(transitions)
        left = [at for at, step in enumerate(transitions) if UUID.fullmatch(step.job_id) is not None]
        while left:  # of several for one job each has its turn
            turn: dict[str, int] = {}
            later: list[int] = []
            for at in left:
                if transitions[at].job_id in turn:
                    later.append(at)
                else:
                    turn[transitions[at].job_id] = at
            await self._commit_turn(tx, transitions, list(turn.values()), applied)
            left = later
        return applied

    async def _commit_turn(
        self, tx: Tx, transitions: Sequence[Transition], turn: list[int], applied: list[bool]
    ) -> None:
        steps = [transitions[at] for at in turn]
        done = await self._apply(tx, steps, forced=False)
        if not all(done):
            refused = [at for at, one in enumerate(done) if not one]
            rows = await tx.rows(_ASKED, [[steps[at].job_id for at in refused]])
            leases = {lease.job.id: lease for lease in map(lease_of, rows)}
            asked = [
                at
                for at in refused
                if (held := leases.get(steps[at].job_id)) is not None and held.fence == steps[at].fence
            ]
            if asked:
                instead = [settle.cancelled_instead(steps[at], leases[steps[at].job_id]) for at in asked]
                for at, one in zip(asked, await self._apply(tx, instead, forced=True), strict=True):
                    done[at] = one
        for at, one in zip(turn, done, strict=True):
            applied[at] = one

    async def _apply(self, tx: Tx, steps: Sequence[Transition], *, forced: bool) -> list[bool]:
        values = [_step_values(step, forced) for step in steps]
        rows = await tx.rows(_COMMITS[len(steps) == 1], parameters_of(values))
        done = [False] * len(steps)
        ended: list[tuple[str, str, float]] = []
        dropped: list[str] = []
        for row in sorted(rows):
            at: int = row[0]
            step = steps[at - 1]
            done[at - 1] = True
            self._ended(tx, step, row, forced=forced)
            url, marked = row[4], row[7]
            if step.state in FINAL and url is not None:
                ended.append((step.job_id, url, step.at))
            if marked and (step.state in FINAL or step.checkpoint is not None):
                dropped.append(step.job_id)
        await self._follow_up(
            tx, [step for step, one in zip(steps, done, strict=True) if one], ended, dropped
        )
        return done

    def _ended(self, tx: Tx, step: Transition, row: Row, *, forced: bool) -> None:
        """Take in memory what follows from a transition that was applied."""
        _, task, tenant, priority, _, chained, started_at, _ = row
        self._grants.settled(tx, task, step.job_id, step.event, step.at - (started_at + tx.skew_s))
        settled = self._grants.granted.settled(step, started_at)
        told = settled if step.state in FINAL and not forced else None  # another than its holder knew
        tx.news.changed(step.job_id, task, step.state, told)
        if chained:
            tx.news.work.add(task)
        if self._grants.frees(task, tenant, priority):
            tx.news.ready(self._grants.freed(task, tenant))

    async def commit_alone(self, store: Store, step: Transition) -> News | None:
        """Apply one transition in one statement. None: it was not applied, or something else is to be stored
        with it, and nothing is done."""
        final = step.state in FINAL
        if step.charge is not None or named(step.output) or not (final or step.checkpoint is None):
            return None
        rows = await store.one(_COMMIT_ALONE, _step_values(step, forced=False))
        if not rows:
            return None
        tx = Tx(None, 0.0, store.skew_s)
        self._ended(tx, step, rows[0], forced=False)
        return tx.news

    async def _follow_up(
        self, tx: Tx, steps: list[Transition], ended: list[tuple[str, str, float]], dropped: list[str]
    ) -> None:
        """Store what goes along with transitions that were applied."""
        await owe(tx, ended)
        if dropped:
            await tx.run(_DROP_CHECKPOINT_LINKS, [dropped])
        links = [(blob, step.job_id, "o") for step in steps for blob in named(step.output)]
        marked: list[str] = []
        for step in steps:
            if step.state not in FINAL:
                kept = [(blob, step.job_id, "c") for blob in named(step.checkpoint)]
                if kept:
                    links += kept
                    marked.append(step.job_id)
        await add_links(tx, links)
        if marked:
            await tx.run("UPDATE jobs SET marked = true WHERE id = ANY(%s::uuid[])", [marked])
        charged = {step.job_id: step for step in steps if step.charge is not None}
        if charged:
            jobs = {row[0]: job_of(row) for row in await tx.rows(_JOBS, [list(charged)])}
            await self._deadly.charge(tx, [(jobs[job_id], step) for job_id, step in charged.items()])

    async def cancel(self, tx: Tx, ids: Sequence[str]) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order."""
        known = [job_id for job_id in dict.fromkeys(ids) if UUID.fullmatch(job_id) is not None]
        rows = {row[0]: row for row in await tx.rows(_LOCKED, [known])} if known else {}
        ending: dict[str, Waiting] = {}
        asked: list[str] = []
        verdicts = [self._cancel_one(tx, rows.get(job_id), ending, asked) for job_id in ids]
        if asked:
            await tx.run(_ASK, [tx.now, asked])
        await self.end_waiting(tx, list(ending.values()))
        return verdicts

    def _cancel_one(
        self, tx: Tx, row: Row | None, ending: dict[str, Waiting], asked: list[str]
    ) -> CancelVerdict:
        if row is None:
            return CancelVerdict.UNKNOWN
        number: int
        job_id, number, attempt, task, url, finished_at, marked = row
        if job_id in ending:
            return CancelVerdict.ALREADY
        state = STATES[number]
        if number in FINAL_NUMBERS:
            if self._keeping.gone_at(task, state, finished_at) <= tx.now:
                return CancelVerdict.UNKNOWN
            return CancelVerdict.ALREADY if number == CANCELLED else CancelVerdict.FINAL
        if number == RUNNING:
            asked.append(job_id)
            tx.news.cancels.add(task)
            return CancelVerdict.REQUESTED
        ending[job_id] = Waiting(job_id, task, State.CANCELLED, Event.CANCELLED, attempt, url, marked)
        return CancelVerdict.CANCELLED

    async def end_waiting(self, tx: Tx, ending: Sequence[Waiting]) -> None:
        """End waiting jobs that are locked."""
        if not ending:
            return
        errors = [error_bytes(settle.waiting_error(one.event, one.attempt)) for one in ending]
        states = [NUMBERS[one.state] for one in ending]
        asked = [one.event is Event.CANCELLED for one in ending]
        await tx.run(_END_WAITING, [tx.now, [one.job_id for one in ending], states, errors, asked])
        await owe(
            tx, [(one.job_id, one.callback_url, tx.now) for one in ending if one.callback_url is not None]
        )
        dropped = [one.job_id for one in ending if one.marked]
        if dropped:
            await tx.run(_DROP_CHECKPOINT_LINKS, [dropped])
        for one in ending:
            tx.news.changed(one.job_id, one.task, one.state)
            tx.news.work.add(one.task)  # another of its ordering key may go

    async def is_due(self, store: Store, now: float) -> bool:
        """Say whether there is something for `sweep` to do. Nearly always there is not: one statement, and no
        writer waits for it."""
        clock, at = store.clock(now)
        ((expires, due, lapses),) = await store.read(_DUE_NOW.format(clock=clock), at)
        return bool(expires or due or lapses)

    async def sweep(self, tx: Tx, *, limit: int) -> Sweep:
        """Do what time alone decides, at most `limit` jobs of each kind."""
        ((expires, due, lapses),) = await tx.rows(_DUE, [tx.now] * 3)
        expired = await self._expire(tx, limit) if expires else []
        promoted: list[str] = []
        if due:
            for _, job_id, task in sorted(await tx.rows(_PROMOTE, [tx.now, limit])):
                promoted.append(job_id)
                tx.news.changed(job_id, task, State.QUEUED)
        rows = await tx.rows(_OVERDUE, [tx.now, limit]) if lapses else []
        return Sweep(tuple(promoted), tuple(expired), tuple(lease_of(row) for row in rows))

    async def _expire(self, tx: Tx, limit: int) -> list[str]:
        ending: list[Waiting] = []
        for job_id, attempt, task, url, marked, expires_at, deadline_at, _ in await tx.rows(
            _EXPIRING, [tx.now, limit]
        ):
            event = settle.waiting_end(_timed(expires_at, deadline_at))
            ending.append(Waiting(job_id, task, State.EXPIRED, event, attempt, url, marked))
        await self.end_waiting(tx, ending)
        return [one.job_id for one in ending]


def _timed(expires_at: float | None, deadline_at: float | None) -> Job:
    return Job("", "", b"", 0.0, 0.0, expires_at=expires_at, deadline_at=deadline_at)


def _step_values(step: Transition, forced: bool) -> tuple[Any, ...]:
    error: JobError | None = step.error
    return (
        step.job_id,
        step.fence,
        forced,
        NUMBERS[step.state],
        step.state in FINAL,
        float(step.at),
        step.attempt,
        step.deaths,
        step.releases,
        step.suspect,
        float(step.ready_at),
        step.output,
        error_bytes(error),
        attempts_bytes(step.attempts),
        step.worker,
        step.checkpoint,
        step.degraded,
    )
