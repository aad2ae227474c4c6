"""A receiver of callbacks in the test's own process, that can be slow, closed and opened again."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook


class Hook:
    """Has a port of its own and listens once opened. `got` has (message id, job) of each verified request."""

    def __init__(self, *, status=204, before=None):
        self.status = status
        self.before = before  # called before the answer
        self.secret = None
        self.got = []
        # Bound and not listening, so that the port refuses and nobody else gets it.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = None

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/hook"

    def open(self):
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                if hook.secret is not None:
                    Webhook(hook.secret).verify(body, headers)
                hook.got.append((headers["webhook-id"], json.loads(body)))
                if hook.before is not None:
                    hook.before(len(hook.got))
                self.send_response(hook.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", self.port), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = self._socket
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def close(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self._socket.close()

    def of(self, job_id):
        """Return what came about one job."""
        return [job for message, job in list(self.got) if message == f"msg_{job_id}"]
