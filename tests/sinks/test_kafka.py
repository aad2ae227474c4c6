"""Kafka both ways, on librdkafka's own cluster: what a sink writes a source reads, and what goes wrong is said."""

import sys
import threading

import numpy
import pytest

from forebay import sinks, sources
from forebay.errors import ConfigError, InvalidError
from forebay.sources.failures import SinkError, SourceError
from forebay.streams.ports import Result, Sink, Source
from tests.sources.kafkas import Kafka

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def kafka():
    return Kafka()


def take(source, count):
    got = []
    for one in source:
        got.append(one)
        if len(got) == count:
            return got
    raise AssertionError("the topic ended")


def test_n13_what_a_sink_writes_to_a_topic_a_source_reads(kafka):
    sink = sinks.kafka(kafka.servers, "both")
    array = numpy.arange(24, dtype="<i2").reshape(2, 3, 4)
    for seq in range(3):
        sink.write(Result(array + seq, "door", seq, 5.0 + seq, 9.0, facts={"k": seq}))
    sink.close()
    assert sink.counts() == {"written": 3, "delivered": 3, "failed": 0, "dropped": 0}
    source = sources.kafka(kafka.servers, "both", start="earliest")
    assert isinstance(source, Source) and isinstance(sink, Sink) and not source.live
    got = take(source, 3)
    assert all(numpy.array_equal(one.pixels, array + seq) for seq, one in enumerate(got))
    assert [(one.stream, one.captured_at, one.facts) for one in got] == [
        ("door", 5.0 + n, {"k": n}) for n in range(3)
    ]


def test_bytes_are_named_by_key_or_topic_and_timed_by_the_message(kafka):
    kafka.send("plain", b"one", key="hall", timestamp=7_500, partition=0)
    kafka.send("plain", b"two", key="not a name", partition=0)
    first, second = take(sources.kafka(kafka.servers, "plain", start="earliest"), 2)
    assert (first.pixels, first.stream, first.captured_at) == (b"one", "hall", 7.5)
    assert (second.pixels, second.stream) == (b"two", "plain")
    (named,) = take(sources.kafka(kafka.servers, "plain", start="earliest", stream="mine"), 1)
    assert named.stream == "mine"


def test_what_is_no_frame_is_passed_over_and_counted(kafka):
    for value, headers in (
        (None, {}),
        (b"xy", {"forebay-frame": b"[]"}),
        (b"xy", {"forebay-frame": b'{"shape": [9]}'}),
        (b"x" * 2_000, {}),
        (b"good", {}),
    ):
        kafka.send("mixed", value, headers=headers, partition=0)
    source = sources.kafka(kafka.servers, "mixed", start="earliest", item_bytes_max=1_000)
    assert [one.pixels for one in take(source, 1)] == [b"good"]
    assert source.counts()["invalid"] == 4
    assert "larger than item_bytes_max" in source.says


@pytest.mark.slow  # a group waits for others to join it, and for those that left
def test_a_group_goes_on_where_it_was(kafka):
    def reader():
        return sources.kafka(
            kafka.servers, "groups", start="earliest", group="g", settings={"session.timeout.ms": 6_000}
        )

    for number in range(4):
        kafka.send("groups", b"%d" % number, partition=0)
    # The third was in our hands and no more: nobody asked beyond it, so it is given again.
    assert [one.pixels for one in take(reader(), 3)] == [b"0", b"1", b"2"]
    assert [one.pixels for one in take(reader(), 2)] == [b"2", b"3"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_without_a_group_a_reader_begins_where_it_says(kafka, start):
    kafka.send(f"fresh-{start}", b"old", partition=0)
    source = sources.kafka(kafka.servers, f"fresh-{start}", start=start)
    got = []
    reader = threading.Thread(target=lambda: got.extend(one.pixels for one in source))
    reader.start()
    sent = 0
    while not got and sent < 600:  # the place in the topic is looked up some time after the start
        kafka.send(f"fresh-{start}", b"new", partition=0)
        sent += 1
        reader.join(0.1)
    source.close()
    reader.join(30)
    assert got[0] == {"earliest": b"old", "latest": b"new"}[start]


def test_close_ends_a_reader_that_waits(kafka):
    kafka.send("idle", b"first", partition=0)
    source = sources.kafka(kafka.servers, "idle", start="earliest")
    got, first = [], threading.Event()

    def read():
        for one in source:
            got.append(one)
            first.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert first.wait(60)
    source.close()
    reader.join(30)
    assert not reader.is_alive() and len(got) == 1


def test_brokers_that_cannot_be_reached_are_one_line():
    with pytest.raises(SourceError, match=r"kafka 127\.0\.0\.1:1: ") as caught:
        list(sources.kafka("127.0.0.1:1", "t", connect="500ms"))
    assert "\n" not in str(caught.value)
    sink = sinks.kafka("127.0.0.1:1", "t", wait="500ms")
    sink.write(Result(1, "door", 0, 1.0, 2.0))
    with pytest.raises(SinkError, match="1 results were not confirmed"):
        sink.close()


def test_a_client_that_is_full_drops_and_says_so():
    sink = sinks.kafka(
        "127.0.0.1:1",
        "t",
        wait="50ms",
        settings={"queue.buffering.max.messages": 2, "message.timeout.ms": 60_000},
    )
    for seq in range(2):
        sink.write(Result(1, "door", seq, 1.0, 2.0))
    with pytest.raises(SinkError, match="wait for the brokers"):
        sink.write(Result(1, "door", 2, 1.0, 2.0))
    assert (sink.counts()["written"], sink.counts()["dropped"]) == (2, 1)
    sink._producer.purge()
    sink.close()


@pytest.mark.parametrize("make", [sources.kafka, sinks.kafka], ids=["source", "sink"])
def test_a_wrong_argument_is_named(make):
    for arguments, word in (
        ({"topic": ""}, "topic"),
        ({"item_bytes_max": 0}, "item_bytes_max"),
        ({"settings": {"no.such.setting": 1}}, "kafka settings"),
    ):
        with pytest.raises(InvalidError, match=word):
            list(make(**({"servers": "127.0.0.1:1", "topic": "t"} | arguments)))
    with pytest.raises(InvalidError, match="start must be one of"):
        sources.kafka("127.0.0.1:1", "t", start="middle")


def test_without_the_extra_one_line_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for make in (sources.kafka, sinks.kafka):
        with pytest.raises(ConfigError, match=r"needs the extra `kafka`: pip install 'forebay\[kafka\]'"):
            make("127.0.0.1:1", "t")
