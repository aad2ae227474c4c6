"""POST /v1/jobs/{id}/result/link and /v1/blobs/{id}/link: an address to hand on, for a time."""

import msgspec
from fastapi import Request, Response

from forebay.core.blobs import is_id
from forebay.core.units import duration_s
from forebay.errors import InvalidError, NotFoundError
from forebay.server.asked import asked
from forebay.server.front import Front
from forebay.server.links import TTL_MAX_S
from forebay.server.owner import sees_blob
from forebay.server.routing import Route, json_response
from forebay.server.storing import record_of
from forebay.server.times import stamp

TTL_DEFAULT_S = 3_600.0
_ASK_BYTES_MAX = 1_024


class LinkAsk(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the link is to open: seconds or a duration; an hour where nothing is said."""

    ttl: int | float | str | None = None


class LinkView(msgspec.Struct):
    """An address that opens one result or blob until a time, without a key. `by` is `server`, or `store`
    where the object store itself answers; then it is a whole URL."""

    url: str
    expires_at: str
    by: str


VIEWS = (LinkAsk, LinkView)


class Linker:
    """Makes links for whoever may read what they open."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> tuple[Route, ...]:
        """Return the rows of the route table."""
        return (
            Route("POST", "/v1/jobs/{job_id}/result/link", self.result, "A signed link to the result", "jobs",
                  "LinkView", (400, 404, 410, 413, 415, 422), (), "LinkAsk"),
            Route("POST", "/v1/blobs/{blob_id}/link", self.blob, "A signed link to a blob", "blobs",
                  "LinkView", (400, 404, 413, 415, 422, 503), (), "LinkAsk"),
        )  # fmt: skip

    async def result(self, request: Request) -> Response:
        """Answer a link to the result of a job, also of one that has none yet: until then it is 409."""
        ttl_s = await self._ttl_s(request)
        job_id, now = request.path_params["job_id"], self._front.clock.now()
        await record_of(self._front, job_id, now=now)
        return self._linked(f"/v1/jobs/{job_id}/result", now + ttl_s)

    async def blob(self, request: Request) -> Response:
        """Answer a link to a blob: the object store's own where there is one and it makes any."""
        ttl_s = await self._ttl_s(request)
        blob_id, keeper = request.path_params["blob_id"], self._front.blobs
        info = None
        if keeper is not None and is_id(blob_id) and sees_blob(blob_id):
            info = await keeper.claim_any(blob_id)
        if keeper is None or info is None:
            raise NotFoundError("no blob has this id")
        try:
            now = self._front.clock.now()
            url = None
            if self._front.settings.links_by == "store":
                url = await keeper.call(keeper.store.link, blob_id, ttl_s)
        finally:
            keeper.release((blob_id,))
        if url is None:
            return self._linked(f"/v1/blobs/{blob_id}", now + ttl_s)
        return json_response(LinkView(url, stamp(now + ttl_s), "store"))

    def _linked(self, path: str, expires_at: float) -> Response:
        url = self._front.links.made(path, expires_at=expires_at)
        return json_response(LinkView(url, stamp(expires_at), "server"))

    async def _ttl_s(self, request: Request) -> float:
        ask = await asked(request, LinkAsk, rule="a link request", bytes_max=_ASK_BYTES_MAX)
        if ask.ttl is None:
            return TTL_DEFAULT_S
        rule = f'must be a duration from 1 to {TTL_MAX_S:.0f} seconds, like "10m"'
        try:
            ttl_s = duration_s(ask.ttl)
        except ValueError:
            ttl_s = 0.0
        if not 1.0 <= ttl_s <= TTL_MAX_S:
            raise InvalidError(f"ttl {rule}", errors=(("ttl", rule),))
        return ttl_s
