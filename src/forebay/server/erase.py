"""POST /v1/erase: everything of a tenant, or of whom metadata names, is removed, a bounded part a time."""

from collections.abc import Sequence
from typing import NamedTuple

from fastapi import Request, Response

from forebay.core.job import CancelVerdict, Page, Query
from forebay.errors import InvalidError
from forebay.server.asked import asked, check_tenant
from forebay.server.asks import EraseAsk
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.limits import ERASE_JOBS_MAX, ERASE_WAIT_MAX_S, METADATA_ENTRIES_MAX
from forebay.server.routing import Route, json_response
from forebay.server.storing import written
from forebay.server.views import EraseView

_ASK_BYTES_MAX = 64 * 1024
_PAGE_JOBS = 500
_LOOK_S = 0.1


class _Found(NamedTuple):
    removed: int
    running: list[str]
    more: bool


class Eraser:
    """Removes jobs in every state with all that belongs to them."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (
            Route("POST", "/v1/erase", self.erase, "Remove all jobs of a tenant, or of whom metadata names",
                  "jobs", "EraseView", (400, 415, 422, 503, 507), body="EraseAsk"),
        )  # fmt: skip

    async def erase(self, request: Request) -> Response:
        """Remove up to ERASE_JOBS_MAX jobs. `done` false: more are left, ask again.

        What waits is cancelled and removed; what runs is asked to end and removed when it has ended within
        `wait`. Only numbers are logged: who was erased is not written down again.
        """
        ask = await self._ask(request)
        query = Query(
            limit=_PAGE_JOBS,
            tenant=ask.tenant if ask.tenant is not None else caller().own,
            metadata=tuple(sorted((ask.metadata or {}).items())),
        )
        front = self._front
        await written(front, front.broker.purge(limit=ERASE_JOBS_MAX, now=front.clock.now()))
        found = await self._pass(query)
        removed, running = found.removed, found.running
        until = front.clock.now() + min(ask.wait_s, ERASE_WAIT_MAX_S)
        while running and front.clock.now() < until and not front.lifecycle.draining:
            await front.clock.sleep(_LOOK_S)
            removed += await self._purge(running)
            running = [job_id for job_id in running if await self._is_there(job_id)]
        if ask.tenant is not None and not ask.metadata:
            await written(front, front.broker.quarantine.forget(tenant=ask.tenant))
        done = not running and not found.more
        if done and ask.scrub:
            await written(front, front.broker.scrub())
        front.log.info("erased", removed=removed, running=len(running), done=done)
        return json_response(EraseView(removed, len(running), done, done and ask.scrub))

    async def _pass(self, query: Query) -> _Found:
        """Go once over all jobs that match: remove what has ended or waits, ask the rest to end."""
        front, broker = self._front, self._front.broker
        removed, running = 0, list[str]()
        while True:
            page: Page = await broker.find(query, now=front.clock.now())
            ids = [record.job.id for record in page.records]
            if ids:
                verdicts = await written(front, broker.cancel(ids, now=front.clock.now()))
                asked = CancelVerdict.REQUESTED
                running += [i for i, v in zip(ids, verdicts, strict=True) if v is asked]
                removed += await self._purge(ids)
            if page.next_after is None:
                return _Found(removed, running, more=False)
            if removed + len(running) >= ERASE_JOBS_MAX:
                return _Found(removed, running, more=True)
            query = query._replace(after=page.next_after)

    async def _purge(self, ids: Sequence[str]) -> int:
        front = self._front
        await written(front, front.broker.quarantine.forget(job_ids=ids))
        return await written(front, front.broker.purge(ids, limit=len(ids), now=front.clock.now()))

    async def _is_there(self, job_id: str) -> bool:
        return await self._front.broker.get(job_id, now=self._front.clock.now()) is not None

    async def _ask(self, request: Request) -> EraseAsk:
        ask = await asked(request, EraseAsk, rule="what to erase", bytes_max=_ASK_BYTES_MAX)
        if ask.tenant is None and not ask.metadata:
            raise InvalidError(
                "say whose: tenant or metadata", errors=(("tenant", "tenant or metadata is required"),)
            )
        check_tenant(ask.tenant)
        if ask.metadata is not None and len(ask.metadata) > METADATA_ENTRIES_MAX:
            rule = f"must have at most {METADATA_ENTRIES_MAX} entries"
            raise InvalidError(f"metadata {rule}", errors=(("metadata", rule),))
        if not 0 <= ask.wait_s <= ERASE_WAIT_MAX_S:
            rule = f"must be from 0 to {ERASE_WAIT_MAX_S:g}"
            raise InvalidError(f"wait_s {rule}", errors=(("wait_s", rule),))
        return ask
