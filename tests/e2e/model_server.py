"""A model server as a process of its own: `python model_server.py PORT MODE_FILE LOG_FILE`."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

port, mode_file, log_file = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
lock, out = threading.Lock(), 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global out
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        mode, _, value = mode_file.read_text().strip().partition(" ")
        with lock:
            out += 1
            with log_file.open("a") as log:
                log.write(
                    json.dumps({"mode": mode, "out": out, "auth": self.headers.get("authorization")}) + "\n"
                )
        try:
            self.answer(mode, value, body)
        finally:
            with lock:
                out -= 1

    def do_GET(self):
        gauge = mode_file.with_name("gauge")
        value = gauge.read_text() if gauge.exists() else "0"
        self.whole(200, f'# TYPE queued gauge\nqueued{{model="a"}} {value}\n'.encode())

    def answer(self, mode, value, body):
        if mode == "slow":
            time.sleep(float(value))
        while mode == "hang" and mode_file.read_text().strip() == "hang":
            time.sleep(0.02)
        if mode == "busy":
            self.whole(int(value), b'{"error": {"message": "overloaded"}}', {"retry-after": "1"})
        elif mode == "broken":
            self.whole(500, b'{"error": {"message": "out of memory"}}')
        elif isinstance(body, dict) and body.get("stream"):
            self.events([{"delta": word} for word in body["prompt"].split()])
        elif body == "bad":
            self.whole(400, b'{"error": {"message": "no such prompt"}}')
        else:
            self.whole(200, json.dumps({"echo": body}).encode())

    def whole(self, status, data, headers=()):
        self.send_response(status)
        for name, text in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **dict(headers),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def events(self, parts):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in [*(json.dumps(part) for part in parts), "[DONE]"]:
            data = f"data: {line}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


Server(("127.0.0.1", port), Handler).serve_forever()
