"""Quarantine at the door: copies of an input that killed workers are refused; people release it."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import Request, Response

from forebay.core.job import Job
from forebay.core.quarantine import KEPT_S, DeadlyInput
from forebay.core.tenant import Scope
from forebay.errors import ForbiddenError, InvalidError, NotFoundError, QuarantinedError
from forebay.server.asking import integer_of, query_of, unknown_task
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from forebay.server.routing import Param, Route, json_response
from forebay.server.storing import written
from forebay.server.times import stamp

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PARAMS: Final = (
    Param("task", "inputs of this task only"),
    Param("limit", f"page size, 1 to {LIST_LIMIT_MAX}; larger is clamped", "integer"),
    Param("cursor", "next_cursor of the page before"),
)


class QuarantineRow(msgspec.Struct):
    """An input in quarantine: copies of it are refused with 422 until it is released, or forgotten."""

    fingerprint: str
    task: str
    version: str
    tenant: str
    deaths: int  # of workers
    job_id: str  # of the last death
    first_death_at: str
    last_death_at: str
    quarantined_at: str
    forgotten_at: str  # unless it kills again


class QuarantineList(msgspec.Struct):
    """One page of inputs in quarantine, in the order of their fingerprints."""

    items: list[QuarantineRow]
    next_cursor: str | None


VIEWS: Final = (QuarantineRow, QuarantineList)


class QuarantineDesk:
    """What is in quarantine, and the way out."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        tag = "dead letters"
        return (
            Route("GET", "/v1/quarantine", self.list, "List inputs in quarantine", tag, "QuarantineList",
                  (404, 422), _PARAMS),
            Route("DELETE", "/v1/quarantine/{fingerprint}", self.release, "Release an input", tag,
                  "QuarantineRow", (404,)),
        )  # fmt: skip

    async def list(self, request: Request) -> Response:
        """Answer one page; a tenant sees its own."""
        asked = query_of(request.scope, frozenset(param.name for param in _PARAMS))
        task, after = asked.get("task"), asked.get("cursor", "")
        if task is not None and caller().own is None and task not in self._front.tasks:
            raise unknown_task(task, self._front.tasks)
        if after and not _FINGERPRINT.fullmatch(after):
            rule = "take next_cursor of the page before"
            raise InvalidError(f"cursor: {rule}", errors=(("cursor", rule),))
        limit = integer_of(asked, "limit", default=LIST_LIMIT_DEFAULT, low=1, high=LIST_LIMIT_MAX)
        found = await self._front.broker.quarantine.listed(
            limit=limit + 1,
            now=self._front.clock.now(),
            tenant=caller().own,
            task=task,
            after=bytes.fromhex(after),
        )
        items = [_row(deadly) for deadly in found[:limit]]
        return json_response(QuarantineList(items, items[-1].fingerprint if len(found) > limit else None))

    async def release(self, request: Request) -> Response:
        """Take an input out of quarantine: its deaths are forgotten. Answers what it was."""
        fingerprint = request.path_params["fingerprint"]
        released = None
        if _FINGERPRINT.fullmatch(fingerprint):
            front = self._front
            verb = front.broker.quarantine.release(
                bytes.fromhex(fingerprint), tenant=caller().own, now=front.clock.now()
            )
            released = await written(front, verb)
        if released is None:
            raise NotFoundError("no input with this fingerprint is in quarantine")
        self._front.log.info("input_released", fingerprint=fingerprint, task=released.task)
        return json_response(_row(released))


def barred(front: Front, job: Job, *, now: float) -> QuarantinedError | None:
    """Return the refusal of a job whose input is in quarantine, not yet counted; None for any other.

    While nothing of its task is in quarantine this is one look into a dict.
    """
    if job.task not in front.broker.quarantine.counts() or not front.tasks[job.task].settle.condemns_at:
        return None
    deadly = front.broker.quarantine.held(job, now=now)
    return None if deadly is None else refusal_of(deadly)


def unbarred(
    front: Front, task: str, places: list[int], slots: Sequence[object], *, now: float
) -> tuple[list[int], list[tuple[int, Job, QuarantinedError]]]:
    """Return the places of jobs whose input is not in quarantine, and the others with their refusals."""
    if task not in front.broker.quarantine.counts():
        return places, []
    kept: list[int] = []
    refused: list[tuple[int, Job, QuarantinedError]] = []
    for at in places:
        job = slots[at]
        assert type(job) is Job
        error = barred(front, job, now=now)
        if error is None:
            kept.append(at)
        else:
            refused.append((at, job, error))
    return kept, refused


def may_force() -> None:
    """Raise ForbiddenError unless the caller may have an input in quarantine run once more."""
    if not caller().may(Scope.ADMIN):
        raise ForbiddenError("force needs the scope admin", errors=(("scope", "admin is missing"),))


def refusal_of(deadly: DeadlyInput) -> QuarantinedError:
    """Return the error that says why a copy is refused, and how that ends."""
    row = _row(deadly)
    text = (
        f"this input of {deadly.task} (version {deadly.version}) is in quarantine: it killed {deadly.deaths}"
        f" workers, the last one at {row.last_death_at} under {deadly.job_id}. Another payload or version"
        f" is taken; DELETE /v1/quarantine/{row.fingerprint} (scope admin) releases this one"
    )
    told: dict[str, object] = {
        name: getattr(row, name)
        for name in ("fingerprint", "job_id", "deaths", "quarantined_at", "last_death_at", "forgotten_at")
    }
    return QuarantinedError(text, members=told)


def _row(deadly: DeadlyInput) -> QuarantineRow:
    return QuarantineRow(
        deadly.fingerprint.hex(),
        deadly.task,
        deadly.version,
        deadly.tenant,
        deadly.deaths,
        deadly.job_id,
        stamp(deadly.since),
        stamp(deadly.at),
        stamp(deadly.condemned_at or deadly.at),
        stamp(deadly.at + KEPT_S),
    )
