"""Many calls at once, each on a new connection, from a process of its own that opens them as cheaply as it can.

    python bench/burst.py PORT COUNT REQUESTS [GIVE_UP_S]   the requests one after another in a file, all of one length

The sockets are made before the clock starts. Then each is connected and its request written in the same step, so
that the first call is with the server while the last one has not begun: what the whole takes is printed, as the
server cannot answer what was not sent. Answers are read as they come.
"""

import contextlib
import json
import select
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

GIVE_UP_S = 30.0
UNANSWERED, RESET = -1, -3  # in place of a status


class Call(NamedTuple):
    """One call: when it was sent and answered, in seconds from the start, and with what."""

    sent_s: float
    done_s: float
    status: int
    text: str


def burst(port: int, requests: list[bytes], give_up_s: float = GIVE_UP_S) -> list[Call]:
    """Send them all and return what became of each."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in requests]
    for one in sockets:
        one.setblocking(False)
    numbers = {one.fileno(): number for number, one in enumerate(sockets)}
    left: dict[int, bytes] = {}
    sent = [0.0] * len(requests)
    calls = [Call(0.0, give_up_s, UNANSWERED, "") for _ in requests]
    looker = select.epoll()
    began = time.perf_counter()
    for number, (one, request) in enumerate(zip(sockets, requests, strict=True)):
        one.connect_ex(("127.0.0.1", port))
        try:
            one.send(request)
        except BlockingIOError:
            left[number] = request
        sent[number] = time.perf_counter() - began
        looker.register(one.fileno(), select.EPOLLIN | (select.EPOLLOUT if number in left else 0))
    open_ = len(sockets)
    while open_ and time.perf_counter() - began < give_up_s:
        for fd, event in looker.poll(0.1, 512):
            number = numbers[fd]
            if event & select.EPOLLOUT and number in left:
                with contextlib.suppress(OSError):  # what became of it is read below
                    sockets[number].send(left.pop(number))
                looker.modify(fd, select.EPOLLIN)
            if event & ~select.EPOLLOUT:
                try:
                    data = sockets[number].recv(65536)
                except OSError:
                    data = b""
                status = int(data[9:12]) if data else RESET
                done_s = time.perf_counter() - began
                calls[number] = Call(sent[number], done_s, status, data.decode("latin-1"))
                looker.unregister(fd)
                open_ -= 1
    return calls


def main() -> None:
    port, count, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    whole = file.read_bytes()
    size = len(whole) // count
    give_up_s = float(sys.argv[4]) if len(sys.argv) > 4 else GIVE_UP_S
    print(json.dumps(burst(port, [whole[at : at + size] for at in range(0, count * size, size)], give_up_s)))


if __name__ == "__main__":
    main()
