"""Endings: renewals, transitions, cancels and what time alone decides, while their fence is current."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from forebay.brokers.redis.deadly import Deadly
from forebay.brokers.redis.grants import Grants
from forebay.brokers.redis.rows import flat, lease_of, record_of
from forebay.brokers.redis.store import STALE_TRIES_MAX, Tx
from forebay.brokers.shared.states import NUMBERS
from forebay.core import settle
from forebay.core.blobs import named
from forebay.core.job import CancelVerdict, Claim, Hold, Sweep, Transition
from forebay.core.lifecycle import FINAL, Event, State
from forebay.errors import StoreUnavailableError
from forebay.packed import attempts_bytes, error_bytes

_HOLDS: Final = {b"h": Hold.HELD, b"c": Hold.CANCEL, b"l": Hold.LOST}


class Endings:
    """Applies what was decided. Decides nothing but who comes too late."""

    def __init__(self, grants: Grants, deadly: Deadly) -> None:
        self._grants = grants
        self._deadly = deadly

    async def extend(self, tx: Tx, claims: Sequence[Claim], *, lease_s: float) -> list[Hold]:
        """Renew leases and store progress; answer in order."""
        if not claims:
            return []
        asked = [
            (one.job_id, one.fence, one.progress, one.checkpoint, _blobs(one.checkpoint)) for one in claims
        ]
        holds = [_HOLDS[one] for one in await tx.run("extend", claims=asked, lease=float(lease_s))]
        for claim, hold in zip(claims, holds, strict=True):
            if hold is Hold.LOST:
                self._grants.granted.drop(claim.job_id)
        return holds

    async def commit(self, tx: Tx, transitions: Sequence[Transition]) -> list[bool]:
        """Apply each transition whose fence is current and whose job is running; answer in order."""
        applied: list[bool] = []
        for part in _parts(transitions):
            applied += await self._commit_part(tx, part)
        return applied

    async def _commit_part(self, tx: Tx, part: Sequence[Transition]) -> list[bool]:
        answers = await self._apply(tx, part, forced=False)
        applied: list[bool] = []
        for step, answer in zip(part, answers, strict=True):
            now_is, cancelled = step, answer[0] == b"?"
            if cancelled:
                lease = lease_of((step.job_id.encode(), answer[1]))
                now_is = settle.cancelled_instead(step, lease) if lease.fence == step.fence else step
                (answer,) = await self._apply(tx, [now_is], forced=True)
            applied.append(answer[0] == b"1")
            if applied[-1]:
                self._tell(tx, now_is, answer, as_asked=not cancelled)
        return applied

    async def _apply(self, tx: Tx, steps: Sequence[Transition], *, forced: bool) -> Sequence[Any]:
        """Return what the script answers. What a step says of its input is decided before, and anew where
        another server has changed what is known of inputs."""
        for _ in range(STALE_TRIES_MAX):
            changes: list[Any] = []
            asked = [_asked(step, forced) for step in steps]
            if steps[0].charge is not None:  # such a one comes alone
                changes = await self._charges(tx, steps[0])
                asked[0]["deadly"] = self._deadly.rows(changes)
            answers = await tx.run("commit", steps=asked, dv=self._deadly.version)
            if answers != b"stale":
                if changes and answers[0][0] == b"1":
                    self._deadly.took(tx, changes)
                return list(answers)
            await self._deadly.refresh(tx)
        raise StoreUnavailableError(
            "too many servers change what is known of deadly inputs", retry_after_s=1.0
        )

    async def _charges(self, tx: Tx, step: Transition) -> list[Any]:
        assert step.charge is not None
        _, (found,) = await tx.read("get", ids=[step.job_id])
        if not found:
            return []
        return self._deadly.inputs.charged(record_of(found).job, step.charge, at=step.at)

    def _tell(self, tx: Tx, step: Transition, answer: Sequence[Any], *, as_asked: bool) -> None:
        task, tenant, priority = answer[1].decode(), answer[2].decode(), int(answer[3])
        started_at = float(answer[4])
        self._grants.settled(task, step.job_id, step.event, step.at - (started_at + tx.skew_s))
        settled = self._grants.granted.settled(step, started_at)
        told = settled if step.state in FINAL and as_asked else None  # another than its holder knew
        tx.news.changed(step.job_id, task, step.state, told)
        if answer[5] == b"1":
            tx.news.work.add(task)
        if self._grants.frees(task, tenant, priority):
            tx.news.ready(self._grants.freed(task, tenant))

    async def cancel(self, tx: Tx, ids: Sequence[str]) -> list[CancelVerdict]:
        """Cancel waiting jobs at once and ask the holders of running ones; answer in order."""
        if not ids:
            return []
        verdicts: list[CancelVerdict] = []
        answers = await tx.run("cancel", ids=list(ids), event=Event.CANCELLED.value)
        for job_id, (verdict, *task) in zip(ids, answers, strict=True):
            verdicts.append(CancelVerdict(verdict.decode()))
            if verdicts[-1] is CancelVerdict.REQUESTED:
                tx.news.cancels.add(task[0].decode())
            elif verdicts[-1] is CancelVerdict.CANCELLED:
                self._ended(tx, job_id, task[0].decode(), State.CANCELLED)
        return verdicts

    async def sweep(self, tx: Tx, *, limit: int) -> Sweep:
        """Do what time alone decides, at most `limit` jobs of each kind."""
        expired, promoted, overdue = await tx.run(
            "sweep", limit=max(0, limit), ttl=Event.TTL_PASSED.value, deadline=Event.DEADLINE_PASSED.value
        )
        for job_id, task in expired:
            self._ended(tx, job_id.decode(), task.decode(), State.EXPIRED)
        for job_id, task in promoted:
            tx.news.changed(job_id.decode(), task.decode(), State.QUEUED)
        return Sweep(
            tuple(job_id.decode() for job_id, _ in promoted),
            tuple(job_id.decode() for job_id, _ in expired),
            tuple(lease_of(row) for row in overdue),
        )

    def _ended(self, tx: Tx, job_id: str, task: str, state: State) -> None:
        tx.news.changed(job_id, task, state)
        tx.news.work.add(task)  # another of its ordering key may go


def _parts(transitions: Sequence[Transition]) -> Iterator[list[Transition]]:
    """Yield transitions in order: those that say something of their input alone, the others together."""
    part: list[Transition] = []
    for step in transitions:
        if step.charge is None:
            part.append(step)
            continue
        if part:
            yield part
        yield [step]
        part = []
    if part:
        yield part


def _asked(step: Transition, forced: bool) -> dict[str, Any]:
    final = step.state in FINAL
    fields = [
        (b"att", step.attempt),
        (b"deaths", step.deaths),
        (b"rel", step.releases),
        (b"susp", step.suspect),
        (b"ready", None if final else float(step.ready_at)),
        (b"out", step.output),
        (b"err", error_bytes(step.error)),
        (b"atts", attempts_bytes(step.attempts)),
        (b"worker", step.worker or None),
        (b"deg", step.degraded),
    ]
    return {
        "id": step.job_id,
        "fence": step.fence,
        "forced": forced,
        "st": str(NUMBERS[step.state]),
        "at": float(step.at),
        "set": flat(fields),
        "chk": step.checkpoint,
        "chk_blobs": _blobs(step.checkpoint),
        "output_blobs": _blobs(step.output),
    }


def _blobs(text: bytes | None) -> list[str]:
    return list(named(text))
