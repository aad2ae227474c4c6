"""Cron entries: what is submitted again and again, what a store remembers of it, and what is due now."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from forebay.core.due import Timetable
from forebay.core.job import Job, Receipt

ENTRIES_MAX: Final = 1_000  # of one application
LATE_S: Final = 60.0  # a run that begins this late was missed
MARK_KEPT_S: Final = 30 * 86_400.0  # of an entry that is no longer declared, behind what it was due last
MISSED: Final = ("once", "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronEntry:
    """One declared entry. Either `every_s` or `cron` says when."""

    name: str
    task: str
    payload: bytes = b"null"  # JSON text
    every_s: int | None = None
    cron: str = ""  # five fields
    tz: str = "UTC"
    priority: int | None = None  # None: that of the task
    tenant: str = ""
    missed: str = "once"  # what becomes of a run that nobody was there for: once, when somebody is; or skip
    overlap: bool = True  # False: none while the last one is open
    jitter_s: float = 0.0  # a run begins up to so much later, always the same for one due instant

    @property
    def when(self) -> str:
        """The timetable as a text: an entry with another one is a new entry as to what it missed."""
        return f"every {self.every_s} s" if self.every_s is not None else f"{self.cron} {self.tz}"


class Skipped(str, Enum):
    """Why a due instant has no job."""

    NEW = "new"  # the entry, or its timetable, is younger
    MISSED = "missed"  # nobody was there, and the entry says skip
    OVERLAP = "overlap"  # the job before it was open
    PAUSED = "paused"


class CronMark(NamedTuple):
    """How far a store has come with one entry."""

    name: str
    when: str  # `when` of the entry as it was then
    due_at: float  # everything due up to this instant is dealt with
    paused: bool = False
    job_id: str | None = None  # the last job
    job_due_at: float | None = None  # and the instant it was due
    skipped: str = ""  # why the newest instant has no job; empty when it has one


class CronBook(Protocol):
    """What a store of jobs keeps of cron entries. `now` as in core.book.Book."""

    def marks(self) -> list[CronMark]:
        """Return what is known of every entry ever seen, by name."""
        ...

    def fire(
        self, name: str, due_at: float, job: Job | None, *, when: str, skipped: str = "", now: float
    ) -> Receipt | None:
        """Deal with one due instant of an entry: store its job, or None and why; in the same step move its
        mark to `due_at`. Returns the receipt of the job.

        None, and nothing is stored, when the mark is there already or past it, when the entry is paused and
        `job` is not None, or when `skipped` is NEW and there is a mark with the same `when`. The job is
        stored as `enqueue` would; the mark moves also when that answers that the idempotency key is known,
        and names the job that has it.
        """
        ...

    def forget(self, names: Sequence[str], *, now: float) -> int:
        """Remove the marks of entries; return how many there were. One that comes again is new."""
        ...

    def steer(self, name: str, *, paused: bool, now: float) -> CronMark:
        """Pause an entry or let it go on, and return its mark. Going on after a pause sets the mark to `now`:
        what was due meanwhile is not made up for. It also sets back a mark that a wrong clock left ahead.
        """
        ...


def outlived(marks: Iterable[CronMark], declared: Collection[str], *, now: float) -> list[str]:
    """Return the names of the entries whose marks nobody needs: gone from the application for MARK_KEPT_S.

    Those that are paused stay: that somebody said so is known from nowhere else.
    """
    return [
        mark.name
        for mark in marks
        if mark.name not in declared and not mark.paused and mark.due_at <= now - MARK_KEPT_S
    ]


def is_dealt_with(mark: CronMark | None, due_at: float, job: Job | None, *, when: str, skipped: str) -> bool:
    """Say whether nothing is to be done any more about a due instant, or not while the entry is paused."""
    if mark is None:
        return False
    if mark.due_at >= due_at or (mark.paused and job is not None):
        return True
    return skipped == Skipped.NEW.value and mark.when == when


def moved(
    mark: CronMark | None, name: str, due_at: float, receipt: Receipt | None, *, when: str, skipped: str
) -> CronMark:
    """Return the mark behind a due instant that got a job, or has none for a reason."""
    mark = (mark or CronMark(name, when, due_at))._replace(when=when, due_at=due_at, skipped=skipped)
    if receipt is None:
        return mark
    return mark._replace(job_id=receipt.job_id, job_due_at=due_at, skipped="")


def steered(mark: CronMark, paused: bool, now: float) -> CronMark:
    """Return the mark of an entry that is paused, or goes on, at `now`."""
    if paused:
        return mark._replace(paused=True)
    if mark.paused:
        return mark._replace(paused=False, due_at=now, skipped=Skipped.PAUSED.value)
    return mark._replace(due_at=min(mark.due_at, now))


class Turn(NamedTuple):
    """What to do about an entry. With `due_at` None: nothing before `look_at`."""

    due_at: float | None
    skipped: Skipped | None  # None: submit its job
    look_at: float | None  # when to ask again; None: nothing will ever be due


def turn(entry: CronEntry, timetable: Timetable, mark: CronMark, *, now: float) -> Turn:
    """Return what is to be done now. Of several instants that nobody was there for the last one counts.

    An instant counts as missed from LATE_S after its begin. Nothing is due before a mark that lies ahead:
    a clock that was set back runs nothing twice.
    """
    due_at = timetable.latest(now)
    if due_at is not None and begins_at(entry, due_at) > now:
        begin = begins_at(entry, due_at)
        before = timetable.latest(due_at - 1)
        if before is None or before <= mark.due_at:
            return Turn(None, None, begin if due_at > mark.due_at else _next(entry, timetable, mark, now))
        due_at = before
    if mark.paused or due_at is None or due_at <= mark.due_at:
        return Turn(None, None, _next(entry, timetable, mark, now))
    if entry.missed == "skip" and now - begins_at(entry, due_at) > LATE_S:
        return Turn(due_at, Skipped.MISSED, None)
    return Turn(due_at, None, None)


def begins_at(entry: CronEntry, due_at: float) -> float:
    """Return when the run of a due instant begins: at most `jitter_s` later. The same on every server."""
    if entry.jitter_s <= 0:
        return due_at
    drawn = blake2b(f"{entry.name}\0{due_at:.0f}".encode(), digest_size=7).digest()
    return due_at + entry.jitter_s * (int.from_bytes(drawn) / (1 << 56))


def next_begin(entry: CronEntry, timetable: Timetable, mark: CronMark, *, now: float) -> float | None:
    """Return when the next run begins, None while the entry is paused or when nothing is ever due."""
    return None if mark.paused else _next(entry, timetable, mark, now)


def _next(entry: CronEntry, timetable: Timetable, mark: CronMark, now: float) -> float | None:
    begun = timetable.latest(now)
    if begun is not None and begun > mark.due_at and begins_at(entry, begun) > now:
        return begins_at(entry, begun)
    due_at = timetable.next_after(max(now, mark.due_at))
    return None if due_at is None else begins_at(entry, due_at)
