"""Waits: when the kernel is asked how long a request lay in its socket, and what it says."""

import socket
import struct
import sys

import pytest

from forebay.server.waits import BEHIND_S, WAIT_MAX_S, Waits, lain_s


class Transport:
    """Has a socket that says what it is told to, or none."""

    def __init__(self, told=None):
        self.told = told

    def get_extra_info(self, name):
        return None if self.told is None else self

    def getsockopt(self, level, option, size):
        if isinstance(self.told, OSError):
            raise self.told
        return self.told


def test_the_first_of_a_connection_is_asked_about_and_the_next_ones_where_the_loop_is_behind():
    waits = Waits()
    assert waits.may_matter(first=True, loop_s=1.000, now=1.0)
    assert waits.may_matter(first=False, loop_s=1.010, now=1.010), "nothing is known of the round before"
    assert not waits.may_matter(first=False, loop_s=1.012, now=1.012)
    assert waits.may_matter(first=True, loop_s=1.012, now=1.0125)
    assert not waits.may_matter(first=False, loop_s=1.012, now=1.010 + BEHIND_S)
    assert waits.may_matter(first=False, loop_s=1.012, now=1.011 + BEHIND_S), "this round takes long"
    assert waits.may_matter(first=False, loop_s=1.020, now=1.020), "or the one before did"


def info(ms):
    return struct.pack("=52xI", ms)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (info(0), 0.0),
        (info(9), 0.0),
        (info(10), 0.010),
        (info(150), 0.150),
        (info(0xFFFFFFFF), WAIT_MAX_S),
        (b"", 0.0),
        (OSError(95, "no such option"), 0.0),
        (None, 0.0),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the layout is that of Linux")
def test_what_the_kernel_says_counts_from_a_tick_on_and_where_it_says_nothing_it_is_nothing(told, found):
    assert lain_s(Transport(told)) == pytest.approx(found)


@pytest.mark.skipif(sys.platform != "linux", reason="the layout is that of Linux")
def test_a_real_kernel_counts_from_the_last_bytes_that_came():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        client.send(b"x")
        ours, _ = listener.accept()
        with ours:
            transport = Transport()
            transport.get_extra_info = lambda _name: ours
            assert lain_s(transport) < 5.0
            before = struct.unpack_from("=I", ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56), 52)[0]
            assert 0 <= before < 5_000
