"""Subscribers: each gets its stream; who is slow loses the oldest, is told exactly how many, and slows nobody."""

import json
import threading

import httpx
import numpy
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from forebay import sinks
from forebay.core.envelope import unpack
from forebay.errors import ConfigError, InvalidError
from forebay.streams.ports import Result, Sink
from tests.waiting import until

TOKEN = "a-token-of-16-or-more"


@pytest.fixture
def make():
    made = []

    def websocket(**settings):
        made.append(sinks.websocket(**settings))
        return made[-1]

    yield websocket
    for one in made:
        one.close()


def subscribe(sink, stream="door", **settings):
    readers = sink.counts()["readers_met"]
    socket = connect(f"{sink.url}/v1/streams/{stream}", proxy=None, close_timeout=1, **settings)
    until(lambda: sink.counts()["readers_met"] > readers, 30, "the subscriber was met")
    return socket


def result(value, seq=0, stream="door"):
    return Result(value, stream, seq, 1.5, 2.5)


def heard(socket):
    return json.loads(socket.recv(timeout=30))


def test_it_satisfies_what_a_pipeline_asks(make):
    assert isinstance(make(), Sink)


def test_each_subscriber_gets_the_results_of_its_stream_in_order(make):
    sink = make()
    with subscribe(sink) as door, subscribe(sink, "*") as everything:
        for seq in range(3):
            sink.write(result({"n": seq}, seq))
            sink.write(result("other", seq, "hall"))
        assert [heard(door)["value"]["n"] for _ in range(3)] == [0, 1, 2]
        assert [heard(everything)["stream"] for _ in range(6)] == ["door", "hall"] * 3


def test_an_array_comes_as_an_envelope(make):
    sink = make()
    array = numpy.arange(12, dtype="<f4").reshape(3, 4)
    with subscribe(sink) as socket:
        sink.write(result(array, 5))
        header, pixels = unpack(socket.recv(timeout=30))
    assert (header["seq"], header["shape"], header["dtype"]) == (5, [3, 4], "<f4")
    assert numpy.array_equal(numpy.frombuffer(pixels, "<f4").reshape(3, 4), array)


def test_who_is_slow_is_told_exactly_what_it_missed_and_slows_nobody(make):
    sink, count, padding = make(buffer=8), 200, "x" * 100_000
    with subscribe(sink, max_queue=1) as slow, subscribe(sink) as quick:
        fast = []
        reader = threading.Thread(target=lambda: fast.extend(heard(quick) for _ in range(count)))
        reader.start()
        for seq in range(count):  # 20 MB: far more than the sockets between us and the slow one hold
            sink.write(result(padding, seq))
            until(lambda seq=seq: len(fast) > seq - 4, 30, "the quick one keeps up")
        reader.join(30)
        assert [one["seq"] for one in fast] == list(range(count))
        got, missed = [], 0
        while not got or got[-1] < count - 1:
            message = heard(slow)
            if "gap" in message:
                missed += message["gap"]["door"]
            else:
                got.append(message["seq"])
                assert message["seq"] == len(got) + missed - 1  # every gap is announced where it is
    assert missed > 0 and len(got) + missed == count
    assert sink.counts()["dropped"] == missed


def test_bytes_are_bounded_too(make):
    sink = make(buffer=1_000, buffer_bytes=250_000)
    with subscribe(sink, max_queue=1) as slow:
        for seq in range(200):
            sink.write(result("x" * 100_000, seq))
        until(lambda: sink.counts()["dropped"] > 0, 30, "something was dropped")
        (reader,) = sink._readers
        assert reader._bytes <= 250_000
        assert slow is not None


def test_a_result_larger_than_the_buffer_is_a_gap(make):
    sink = make(buffer_bytes=1_000)
    with subscribe(sink) as socket:
        sink.write(result("x" * 2_000, 0))
        sink.write(result("y", 1))
        assert heard(socket) == {"gap": {"door": 1}}
        assert heard(socket)["seq"] == 1


def test_who_leaves_is_forgotten(make):
    sink = make()
    with subscribe(sink):
        assert sink.readers == 1
    until(lambda: sink.readers == 0, 30, "it was forgotten")
    sink.write(result(1))


def test_close_lets_subscribers_take_what_waits(make):
    sink = make()
    with subscribe(sink) as socket:
        for seq in range(20):
            sink.write(result(seq, seq))
        sink.close()
        sink.close()
        assert [heard(socket)["seq"] for _ in range(20)] == list(range(20))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)


def test_what_is_no_json_is_refused_and_goes_to_nobody(make):
    sink = make()
    with subscribe(sink) as socket:
        with pytest.raises(InvalidError, match="is not JSON"):
            sink.write(result(object()))
        sink.write(result(1, 1))
        assert heard(socket)["seq"] == 1


def test_no_more_subscribers_than_so_many(make):
    sink = make(readers_max=1)
    with subscribe(sink):
        with pytest.raises(InvalidStatus) as caught:
            connect(f"{sink.url}/v1/streams/door", proxy=None)
        assert caught.value.response.status_code == 503


def test_who_may_not_read_stays_outside(make):
    sink = make(token=TOKEN)
    for settings, status in (
        ({}, 401),
        ({"additional_headers": {"Authorization": "Bearer wrong"}}, 401),
        ({"origin": "https://elsewhere.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as caught:
            connect(f"{sink.url}/v1/streams/door", proxy=None, **settings)
        assert caught.value.response.status_code == status
    with subscribe(sink, additional_headers={"Authorization": f"Bearer {TOKEN}"}):
        pass
    with pytest.raises(ConfigError, match="give token="):
        sinks.websocket(host="0.0.0.0")


def test_other_addresses_and_methods_are_problems(make):
    sink = make()
    url = sink.url.replace("ws", "http")
    assert httpx.get(f"{url}/v1/streams/door", trust_env=False).status_code == 405
    assert httpx.get(url, trust_env=False).status_code == 404


@pytest.mark.parametrize(
    "argument", [{"buffer": 0}, {"buffer": "5"}, {"buffer_bytes": 0}, {"readers_max": 1_000}]
)
def test_a_wrong_argument_is_named(argument):
    with pytest.raises(InvalidError, match=next(iter(argument))):
        sinks.websocket(**argument)
