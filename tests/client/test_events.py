"""The events of a job as a client reads them: each part once, over whatever breaks in between."""

import pytest

from forebay.client.events import Following, JobEvent, Parser, PartReader
from forebay.client.faults import StreamRestartedError
from forebay.client.plans import Terms
from forebay.client.wire import Answer, Call, Lost
from forebay.errors import NotFinishedError, NotFoundError, UnreachableError


class Time:
    """A clock for terms."""

    def __init__(self):
        self.now = 100.0

    def terms(self, **more):
        return Terms(lambda: self.now, lambda: 0.0, **more)


def partial(index, *parts):
    return JobEvent("partial", {"attempt": 1, "index": index, "parts": list(parts)})


def test_a_stream_is_cut_into_events_wherever_it_is_broken():
    text = b'retry: 5\n\nid: a-1\nevent: status\ndata: {"state":"queued"}\n\n: still here\n\nevent: gap\ndata: {}\n\n'
    for size in (1, 2, 7, 1000):
        parser = Parser()
        events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
        assert events == [JobEvent("status", {"state": "queued"}, "a-1"), JobEvent("gap", {})]


def test_parts_are_given_once_and_what_was_missed_comes_with_the_end():
    reader = PartReader()
    assert reader.take(partial(0, "a", "b")) == ["a", "b"]
    assert reader.take(partial(1, "b", "c")) == ["c"]
    assert reader.take(JobEvent("gap", {"missed": 3})) == []
    assert reader.take(partial(6, "g")) == []
    assert reader.rest(list("abcdefgh")) == list("defgh")


def test_an_attempt_that_yields_the_same_again_is_not_noticed_and_another_is_said():
    reader = PartReader()
    reader.take(partial(0, "a", "b"))
    assert reader.take(JobEvent("restart", {"attempt": 2})) == []
    assert reader.take(partial(0, "a")) == []
    assert reader.take(partial(1, "b", "c")) == ["c"]
    with pytest.raises(StreamRestartedError):
        reader.take(partial(0, "A"))
    for other in (["a"], ["a", "x", "c"]):
        with pytest.raises(StreamRestartedError):
            reader.rest(other)


def test_the_result_of_a_task_that_yields_nothing_is_the_only_part():
    assert PartReader().rest({"x": 1}) == [{"x": 1}]
    assert PartReader().rest(None) == [None]


def test_it_goes_on_behind_the_last_event_and_waits_as_told():
    time = Time()
    following = Following("j", 60.0, time.terms())
    assert following.call() == Call("GET", "/v1/jobs/j/events", headers=(("accept", "text/event-stream"),))
    (event,) = following.feed(b"id: e-7\nevent: status\ndata: {}\n\n")
    assert event.id == "e-7"
    assert list(following.feed(b'event: closing\ndata: {"retry_after_s":5.0}\n\n')) == []
    assert following.broken(None) >= 5.0
    assert following.call().headers[1] == ("last-event-id", "e-7")
    assert following.broken(Lost("reset", sent=True)) < 1.0


def test_a_submission_is_repeated_until_its_job_is_known_and_then_never_again():
    first = Call("POST", "/v1/jobs", body=b"{}")
    following = Following("", 60.0, Time().terms(), first)
    assert following.call() is first
    following.broken(Lost("reset", sent=True))
    assert following.call() is first
    list(following.feed(b'event: accepted\ndata: {"job_id":"j9"}\n\n'))
    assert following.call().path == "/v1/jobs/j9/events"


def test_it_gives_up_where_trying_is_useless_or_the_time_is_over():
    time = Time()
    following = Following("j", 60.0, time.terms(retry_for_s=10.0))
    gone = Answer(404, {"content-type": "application/problem+json"}, b'{"code":"not_found","detail":"no"}')
    with pytest.raises(NotFoundError):
        following.broken(gone)
    time.now += 11.0
    with pytest.raises(UnreachableError):
        following.broken(Lost("refused", sent=False))
    time.now += 60.0
    for step in (following.call, lambda: list(following.feed(b": still here\n\n"))):
        with pytest.raises(NotFinishedError):
            step()
