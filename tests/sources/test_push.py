"""Frames that others send: taken in with their header, answered with credits, refused in one problem."""

import json
import socket
import threading

import httpx
import numpy
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from forebay import sources
from forebay.core.envelope import pack
from forebay.errors import ConfigError, InvalidError, UnreachableError
from forebay.streams.ports import Pressure, Source

TOKEN = "a-token-of-16-or-more"


@pytest.fixture
def make():
    made = []

    def push(**settings):
        made.append(sources.push(**settings))
        return made[-1]

    yield push
    for one in made:
        one.close()


def put(source, stream="door", content=b"jpeg", method="PUT", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(
        method,
        f"{source.url}/v1/streams/{stream}",
        content=content,
        headers=names,
        timeout=30,
        trust_env=False,
    )


def dial(source, stream="door", **settings):
    return connect(f"{source.url.replace('http', 'ws')}/v1/streams/{stream}", proxy=None, **settings)


def test_it_satisfies_what_a_pipeline_asks(make):
    source = make()
    assert isinstance(source, Source) and source.live
    assert source.item_bytes_max == 16 * 1024**2


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_frame_arrives_with_what_its_header_says(make, method):
    source = make()
    array = numpy.arange(24, dtype="<i2").reshape(2, 4, 3)
    header = {
        "shape": [2, 4, 3],
        "dtype": "<i2",
        "captured_at": 5.5,
        "deadline": 9.0,
        "seq": 7,
        "facts": {"n": 1},
    }
    answer = put(source, content=array.tobytes(), method=method, forebay_frame=json.dumps(header))
    assert answer.status_code == 202
    assert answer.json() == {
        "stream": "door", "seq": 7, "taken": True, "reason": None, "credits": None, "every": 1, "retry_after_s": None,
    }  # fmt: skip
    got = next(iter(source))
    assert numpy.array_equal(got.pixels, array) and got.pixels.dtype == array.dtype
    assert (got.stream, got.captured_at, got.deadline, got.facts) == ("door", 5.5, 9.0, {"n": 1})


def test_bytes_arrive_with_their_media_type_and_the_time_they_came(make):
    source = make()
    before = source.clock.now()
    assert put(source, content_type="image/jpeg").json()["seq"] == 0
    got = next(iter(source))
    assert (got.pixels, got.facts) == (b"jpeg", {"content_type": "image/jpeg"})
    assert before <= got.captured_at <= source.clock.now()


def test_a_capture_in_the_future_is_of_now(make):
    source = make()
    put(source, forebay_frame=json.dumps({"captured_at": 1e12}))
    assert next(iter(source)).captured_at <= source.clock.now()


def test_of_each_stream_the_newest_is_given_and_what_it_replaced_is_counted(make):
    source = make()
    for stream, content in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        assert put(source, stream, content).status_code == 202
    frames = iter(source)
    assert [(one.stream, one.pixels) for one in (next(frames), next(frames))] == [("a", b"3"), ("b", b"2")]
    assert (source.counts()["frames"], source.counts()["skipped"]) == (3, 1)


def test_the_sender_hears_its_credits_and_when_to_come_back(make):
    source = make()
    source.press(Pressure("door", 5))
    answer = put(source)
    assert (answer.headers["forebay-credits"], answer.json()["credits"]) == ("5", 5)
    source.press(Pressure("door", 0, retry_after_s=40.5))
    answer = put(source)
    assert answer.status_code == 429
    assert (answer.headers["retry-after"], answer.json()["code"]) == ("41", "queue_full")
    assert put(source, "hall").status_code == 202  # another stream is not held up
    source.press(Pressure("door", 3, every=2))
    taken = [put(source).json() for _ in range(4)]
    assert [one["taken"] for one in taken] == [False, True, False, True]
    assert taken[0]["reason"] == "decimated"
    counts = source.counts()
    assert (counts["held_off"], counts["decimated"]) == (1, 2)


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ("[]", "JSON object"),
        ("{", "JSON object"),
        ('{"shape": [9]}', "shape"),
        ('{"dtype": "O"}', "dtype"),
        ('{"captured_at": "noon"}', "captured_at"),
        ('{"captured_at": NaN}', "captured_at"),
        ('{"colour": 1}', "colour"),
        ('{"facts": [1]}', "facts"),
    ],
)
def test_a_wrong_header_is_one_problem_that_names_the_field(make, header, word):
    source = make()
    answer = put(source, forebay_frame=header)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert word in answer.json()["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert source.counts()["invalid"] == 1 and source.counts()["frames"] == 0


def test_what_is_no_frame_is_refused(make):
    source = make(item_bytes_max=100)
    assert put(source, content=b"").status_code == 422
    assert put(source, content=b"x" * 101).status_code == 413
    assert put(source, content=iter([b"x" * 60] * 3)).status_code == 413
    assert put(source, content=b"x" * 100).status_code == 202
    assert put(source, content_encoding="gzip").status_code == 415
    assert put(source, method="GET").status_code == 405
    assert put(source, "a/b").status_code == 404
    assert put(source, "a%2fb").status_code == 404
    assert put(source, "a b").status_code == 422
    assert httpx.get(source.url, trust_env=False).status_code == 404


def test_only_named_streams_are_taken_in_and_no_more_than_so_many(make):
    named = make(streams=("door",))
    assert put(named).status_code == 202
    assert put(named, "hall").status_code == 404
    few = make(streams_max=2)
    assert [put(few, name).status_code for name in ("a", "b", "c", "a")] == [202, 202, 429, 202]


def test_a_page_of_another_origin_may_not_send(make):
    source = make()
    assert put(source, origin="https://elsewhere.example").status_code == 403
    assert put(source, host="elsewhere.example").status_code == 421
    with pytest.raises(InvalidStatus) as caught:
        dial(source, origin="https://elsewhere.example")
    assert caught.value.response.status_code == 403


def test_who_does_not_show_the_token_stays_outside(make):
    source = make(token=TOKEN)
    assert put(source).status_code == 401
    assert put(source, authorization="Bearer wrong").status_code == 401
    assert put(source, authorization=f"Basic {TOKEN}").status_code == 401
    assert put(source, authorization=f"Bearer {TOKEN}").status_code == 202
    with pytest.raises(InvalidStatus) as caught:
        dial(source)
    assert caught.value.response.status_code == 401
    with dial(source, additional_headers={"Authorization": f"Bearer {TOKEN}"}):
        pass


def test_what_others_can_reach_needs_a_token():
    with pytest.raises(ConfigError, match=r"host 0\.0\.0\.0 can be reached from elsewhere: give token="):
        sources.push(host="0.0.0.0")
    with pytest.raises(ConfigError, match="token must be 16 or more"):
        sources.push(token="short")


def test_a_conversation_is_answered_frame_by_frame_and_survives_what_is_wrong_in_it(make):
    source = make()
    source.press(Pressure("hall", 9))
    frames = iter(source)
    with dial(source, "hall") as socket:
        for number in range(3):
            socket.send(pack({"shape": [2], "seq": number}) + bytes([number, 7]))
            assert json.loads(socket.recv(timeout=30)) == {
                "stream": "hall", "seq": number, "taken": True, "reason": None, "credits": 9, "every": 1,
                "retry_after_s": None,
            }  # fmt: skip
            assert next(frames).pixels.tolist() == [number, 7]
        for wrong in ("text", b"", b"\0\0\0\x01", b"\xff" * 40, pack({"shape": [5]}) + b"xy", pack({})):
            socket.send(wrong)
            said = json.loads(socket.recv(timeout=30))
            assert (said["taken"], said["reason"]) == (False, "invalid")
        socket.send(pack({}) + b"still here")
        assert json.loads(socket.recv(timeout=30))["taken"]
        assert next(frames).pixels == b"still here"
    assert source.counts()["invalid"] == 6


def test_a_message_larger_than_may_be_ends_the_conversation(make):
    source = make(item_bytes_max=1_000)
    with dial(source, max_size=None) as socket:
        with pytest.raises(ConnectionClosed) as caught:
            socket.send(b"x" * 100_000)
            socket.recv(timeout=30)
        closed = caught.value.rcvd  # none where the rest of the message was still on its way
        assert closed is None or closed.code == 1009


def test_close_ends_who_reads_and_who_sends(make):
    source = make()
    got = []
    reader = threading.Thread(target=lambda: got.extend(source))
    reader.start()
    with dial(source) as socket:
        source.close()
        source.close()
        reader.join(30)
        assert not reader.is_alive() and got == []
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=30)
    try:
        status = put(source).status_code
    except httpx.TransportError:
        status = None
    assert status != 202


def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UnreachableError, match=r"cannot listen on 127\.0\.0\.1:\d+: ") as caught:
            sources.push(port=taken.getsockname()[1])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("streams_max", 0),
        ("streams_max", "5"),
        ("item_bytes_max", 0),
        ("item_bytes_max", "big"),
        ("streams", ("a/b",)),
    ],
)
def test_a_wrong_argument_is_named(argument, value):
    with pytest.raises(InvalidError, match="stream must" if argument == "streams" else argument):
        sources.push(**{argument: value})


def test_a_source_without_a_port_is_for_a_pipeline_that_a_server_runs():
    with pytest.raises(InvalidError, match="port=None is for a pipeline that `forebay serve` runs"):
        sources.push(port=None)
