"""Runner: looks at every entry when something of it is due, and has the store deal with the instant."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final, Protocol

import msgspec

from forebay.core.crons import CronEntry, CronMark, Skipped, next_begin, outlived, turn
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import FINAL
from forebay.core.task import TaskSpec
from forebay.crons.zone import timetable_of
from forebay.errors import StoreBrokenError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

LOOK_S: Final = 1.0  # the longest between two looks: somebody may pause an entry on another server
REFUSED_WAIT_S: Final = 5.0  # until a run that the queue had no room for is tried again
FAILURE_WAIT_S: Final = 1.0
AHEAD_S: Final = 3_600.0  # a mark so far ahead was left by a clock that was wrong


class TaskMeter(Protocol):
    """The counters of one task."""

    def arrived(self, count: int) -> None:
        """Count submissions."""
        ...

    def admitted(self, count: int) -> None:
        """Count submissions that became jobs."""
        ...


class Meters(Protocol):
    """What counts."""

    def for_task(self, task: str) -> TaskMeter:
        """Return the meter of a served task."""
        ...

    def cron_turned(self, entry: str, outcome: str) -> None:
        """Count a due instant of an entry by what became of it."""
        ...


class Log(Protocol):
    """Where it is said."""

    def info(self, event: str, **fields: object) -> object:
        """Say something that is as it should be."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Say something that somebody should look at."""
        ...


@dataclass(slots=True, kw_only=True)
class CronTerms:
    """What a runner goes by."""

    tasks: Mapping[str, TaskSpec]
    bounds: Mapping[str, tuple[int, int]]  # jobs and bytes that one task may hold
    meters: Meters
    log: Log


class Runner:
    """One loop over the entries of an application. Several runners on one store do no harm: marks decide."""

    def __init__(self, entries: Sequence[CronEntry], broker: Broker, clock: Clock, terms: CronTerms) -> None:
        self.entries: dict[str, CronEntry] = {entry.name: entry for entry in entries}
        self._timetables = {entry.name: timetable_of(entry) for entry in entries}
        self._broker = broker
        self._clock = clock
        self._terms = terms
        self._looks: dict[str, tuple[CronMark, float]] = {}  # nothing to do before, while the mark stands
        self._refused: dict[str, tuple[str, float]] = {}  # why, and what is due: it waits, and was told
        self._begun = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; without entries, only to forget those that were."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Submit nothing more; twice is harmless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def next_begin(self, entry: CronEntry, mark: CronMark | None, *, now: float) -> float | None:
        """Return when the next run of an entry begins, None while it is paused or never."""
        mark = mark or CronMark(entry.name, entry.when, now)
        return next_begin(entry, self._timetables[entry.name], mark, now=now)

    def waits_for(self, entry: CronEntry, mark: CronMark | None) -> str | None:
        """Return why the newest due instant still waits for its job: `queue_full`, `bytes_full`, `draining`
        or `quarantined`; None when none waits."""
        why, due_at = self._refused.get(entry.name, (None, 0.0))
        waits = mark is None or (mark.due_at < due_at and not mark.paused)
        return why if waits else None

    async def tick(self) -> float:
        """Deal with everything that is due now; return the seconds until the next look."""
        marks = {mark.name: mark for mark in await self._broker.crons.marks()}
        wait_s = LOOK_S
        for entry in self.entries.values():
            mark = marks.get(entry.name)
            if mark is None or (mark.when != entry.when and not self._begun):
                mark = await self._baseline(entry, mark)
            at = await self._look(entry, mark)
            wait_s = min(wait_s, at - self._clock.now())
        self._begun = True
        await self._forget(marks.values())
        return max(0.0, wait_s)

    async def _forget(self, marks: Iterable[CronMark]) -> None:
        """Remove what is remembered of entries that have been gone from the application for long."""
        now = self._clock.now()
        names = outlived(marks, self.entries, now=now)
        if names:
            await self._broker.crons.forget(names, now=now)
            self._terms.log.info("cron_marks_forgotten", crons=names)

    async def _run(self) -> None:
        while True:
            try:
                wait_s = await self.tick()
                if not self.entries:
                    return
            except StoreBrokenError:
                return  # the process is about to end
            except Exception as error:  # one entry's trouble must not be the silent end of all
                self._terms.log.warning("crons_not_looked_at", error=f"{type(error).__name__}: {error}")
                wait_s = FAILURE_WAIT_S
            await self._clock.sleep(wait_s)

    async def _baseline(self, entry: CronEntry, mark: CronMark | None) -> CronMark:
        """Let an entry count from now on: what a new timetable was due before was not missed."""
        now, crons = self._clock.now(), self._broker.crons
        await crons.fire(entry.name, now, None, when=entry.when, skipped=Skipped.NEW.value, now=now)
        return next((one for one in await crons.marks() if one.name == entry.name), mark) or CronMark(
            entry.name, entry.when, now
        )

    async def _look(self, entry: CronEntry, mark: CronMark) -> float:
        """Do what is to be done about one entry; return when to look again."""
        now = self._clock.now()
        known = self._looks.get(entry.name)
        if known is not None and known[0] == mark and now < known[1]:
            return known[1]
        if not self._begun and mark.due_at > now + AHEAD_S:
            hint = f"forebay crons resume {entry.name}"
            self._terms.log.warning("cron_mark_ahead", cron=entry.name, until=_stamp(mark.due_at), hint=hint)
        step = turn(entry, self._timetables[entry.name], mark, now=now)
        if step.due_at is None:
            at = now + LOOK_S if step.look_at is None else step.look_at
            self._looks[entry.name] = (mark, at)
            return at
        skipped = step.skipped
        if skipped is None and not entry.overlap and await self._is_open(mark, now):
            skipped = Skipped.OVERLAP
        if skipped is None:
            return await self._submit(entry, step.due_at, now)
        await self._skip(entry, step.due_at, skipped, now)
        return now

    async def _is_open(self, mark: CronMark, now: float) -> bool:
        last = None if mark.job_id is None else await self._broker.get(mark.job_id, now=now)
        return last is not None and last.standing.state not in FINAL

    async def _skip(self, entry: CronEntry, due_at: float, why: Skipped, now: float) -> None:
        await self._broker.crons.fire(entry.name, due_at, None, when=entry.when, skipped=why.value, now=now)
        self._terms.meters.cron_turned(entry.name, why.value)
        self._terms.log.info("cron_skipped", cron=entry.name, due_at=_stamp(due_at), reason=why.value)

    async def _submit(self, entry: CronEntry, due_at: float, now: float) -> float:
        """Store the job of a due instant; return when to look again."""
        terms = self._terms
        job = self._job(entry, due_at, now)
        why = await self._refusal(entry, now) or self._quarantined(job, now)
        if why is not None:
            terms.meters.cron_turned(entry.name, "refused")
            known = entry.name in self._refused
            self._refused[entry.name] = (why, due_at)
            if not known:
                terms.log.warning("cron_refused", cron=entry.name, due_at=_stamp(due_at), reason=why)
            return now + REFUSED_WAIT_S
        self._refused.pop(entry.name, None)
        receipt = await self._broker.crons.fire(entry.name, due_at, job, when=entry.when, now=now)
        if receipt is not None:
            self._tell(entry, due_at, receipt)
        return now

    async def _refusal(self, entry: CronEntry, now: float) -> str | None:
        """Return why the queue takes no job now, by the bounds that hold for everybody."""
        load = self._broker.load_now(entry.task, now=now) or await self._broker.depth(entry.task, now=now)
        jobs_max, bytes_max = self._terms.bounds[entry.task]
        if load.draining:
            return "draining"
        if load.open >= jobs_max:
            return "queue_full"
        return "bytes_full" if load.bytes + len(entry.payload) > bytes_max else None

    def _quarantined(self, job: Job, now: float) -> str | None:
        spared = not self._terms.tasks[job.task].settle.condemns_at
        return None if spared or self._broker.quarantine.held(job, now=now) is None else "quarantined"

    def _job(self, entry: CronEntry, due_at: float, now: float) -> Job:
        spec, due = self._terms.tasks[entry.task], _stamp(due_at)
        return Job(
            self._broker.new_id(now),
            entry.task,
            entry.payload,
            now,
            now,
            spec.priority if entry.priority is None else entry.priority,
            spec.attempts_max,
            now + spec.ttl_s,
            None if spec.deadline_s is None else now + spec.deadline_s,
            entry.tenant,
            f"cron:{entry.name}:{due}",
            blake2b(entry.payload, digest_size=16).digest(),
            msgspec.json.encode({"cron": entry.name, "due_at": due}),
            version=spec.version,
        )

    def _tell(self, entry: CronEntry, due_at: float, receipt: Receipt) -> None:
        terms, stored = self._terms, receipt.verdict is Verdict.STORED
        terms.meters.cron_turned(entry.name, "submitted" if stored else receipt.verdict.value)
        if stored:
            meter = terms.meters.for_task(entry.task)
            meter.arrived(1)
            meter.admitted(1)
            terms.log.info("cron_submitted", cron=entry.name, due_at=_stamp(due_at), job_id=receipt.job_id)
        else:  # the store lost its mark, or somebody submitted with this very key
            terms.log.warning("cron_key_taken", cron=entry.name, due_at=_stamp(due_at), job_id=receipt.job_id)


def _stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(int(at), UTC).isoformat()[:19]}Z"
