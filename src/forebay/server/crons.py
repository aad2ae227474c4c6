"""GET /v1/crons, and pause and resume of one entry."""

from collections.abc import Collection

import msgspec
from fastapi import Request, Response

from forebay.core.crons import CronEntry, CronMark
from forebay.core.lifecycle import STATUS
from forebay.errors import AppError, NotFoundError
from forebay.keys import tenant_of
from forebay.server.asking import nearest
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.routing import Route, json_response
from forebay.server.schema import compile_checks, refusal
from forebay.server.storing import written
from forebay.server.times import stamp


class CronView(msgspec.Struct):
    """A cron entry. `next_run_at` is null while it is paused, and when it is never due again; `skipped` says
    why the newest due instant has no job: new, missed, overlap or paused; or, while it waits for one, what
    refuses it: queue_full, bytes_full, draining or quarantined."""

    cron: str
    task: str
    schedule: str
    time_zone: str | None
    missed: str
    overlap: bool
    jitter_s: float
    priority: int | None
    tenant: str
    paused: bool
    next_run_at: str | None
    last_run_at: str | None
    last_job_id: str | None
    last_status: str | None
    skipped: str | None


class CronList(msgspec.Struct):
    """All entries, in the order of their declaration."""

    items: list[CronView]
    next_cursor: str | None = None


VIEWS = (CronView, CronList)


class CronDesk:
    """What the application has submitted again and again."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._entries = {} if front.crons is None else dict(front.crons.entries)
        _check(front, self._entries.values())

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        one, tag = "/v1/crons/{cron}", "crons"
        return (
            Route("GET", "/v1/crons", self.crons, "List cron entries", tag, "CronList"),
            Route("POST", one + "/pause", self.pause, "Submit nothing of an entry", tag, "CronView", (404,)),
            Route("POST", one + "/resume", self.resume, "Go on from now", tag, "CronView", (404,)),
        )

    async def crons(self, request: Request) -> Response:
        """Answer the entries that the caller may see."""
        marks = {mark.name: mark for mark in await self._front.broker.crons.marks()}
        seen = [entry for entry in self._entries.values() if caller().sees(entry.tenant)]
        return json_response(CronList([await self._view(entry, marks.get(entry.name)) for entry in seen]))

    async def pause(self, request: Request) -> Response:
        """Submit nothing of one entry until it is resumed, durably."""
        return await self._steer(request, paused=True)

    async def resume(self, request: Request) -> Response:
        """Let one entry go on from now, durably."""
        return await self._steer(request, paused=False)

    async def _steer(self, request: Request, *, paused: bool) -> Response:
        front, name = self._front, request.path_params["cron"]
        entry = self._entries.get(name)
        if entry is None or not caller().sees(entry.tenant):
            seen = [one.name for one in self._entries.values() if caller().sees(one.tenant)]
            raise NotFoundError(f"there is no such cron entry{nearest(name, seen)}")
        steering = front.broker.crons.steer(name, paused=paused, now=front.clock.now())
        mark = await written(front, steering)
        front.log.info("cron_paused" if paused else "cron_resumed", cron=name)
        return json_response(await self._view(entry, mark))

    async def _view(self, entry: CronEntry, mark: CronMark | None) -> CronView:
        front, now = self._front, self._front.clock.now()
        assert front.crons is not None
        next_at = front.crons.next_begin(entry, mark, now=now)
        job_id = None if mark is None else mark.job_id
        last = None if job_id is None else await front.broker.get(job_id, now=now)
        ran_at = None if mark is None else mark.job_due_at
        return CronView(
            cron=entry.name,
            task=entry.task,
            schedule=entry.cron or f"every {entry.every_s} s",
            time_zone=entry.tz if entry.cron else None,
            missed=entry.missed,
            overlap=entry.overlap,
            jitter_s=entry.jitter_s,
            priority=entry.priority,
            tenant=entry.tenant,
            paused=mark is not None and mark.paused,
            next_run_at=None if next_at is None else stamp(next_at),
            last_run_at=None if ran_at is None else stamp(ran_at),
            last_job_id=job_id,
            last_status=None if last is None else STATUS[last.standing.state],
            skipped=front.crons.waits_for(entry, mark) or (None if mark is None else mark.skipped or None),
        )


def _check(front: Front, entries: Collection[CronEntry]) -> None:
    """Refuse, at the start, entries whose jobs the door would refuse. Raises AppError with one line."""
    checks = compile_checks({entry.task: front.tasks[entry.task] for entry in entries})
    for entry in entries:
        where = f"cron entry {entry.name}"
        if entry.tenant:
            try:
                tenant_of(entry.tenant)
            except ValueError as error:
                raise AppError(f"{where}: {error}, not {entry.tenant[:60]!r}") from None
        check, payload = checks[entry.task], msgspec.json.decode(entry.payload)
        if check is not None and not check.is_valid(payload):
            raise AppError(f"{where}: {refusal(check, payload)}")
