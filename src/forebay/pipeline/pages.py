"""Pages: what a running pipeline tells over HTTP on loopback: /v1/streams, /metrics, /healthz, /readyz."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import msgspec

from forebay.errors import UnreachableError
from forebay.pipeline.exposition import Exposition
from forebay.pipeline.report import Report

HOST: Final = "127.0.0.1"  # no keys here, so nobody from elsewhere
REQUEST_WAIT_MAX_S: Final = 5.0
_LOCAL: Final = ("127.0.0.1", "localhost")  # in Host: else a page of a browser could be made to ask


class Pages:
    """One small server in a thread of its own; one request at a time."""

    def __init__(self, report: Callable[[], Report], port: int) -> None:
        exposition = Exposition(report)

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_WAIT_MAX_S
            server_version, sys_version = "forebay", ""

            def do_GET(self) -> None:
                host = self.headers.get("host", HOST).partition(":")[0]
                status, kind, body = _page(self.path.partition("?")[0], report, exposition)
                if host not in _LOCAL:
                    status, kind, body = 421, "application/problem+json", _problem(421, "misdirected", "Host")
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("cache-control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
                """Say nothing of requests."""

        try:
            self._server = HTTPServer((HOST, port), Handler)
        except OSError as error:
            raise UnreachableError(f"cannot listen on {HOST}:{port}: {error.strerror}") from None
        self.url = f"http://{HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="forebay-pages", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def _page(path: str, report: Callable[[], Report], exposition: Exposition) -> tuple[int, str, bytes]:
    json = "application/json"
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4; charset=utf-8", exposition.render()
    if path == "/healthz":
        return 200, json, b'{"status":"ok"}'
    now = report()
    if path == "/v1/streams":
        shown = {"items": now.items(), "stages": now.stage_items(), "next_cursor": None}
        return 200, json, msgspec.json.encode(shown)
    if path == "/readyz":
        ready = now.state == "running"
        body = {"status": "ready"} if ready else {"status": "unready", "reason": now.state}
        return 200 if ready else 503, json, msgspec.json.encode(body)
    return 404, "application/problem+json", _problem(404, "not_found", "no such address")


def _problem(status: int, code: str, detail: str) -> bytes:
    return msgspec.json.encode(
        {"type": f"about:blank#{code}", "title": detail, "status": status, "detail": detail, "code": code}
    )
