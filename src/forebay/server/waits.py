"""Waits: how long what was read had lain in its socket, where that may matter.

A server that is behind reads late, and who waited in its sockets has spent their time already. The kernel
knows how long; asking costs a system call.
"""

import socket
import struct
import sys
from typing import Any, Final

BEHIND_S: Final = 0.005  # a loop that came round this fast kept nobody waiting
LEAST_S: Final = 0.01  # less than this is no wait: the kernel counts in ticks of up to so much
WAIT_MAX_S: Final = 60.0
_SIZE_B: Final = 56
_LAST_RECEIVED: Final = struct.Struct("=52xI")  # tcpi_last_data_recv, in milliseconds


class Waits:
    """The clock of one loop's rounds: what is read in a round came in it, or in the one before."""

    __slots__ = ("_before_at", "_round", "_round_at")

    def __init__(self) -> None:
        self._round = -1.0
        self._round_at = self._before_at = float("-inf")

    def may_matter(self, *, first: bool, loop_s: float, now: float) -> bool:
        """Say whether to ask. `first`: nothing was read of this connection before, so that nobody knows how
        long it waited to be accepted. `loop_s` is the loop's own time: that at which its round began, where
        it keeps it for the whole of one."""
        if loop_s != self._round:
            self._round, self._round_at, self._before_at = loop_s, now, self._round_at
        return first or now - self._before_at > BEHIND_S


def lain_s(transport: Any) -> float:
    """Return for how many seconds the last bytes that came have been with this machine, to a tick of its
    kernel; 0 for less than LEAST_S and where nobody can tell. What they took on the network is not in it."""
    if sys.platform != "linux":  # elsewhere it is laid out otherwise, or there is none
        return 0.0
    try:
        told: bytes = transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE_B
        )
    except (AttributeError, OSError):  # no TCP, no such option, or gone meanwhile
        return 0.0
    if len(told) < _SIZE_B:
        return 0.0
    ms: int = _LAST_RECEIVED.unpack(told)[0]
    return min(WAIT_MAX_S, ms / 1000) if ms >= LEAST_S * 1000 else 0.0
