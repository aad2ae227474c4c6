"""POST /v1/jobs/cancel: many jobs at once, by id or by filters, a bounded part a time."""

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import Request, Response

from forebay.core.job import CancelVerdict, Query
from forebay.core.lifecycle import FINAL, State
from forebay.errors import InvalidError
from forebay.server.asked import asked, check_tenant
from forebay.server.asking import unknown_task
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.limits import CANCEL_JOBS_MAX, LIST_LIMIT_MAX, METADATA_ENTRIES_MAX
from forebay.server.listing import after_of, cursor_of, states_of
from forebay.server.routing import Route, json_response
from forebay.server.storing import written

_OPEN: Final = frozenset(State) - FINAL
_ASK_BYTES_MAX = 1024 * 1024
_LOOKS_MAX: Final = 20  # pages looked through by one request; the next one goes on
_LIMIT_DEFAULT: Final = 1_000
_FILTERS: Final = ("task", "status", "tenant", "metadata")


class CancelAsk(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs to cancel: the named ones, or those all filters match, or with `all` every open one."""

    ids: list[str] | None = None
    task: str | None = None
    status: str | None = None
    tenant: str | None = None
    metadata: dict[str, str] | None = None
    all: bool = False
    limit: int | None = None
    cursor: str | None = None


class CancelOneView(msgspec.Struct):
    """What became of one named job: cancelled, requested (it runs), already, final or unknown."""

    job_id: str
    verdict: str


class CancelView(msgspec.Struct):
    """How many jobs met each verdict. `next_cursor`: more may match, go on with it and the same filters."""

    cancelled: int
    requested: int
    already: int
    final: int
    unknown: int
    next_cursor: str | None = None
    items: list[CancelOneView] | None = None


VIEWS = (CancelAsk, CancelView)


class Canceller:
    """Cancels many."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (
            Route("POST", "/v1/jobs/cancel", self.cancel, "Cancel many jobs, by id or by filters", "jobs",
                  "CancelView", (400, 404, 415, 422, 503), body="CancelAsk"),
        )  # fmt: skip

    async def cancel(self, request: Request) -> Response:
        """Cancel what waits at once and ask what runs to end; answer with the count of each verdict."""
        ask = await self._ask(request)
        if ask.ids is not None:
            view = await self._named(ask.ids)
        else:
            view = await self._matching(ask)
        self._front.log.info(
            "jobs_cancelled", cancelled=view.cancelled, requested=view.requested, task=ask.task
        )
        return json_response(view)

    async def _named(self, ids: Sequence[str]) -> CancelView:
        front, own = self._front, caller().own
        mine = list(ids)
        if own is not None:  # jobs of others are as unknown as those that never were
            now = front.clock.now()
            records = [await front.broker.get(job_id, now=now) for job_id in ids if len(job_id) == 36]
            seen = {record.job.id for record in records if record is not None and record.job.tenant == own}
            mine = [job_id for job_id in ids if job_id in seen]
        verdicts = dict(zip(mine, await self._cancel(mine), strict=True))
        items = [(job_id, verdicts.get(job_id, CancelVerdict.UNKNOWN)) for job_id in ids]
        view = _view(Counter(verdict for _, verdict in items))
        view.items = [CancelOneView(job_id, verdict.value) for job_id, verdict in items]
        return view

    async def _matching(self, ask: CancelAsk) -> CancelView:
        query, mark = self._query(ask)
        if query.tenant != ask.tenant and ask.tenant is not None:
            return _view(Counter())  # another tenant's: as good as nobody's
        left = ask.limit or _LIMIT_DEFAULT
        counts: Counter[CancelVerdict] = Counter()
        for _ in range(_LOOKS_MAX):
            asked = query._replace(limit=min(left, LIST_LIMIT_MAX))
            page = await self._front.broker.find(asked, now=self._front.clock.now())
            counts.update(await self._cancel([record.job.id for record in page.records]))
            query = query._replace(after=page.next_after)
            left -= len(page.records)
            if page.next_after is None or left <= 0:
                break
        view = _view(counts)
        if query.after is not None:
            view.next_cursor = cursor_of(query.after, mark).decode()
        return view

    async def _cancel(self, ids: Sequence[str]) -> list[CancelVerdict]:
        front = self._front
        found: list[CancelVerdict] = []
        for at in range(0, len(ids), LIST_LIMIT_MAX):  # so that others get their turn between
            part = ids[at : at + LIST_LIMIT_MAX]
            found += await written(front, front.broker.cancel(part, now=front.clock.now()))
        return found

    def _query(self, ask: CancelAsk) -> tuple[Query, int]:
        own = caller().own
        states = _OPEN if ask.status is None else states_of(ask.status) & _OPEN
        tenant = ask.tenant if own is None else own
        metadata = tuple(sorted((ask.metadata or {}).items()))
        filters = ("cancel", sorted(states), ask.task, metadata, tenant)
        mark = zlib.crc32(repr(filters).encode())
        after = None if ask.cursor is None else after_of(ask.cursor, mark)
        return Query(after=after, task=ask.task, states=states, tenant=tenant, metadata=metadata), mark

    async def _ask(self, request: Request) -> CancelAsk:
        ask = await asked(request, CancelAsk, rule="what to cancel", bytes_max=_ASK_BYTES_MAX)
        self._check(ask)
        return ask

    def _check(self, ask: CancelAsk) -> None:
        filters = [name for name in _FILTERS if getattr(ask, name) not in (None, {})]
        if ask.ids is None and not filters and not ask.all:
            raise _wrong("ids", "say which: ids, a filter (task, status, tenant, metadata), or all")
        if ask.ids is not None and (filters or ask.all or ask.cursor or ask.limit):
            raise _wrong("ids", "ids go alone: no filter, all, limit or cursor beside them")
        if ask.ids is not None and len(ask.ids) > CANCEL_JOBS_MAX:
            raise _wrong("ids", f"must be at most {CANCEL_JOBS_MAX}, not {len(ask.ids)}")
        check_tenant(ask.tenant)
        if ask.limit is not None and not 1 <= ask.limit <= CANCEL_JOBS_MAX:
            raise _wrong("limit", f"must be from 1 to {CANCEL_JOBS_MAX}, not {ask.limit}")
        if ask.metadata is not None and len(ask.metadata) > METADATA_ENTRIES_MAX:
            raise _wrong("metadata", f"must have at most {METADATA_ENTRIES_MAX} entries")
        if ask.status is not None and not states_of(ask.status) & _OPEN:
            raise _wrong("status", f"{ask.status} has ended: only PENDING and PROCESSING can be cancelled")
        if ask.task is not None and caller().own is None and ask.task not in self._front.tasks:
            raise unknown_task(ask.task, self._front.tasks)


def _wrong(name: str, rule: str) -> InvalidError:
    text = rule if rule.startswith(("say", "ids")) else f"{name} {rule}"
    return InvalidError(text, errors=((name, rule),))


def _view(counts: Counter[CancelVerdict]) -> CancelView:
    of = CancelVerdict
    return CancelView(
        counts[of.CANCELLED], counts[of.REQUESTED], counts[of.ALREADY], counts[of.FINAL], counts[of.UNKNOWN]
    )
