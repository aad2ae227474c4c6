"""Dialects: finds the dialect of an address, and tells every refusal in its shape."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from forebay.errors import ForebayError, MethodError
from forebay.server.answer import JSON, NO_STORE, Body, Headers, Receive, Send, answer
from forebay.server.asking import Scope
from forebay.server.dialects import inference, openai, replicate
from forebay.server.dialects.inner import App, Inner, Reply
from forebay.server.dialects.shapes import Asked, Handler, Said
from forebay.server.front import Front
from forebay.server.problems import problem_body, problem_headers
from forebay.server.whole import CLOSE

_OPEN: Final = frozenset({"/v2", "/v2/health/live", "/v2/health/ready"})  # as /healthz and /readyz are
_MADE_NEW: Final = frozenset({b"content-length", b"content-type"})


class Dialects:
    """All of them. `app` is the door itself: it answers the inner calls."""

    def __init__(self, front: Front, app: App) -> None:
        self._front = front
        self._app = app
        self._tables: Mapping[str, tuple[Handler, Callable[[int, dict[str, Any]], object]]] = {
            "/openai": (openai.handle, openai.problem),
            "/replicate": (replicate.handle, replicate.problem),
            "/v2": (inference.handle, inference.problem),
        }

    async def answer(
        self, scope: Scope, body: Body, receive: Receive, send: Send, admit: Callable[[], None]
    ) -> None:
        """Answer one request in its dialect. `admit` raises for a caller who may do nothing here."""
        path: str = scope["path"]
        root = next(one for one in self._tables if path == one or path.startswith(f"{one}/"))
        handle, problem = self._tables[root]
        headers: Headers = []
        try:
            method = scope["method"]
            if path not in _OPEN:
                admit()
            raw = await body.read(self._most(path)) if method in {"POST", "PUT"} else b""
            inner, heads = Inner(self._app, scope, receive), dict(scope["headers"])
            query = scope["query_string"].decode("latin-1")
            asked = Asked(self._front, inner, method, path[len(root) :], heads, query, raw)
            said = await handle(asked)
            if isinstance(said, Reply):
                said, headers = _refused(said, problem)
        except ForebayError as error:
            text = problem_body(error)
            headers = [pair for pair in problem_headers(error, text) if pair[0] not in _MADE_NEW]
            if isinstance(error, MethodError):
                headers.append((b"allow", str(error).removeprefix("allowed: ").encode()))
            said = Said(problem(error.status, msgspec.json.decode(text)), error.status)
        if body.leftover:
            headers.append(CLOSE)
        text = said.body if said.body is not None else msgspec.json.encode(said.value)
        kind = JSON if said.kind is None else (b"content-type", said.kind)
        await answer(send, said.status, text, [kind, NO_STORE, *said.headers, *headers])

    def _most(self, path: str) -> int:
        settings = self._front.settings
        return settings.payload_bytes_max if path == "/openai/v1/files" else settings.body_bytes_max


def _refused(reply: Reply, problem: Callable[[int, dict[str, Any]], object]) -> tuple[Said, Headers]:
    return Said(problem(reply.status, reply.json()), reply.status), reply.told()
