"""Dead letters: show, redrive one or many at a rate, delete. A redrive is a new job, linked both ways."""

from collections.abc import AsyncIterator

from fastapi import Request, Response

from forebay.core.admission import Rejected
from forebay.core.evidence import Cause, cause_of
from forebay.core.job import Job, JobRecord, Query, Verdict
from forebay.core.lifecycle import State
from forebay.core.task import TaskSpec
from forebay.core.units import rate_per_s
from forebay.errors import ForebayError, InvalidError, StateConflictError
from forebay.server.answer import Body
from forebay.server.asked import asked
from forebay.server.asking import query_of, require_json, shown, unknown_task
from forebay.server.asks import RedriveAsk
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.letter_views import RedriveList, RedriveView
from forebay.server.limits import HORIZON_S, LIST_LIMIT_MAX, REDRIVE_MAX
from forebay.server.pressure import Pressure
from forebay.server.quarantine import barred, may_force
from forebay.server.references import References, is_whole
from forebay.server.render import dead_letter_json
from forebay.server.routing import Param, Route, json_response, raw_json
from forebay.server.schema import compile_checks, refusal
from forebay.server.storing import count_receipts, record_of, written
from forebay.server.times import instant
from forebay.server.wire import payload_of

_LIMIT_DEFAULT = 1_000
_ASK_BYTES_MAX = 1024 * 1024
_IDS_MAX = 10_000
_CAUSES = [cause.value for cause in Cause]
_FORCE = (Param("force", "1: also of an input in quarantine (scope admin); it runs once"),)


class DeadLetters:
    """What to do about jobs that ended dead."""

    def __init__(self, front: Front, pressure: Pressure) -> None:
        self._front = front
        self._pressure = pressure

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        one, tag = "/v1/dead-letters/{job_id}", "dead letters"
        return (
            Route("POST", "/v1/dead-letters/redrive", self.redrive_many, "Redrive many, paced by `rate`", tag,
                  "RedriveList", (404, 415, 422), body="RedriveAsk"),
            Route("GET", one, self.show, "Show a dead letter", tag, "DeadLetterView", (404, 410)),
            Route("POST", one + "/redrive", self.redrive, "Redrive one as a new job", tag, "RedriveView",
                  (403, 404, 409, 410, 422, 429, 503), _FORCE),
            Route("PATCH", one, self.edit, "Keep another payload for its redrive", tag, "DeadLetterView",
                  (404, 409, 410, 413, 415, 422), body="EditAsk"),
            Route("DELETE", one, self.delete, "Remove a dead letter for good", tag, "RedriveView",
                  (404, 409, 410)),
        )  # fmt: skip

    async def show(self, request: Request) -> Response:
        """Answer one dead letter: payload, class of its end, attempts with what each left behind."""
        record = await self._dead(request)
        hidden = await self._hidden(record)
        return raw_json(dead_letter_json(record, hidden=hidden, now=self._front.clock.now()))

    async def edit(self, request: Request) -> Response:
        """Keep a payload for the redrive, checked as that of a submission is; the letter's own stays."""
        record = await self._dead(request)
        heads = dict(request.scope["headers"])
        require_json(heads)
        front, job = self._front, record.job
        text = await Body(request.receive, heads).read(front.settings.body_bytes_max)
        payload, value = payload_of(text)
        spec = front.tasks.get(job.task)
        if spec is None:
            raise unknown_task(job.task, front.tasks)
        references = References(front)
        found = references.found(text, value)
        check = compile_checks({job.task: spec})[job.task]
        if check is not None and not is_whole(found) and not check.is_valid(value):
            raise refusal(check, value)
        claimed = await references.claim(found, spec) if found else ()
        try:
            kept = await written(front, front.broker.edit(job.id, payload, now=front.clock.now()))
        finally:
            references.release(claimed)
        if not kept:
            raise StateConflictError("the job is no dead letter any more")
        front.log.info("dead_letter_edited", job_id=job.id, task=job.task)
        return await self.show(request)

    async def redrive(self, request: Request) -> Response:
        """Make one new job of a dead letter. A second call answers the same new job, `replayed`."""
        await _no_body_wanted(request)
        force = _forced(query_of(request.scope, frozenset({"force"})).get("force"))
        record = await self._dead(request)
        view = await self._redrive(record, delay_s=0.0, force=force)
        return json_response(view, 200, {"location": f"/v1/jobs/{view.redriven_as}"})

    async def redrive_many(self, request: Request) -> Response:
        """Make new jobs of many dead letters, oldest page last; `rate` spreads when they become ready."""
        ask = await self._ask(request)
        rate = _rate(ask.rate)
        if ask.force:
            may_force()
        items: list[RedriveView] = []
        redriven = 0
        async for job_id, record in self._asked_for(ask):
            try:
                if record is None:
                    record = await record_of(self._front, job_id, now=self._front.clock.now())
                delay_s = 0.0 if rate is None else redriven / rate
                made = await self._redrive(record, delay_s=delay_s, force=ask.force)
            except ForebayError as error:
                items.append(RedriveView(job_id, code=error.code, detail=str(error)))
                if error.status in {429, 503, 507}:
                    break
            else:
                items.append(made)
                redriven += not made.replayed
        self._front.log.info("dead_letters_redriven", count=redriven, asked=len(items))
        return json_response(RedriveList(items, redriven))

    async def delete(self, request: Request) -> Response:
        """Remove one dead letter before its retention ends."""
        record = await self._dead(request)
        now = self._front.clock.now()
        await written(self._front, self._front.broker.purge([record.job.id], limit=1, now=now))
        self._front.log.info("dead_letter_deleted", job_id=record.job.id, task=record.job.task)
        return json_response(RedriveView(record.job.id))

    async def _hidden(self, record: JobRecord) -> frozenset[str]:
        """Return the mates whose jobs do not exist for who asks; bounded by what attempts keep."""
        if caller().own is None:
            return frozenset()
        now, hidden = self._front.clock.now(), set[str]()
        for mate in {mate for ended in record.standing.attempts for mate in ended.mates}:
            other = await self._front.broker.get(mate, now=now)
            if other is None or not caller().sees(other.job.tenant):
                hidden.add(mate)
        return frozenset(hidden)

    async def _dead(self, request: Request) -> JobRecord:
        record = await record_of(self._front, request.path_params["job_id"], now=self._front.clock.now())
        _must_be_dead(record)
        return record

    async def _redrive(self, record: JobRecord, *, delay_s: float, force: bool) -> RedriveView:
        _must_be_dead(record)
        task = record.job.task
        if task not in self._front.tasks:
            raise unknown_task(task, self._front.tasks)
        if record.redriven_as is not None:
            return RedriveView(record.job.id, redriven_as=record.redriven_as, replayed=True)
        now, spec = self._front.clock.now(), self._front.tasks[task]
        job = _mended(record)
        refused = None if force else barred(self._front, _of_today(job, spec), now=now)
        if refused is not None:
            self._front.meters.for_task(task).refused(refused.code, 1)
            raise refused
        verdict = self._pressure.admit(task, jobs=1, size_b=job.size, now=now)
        if isinstance(verdict, Rejected):
            raise self._pressure.refusal(verdict, task, now=now)
        job = _successor(job, self._front.broker.new_id(now), now=now, run_at=now + delay_s)
        job = _of_today(job, spec)
        receipt = await written(self._front, self._front.broker.redrive(record.job.id, job, now=now))
        if receipt is None or receipt.verdict is Verdict.CONFLICT:
            raise StateConflictError("the job is no dead letter any more")
        count_receipts(self._front, (job,), (receipt,), now=self._front.clock.now())
        replayed = receipt.verdict is Verdict.REPLAYED or None
        return RedriveView(record.job.id, redriven_as=receipt.job_id, replayed=replayed)

    async def _ask(self, request: Request) -> RedriveAsk:
        ask = await asked(request, RedriveAsk, rule="a redrive request", bytes_max=_ASK_BYTES_MAX)
        _check_which(ask)
        if ask.task is not None and ask.task not in self._front.tasks:
            raise unknown_task(ask.task, self._front.tasks)
        if ask.ids is not None and len(ask.ids) > _IDS_MAX:
            rule = f"must be at most {_IDS_MAX}, not {len(ask.ids)}"
            raise InvalidError(f"ids {rule}", limit=_IDS_MAX, errors=(("ids", rule),))
        if ask.limit is not None and not 1 <= ask.limit <= REDRIVE_MAX:
            rule = f"must be from 1 to {REDRIVE_MAX}, not {ask.limit}"
            raise InvalidError(f"limit {rule}", errors=(("limit", rule),))
        return ask

    async def _asked_for(self, ask: RedriveAsk) -> AsyncIterator[tuple[str, JobRecord | None]]:
        """Yield the dead letters meant: the named ones, else those of the task not redriven before."""
        left = ask.limit or _LIMIT_DEFAULT
        if ask.ids is not None:
            for job_id in ask.ids[:left]:
                yield job_id, None
            return
        since = None if ask.since is None else instant(ask.since)
        after: str | None = None
        dead = frozenset({State.DEAD})
        while left > 0:
            query = Query(limit=LIST_LIMIT_MAX, after=after, task=ask.task, states=dead, tenant=caller().own)
            page = await self._front.broker.find(query, now=self._front.clock.now())
            for record in page.records:
                if record.redriven_as is None and left > 0 and _is_meant(record, ask.cause, since):
                    left -= 1
                    yield record.job.id, record
            after = page.next_after
            if after is None:
                return


def _check_which(ask: RedriveAsk) -> None:
    if ask.task is None and ask.ids is None and ask.cause is None and ask.since is None:
        raise InvalidError("say which: task or ids", errors=(("task", "task or ids is required"),))
    if ask.cause is not None and ask.cause not in _CAUSES:
        rule = f"must be one of {', '.join(_CAUSES)}, not {shown(ask.cause)}"
        raise InvalidError(f"cause {rule}", errors=(("cause", rule),))
    if ask.ids is not None and (ask.cause is not None or ask.since is not None):
        raise InvalidError("ids: give them alone", errors=(("ids", "not beside cause or since"),))
    if ask.since is not None:
        try:
            instant(ask.since)
        except ValueError as error:
            rule = f"must be {error}, not {shown(ask.since)}"
            raise InvalidError(f"since {rule}", errors=(("since", rule),)) from None


def _is_meant(record: JobRecord, cause: str | None, since: float | None) -> bool:
    if cause is not None and cause_of(record.job, record.standing).value != cause:
        return False
    return since is None or (record.standing.finished_at or 0.0) >= since


def _must_be_dead(record: JobRecord) -> None:
    if record.standing.state is not State.DEAD:
        raise StateConflictError(f"the job is {record.standing.state.value}, not a dead letter")


def _mended(record: JobRecord) -> Job:
    """Return the job as a redrive takes it: with the payload that was put in place of its own. Who submitted
    the other one is not answered with this one."""
    if record.edited is None:
        return record.job
    return record.job._replace(payload=record.edited, fingerprint=None)


def _successor(dead: Job, job_id: str, *, now: float, run_at: float) -> Job:
    """Return the new job: the same work, with the same spans counted from now and no idempotency key."""
    ttl_s = None if dead.expires_at is None else dead.expires_at - max(dead.created_at, dead.run_at)
    span_s = None if dead.deadline_at is None else dead.deadline_at - dead.created_at
    return dead._replace(
        id=job_id,
        created_at=now,
        run_at=run_at,
        expires_at=None if ttl_s is None else run_at + ttl_s,
        deadline_at=None if span_s is None else run_at + span_s,
        idempotency_key=None,
        body_hash=b"",
        redriven_from=dead.id,
    )


def _of_today(job: Job, spec: TaskSpec) -> Job:
    """Return the job as one of the version that is served: that is who runs it."""
    if job.version == spec.version:
        return job
    return job._replace(version=spec.version, fingerprint=None)


def _rate(value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        rate = rate_per_s(value)
    except ValueError as error:
        raise InvalidError(f"rate: {error}", errors=(("rate", str(error)),)) from None
    if REDRIVE_MAX / rate > HORIZON_S:
        raise InvalidError("rate: too slow", errors=(("rate", "too slow"),))
    return rate


def _forced(value: str | None) -> bool:
    if value not in {None, "0", "1", "false", "true"}:
        raise InvalidError(f"force must be 0 or 1, not {shown(value)}", errors=(("force", "must be 0 or 1"),))
    if value in {"1", "true"}:
        may_force()
    return value in {"1", "true"}


async def _no_body_wanted(request: Request) -> None:
    await Body(request.receive, dict(request.scope["headers"])).read(1024)
