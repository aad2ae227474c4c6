"""PATCH /v1/jobs/{id}: another priority, or another task, for a job that waits."""

from collections.abc import Mapping

import msgspec

from forebay.core.admission import Rejected
from forebay.core.job import Amendment, AmendVerdict, JobRecord
from forebay.core.lifecycle import WAITING
from forebay.errors import InvalidError, StateConflictError
from forebay.server.answer import JSON, NO_STORE, Body, Send, answer
from forebay.server.asked import decoded
from forebay.server.asking import Heads, Scope, query_of, require_json, unknown_task
from forebay.server.asks import AmendAsk
from forebay.server.eta import place
from forebay.server.front import Front
from forebay.server.pressure import Pressure
from forebay.server.render import etag, job_json
from forebay.server.schema import Check, refusal
from forebay.server.storing import record_of, written
from forebay.server.wire import priority_of

_ASK_BYTES_MAX = 16 * 1024
_NOTHING: frozenset[str] = frozenset()


class Amender:
    """Changes where a waiting job stands."""

    def __init__(self, front: Front, pressure: Pressure, checks: Mapping[str, Check | None]) -> None:
        self._front = front
        self._pressure = pressure
        self._checks = checks

    async def amend(self, job_id: str, scope: Scope, heads: Heads, body: Body, send: Send) -> None:
        """Answer the job as it is then. 409 once it runs or has ended, 422 when the other task does not
        take its payload, 429 when that task's queue is full; nothing has changed then."""
        if scope["query_string"]:
            query_of(scope, _NOTHING)
        require_json(heads)
        ask = decoded(await body.read(_ASK_BYTES_MAX), AmendAsk, rule="what to change")
        if ask.priority is None and ask.task is None:
            raise InvalidError(
                "say what to change: priority or task", errors=(("priority", "or task is required"),)
            )
        front, now = self._front, self._front.clock.now()
        record = await record_of(front, job_id, now=now)
        _must_wait(record)
        change = self._change(ask, record, now)
        verdict = await written(front, front.broker.amend(job_id, change, now=now))
        record = await record_of(front, job_id, now=front.clock.now())
        if verdict is not AmendVerdict.AMENDED:
            _must_wait(record)
            raise StateConflictError("the job did not wait at that moment")
        job = record.job
        front.log.info("job_amended", job_id=job_id, task=job.task, priority=job.priority)
        position, eta = await place(front, self._pressure, record, now=now)
        shown = job_json(record, now=now, position=position, eta=eta)
        await answer(send, 200, shown, [JSON, NO_STORE, (b"etag", etag(record))])

    def _change(self, ask: AmendAsk, record: JobRecord, now: float) -> Amendment:
        priority = None if ask.priority is None else priority_of(ask.priority)
        if ask.task is None or ask.task == record.job.task:
            return Amendment(priority)
        spec = self._front.tasks.get(ask.task)
        if spec is None:
            raise unknown_task(ask.task, self._front.tasks)
        check = self._checks[ask.task]
        if check is not None:
            payload = msgspec.json.decode(record.job.payload)
            if not check.is_valid(payload):
                raise refusal(check, payload)
        verdict = self._pressure.admit(spec.name, jobs=1, size_b=record.job.size, now=now)
        if isinstance(verdict, Rejected):
            raise self._pressure.refusal(verdict, spec.name, now=now)
        return Amendment(priority, spec.name, spec.version)


def _must_wait(record: JobRecord) -> None:
    state = record.standing.state
    if state not in WAITING:
        raise StateConflictError(f"the job is {state.value}: only a job that waits can be changed")
