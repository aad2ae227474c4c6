"""A service with a line and no refusal, as a process of its own: `python plain_line.py TRIGGER` prints its port.

One worker, 25 ms for each, 20 times as long while the file is there; it does whatever came, in turn, also what nobody waits for.
"""

import os
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EACH_S, SLOW = 0.025, 20
trigger = sys.argv[1]
line: "queue.SimpleQueue[threading.Event]" = queue.SimpleQueue()


def work():
    while True:
        done = line.get()
        time.sleep(EACH_S * (SLOW if os.path.exists(trigger) else 1))
        done.set()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        done = threading.Event()
        line.put(done)
        done.wait()
        try:
            self.send_response(200)
            self.end_headers()
        except OSError:
            return  # its caller has gone

    def log_message(self, *_):
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2048

    def handle_error(self, *_):
        return


server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=work, daemon=True).start()
print(server.server_address[1], flush=True)
server.serve_forever()
