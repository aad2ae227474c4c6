"""Linking, AsyncLinking: what both clients can do to hand results and blobs on."""

import json
from typing import Any
from urllib.parse import urljoin

from forebay.client import arguments, plans, wire
from forebay.client.blobs import id_of
from forebay.client.drive import Runs, RunsLater
from forebay.client.plans import Plan, Terms
from forebay.client.wire import JSON, Call, View


class Linking:
    """The part of a Client that makes links."""

    def link_result(self: Runs, job_id: str, *, ttl: float | str = "1h") -> View:
        """Return a signed link to the result of a job: `url`, `expires_at`. Whoever has it needs no key."""
        return self.run(_linked(wire.job_path(job_id, "/result"), ttl, self.terms))

    def link_blob(self: Runs, blob: Any, *, ttl: float | str = "1h") -> View:
        """Return a signed link to a blob: `url`, `expires_at`, and `by` whom: `server` or `store`."""
        return self.run(_linked(f"/v1/blobs/{id_of(blob)}", ttl, self.terms))


class AsyncLinking:
    """The part of an AsyncClient that makes links."""

    async def link_result(self: RunsLater, job_id: str, *, ttl: float | str = "1h") -> View:
        """Return a signed link to the result of a job: `url`, `expires_at`. Whoever has it needs no key."""
        return await self.run(_linked(wire.job_path(job_id, "/result"), ttl, self.terms))

    async def link_blob(self: RunsLater, blob: Any, *, ttl: float | str = "1h") -> View:
        """Return a signed link to a blob: `url`, `expires_at`, and `by` whom: `server` or `store`."""
        return await self.run(_linked(f"/v1/blobs/{id_of(blob)}", ttl, self.terms))


def _linked(path: str, ttl: float | str, terms: Terms) -> Plan[View]:
    """Return the answer with a whole URL in it. Asked again it makes another link."""
    body = json.dumps({"ttl": arguments.seconds("ttl", ttl)}).encode()
    view = yield from plans.ask(Call("POST", f"{path}/link", headers=(JSON,), body=body), terms)
    return {**view, "url": urljoin(terms.url, str(view.get("url")))}
