"""free_port: a port for what listens a moment later, or again after its end.

One that the kernel hands out may go to somebody else meanwhile: to any connection of the test beside this one.
"""

import contextlib
import itertools
import os
import socket

FIRST, LAST = 15_000, 32_000  # below what the kernel hands out (net.ipv4.ip_local_port_range)
_numbers = itertools.count(os.getpid() * 61)  # processes that begin together are far apart


def free_port():
    """Return a port of this machine that nobody has, a different one each time."""
    for number in itertools.islice(_numbers, LAST - FIRST):
        port = FIRST + number % (LAST - FIRST)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port from {FIRST} to {LAST} is free")
