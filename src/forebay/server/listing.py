"""GET /v1/jobs and GET /v1/dead-letters: filters, stable cursors, pages."""

import base64
import binascii
import zlib

from fastapi import Request, Response

from forebay.core.job import JobRecord, Page, Query
from forebay.core.lifecycle import STATUS, State
from forebay.errors import InvalidError
from forebay.server.asking import integer_of, nearest, query_of, unknown_task
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from forebay.server.render import job_json
from forebay.server.routing import Param, Route, raw_json

_NAMES = frozenset({"status", "task", "tenant", "limit", "cursor"})
_METADATA = "metadata."
_WORDS = {**{state.value: frozenset({state}) for state in State}}
for _state, _status in STATUS.items():
    _WORDS[_status] = _WORDS.get(_status, frozenset()) | {_state}
PARAMS = (
    Param("status", "status or state; several with commas"),
    Param("task", "jobs of this task only"),
    Param("tenant", "jobs of this tenant only; with a key, of its own only"),
    Param("limit", f"page size, 1 to {LIST_LIMIT_MAX}; larger is clamped", "integer"),
    Param("cursor", "next_cursor of the page before, with the same filters"),
    Param("metadata.KEY", "jobs whose metadata KEY has this value, compared as text"),
)


class Lister:
    """Pages of jobs."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def jobs(self, request: Request) -> Response:
        """Answer one page of jobs, newest first."""
        return await self._page(request, None, with_payload=False)

    async def dead(self, request: Request) -> Response:
        """Answer one page of dead letters, newest first."""
        return await self._page(request, frozenset({State.DEAD}), with_payload=True)

    async def _page(
        self, request: Request, states: frozenset[State] | None, *, with_payload: bool
    ) -> Response:
        names = _NAMES if states is None else _NAMES - {"status"}
        asked = query_of(request.scope, names, prefixes=(_METADATA,))
        if states is None and "status" in asked:
            states = states_of(asked["status"])
        task = asked.get("task")
        now = self._front.clock.now()
        own = caller().own
        tenant = asked.get("tenant", own)
        if (
            task is not None
            and own is None  # the names of others' tasks are theirs
            and task not in self._front.tasks
            and task not in await self._front.broker.tasks()
        ):
            raise unknown_task(task, self._front.tasks)
        metadata = tuple(
            sorted((k.removeprefix(_METADATA), v) for k, v in asked.items() if k.startswith(_METADATA))
        )
        filters = (sorted(states) if states else None, task, metadata, with_payload, own, tenant)
        mark = zlib.crc32(repr(filters).encode())
        query = Query(
            limit=integer_of(asked, "limit", default=LIST_LIMIT_DEFAULT, low=1, high=LIST_LIMIT_MAX),
            after=after_of(asked["cursor"], mark) if "cursor" in asked else None,
            task=task,
            states=states,
            tenant=tenant,
            metadata=metadata,
        )
        page = await (self._front.broker.find(query, now=now) if own is None else self._own(query, own, now))
        return raw_json(_page_json(page, mark, now=now, payload=with_payload))

    async def _own(self, query: Query, own: str, now: float) -> Page:
        """Return a page of one tenant: whether it is the last one must not tell whether others have jobs."""
        if query.tenant != own:
            return Page((), None)
        page = await self._front.broker.find(query._replace(limit=query.limit + 1), now=now)
        if len(page.records) <= query.limit:
            return page
        return Page(page.records[: query.limit], page.records[query.limit - 1].job.id)

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (
            Route("GET", "/v1/jobs", self.jobs, "List jobs", "jobs", "JobList", (404, 422), PARAMS),
            Route("GET", "/v1/dead-letters", self.dead, "List dead letters", "dead letters", "DeadLetterList",
                  (404, 422), PARAMS[1:]),
        )  # fmt: skip


def states_of(text: str) -> frozenset[State]:
    """Return the states that words of statuses and states mean. Raises InvalidError for another word."""
    found: frozenset[State] = frozenset()
    for word in text.split(","):
        if word not in _WORDS:
            raise InvalidError(
                f"status{nearest(word, _WORDS)}",
                errors=(("status", "a status or state, or several with commas"),),
            )
        found |= _WORDS[word]
    return found


def _page_json(page: Page, mark: int, *, now: float, payload: bool) -> bytes:
    items = b",".join(_item(record, now=now, payload=payload) for record in page.records)
    cursor = b"null" if page.next_after is None else b'"' + cursor_of(page.next_after, mark) + b'"'
    return b'{"items":[' + items + b'],"next_cursor":' + cursor + b"}"


def _item(record: JobRecord, *, now: float, payload: bool) -> bytes:
    return job_json(record, now=now, with_result=False, payload=payload)


def cursor_of(after: str, mark: int) -> bytes:
    """Return the cursor that goes on behind an id, for the query of this mark alone."""
    text = after.encode()
    seal = zlib.crc32(text, mark)
    return base64.urlsafe_b64encode(seal.to_bytes(4, "big") + text).rstrip(b"=")


def after_of(cursor: str, mark: int) -> str:
    """Return the id a page goes on after. Raises InvalidError for a cursor of another query or a bent one."""
    try:
        if len(cursor) > 200 or "=" in cursor:
            raise ValueError
        raw = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        after = raw[4:].decode("ascii")
    except (ValueError, binascii.Error):
        raw, after = b"", ""
    if len(after) != 36 or zlib.crc32(raw[4:], mark).to_bytes(4, "big") != raw[:4]:
        raise InvalidError(
            "cursor: take next_cursor of the page before, with the same filters",
            errors=(("cursor", "not a cursor of this query"),),
        )
    return after
