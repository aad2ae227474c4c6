"""What URLs name, what queues are called, and how bodies stand in messages."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.brokers.sqs.address import DEAD, WAITING, Address
from forebay.brokers.sqs.wire import body_of, groups, tens, text_of
from forebay.errors import ConfigError
from forebay.ports.transport import BODY_MAX

TASKS = st.builds("".join, st.tuples(st.sampled_from("aZ_"), st.text("aZ_.-09", max_size=99)))
PREFIXES = st.text("aZ_0", min_size=1, max_size=20)


@pytest.mark.parametrize(
    "url,region,prefix,endpoint,label",
    [
        ("sqs://eu-central-1/shop", "eu-central-1", "shop", None, "sqs://eu-central-1/shop"),
        ("sqs://eu-central-1", "eu-central-1", "forebay", None, "sqs://eu-central-1/forebay"),
        ("sqs:///shop", None, "shop", None, "sqs:///shop"),
        ("sqs://", None, "forebay", None, "sqs:///forebay"),
        (
            "sqs://us-east-1/a?endpoint=http://127.0.0.1:5",
            "us-east-1",
            "a",
            "http://127.0.0.1:5/",
            "sqs://127.0.0.1:5/a",
        ),
        (
            "sqs:///a?endpoint=https%3A%2F%2Fsqs.example%2Fx",
            None,
            "a",
            "https://sqs.example/x/",
            "sqs://sqs.example/a",
        ),
    ],
)
def test_a_url_names_a_region_and_a_prefix(url, region, prefix, endpoint, label):
    assert Address.of(url) == (region, prefix, endpoint, label)


@pytest.mark.parametrize(
    "url,line",
    [
        ("sqs://AKIA:secret@eu-central-1/x", "takes no credentials"),
        ("sqs://eu-central-1:443/x", "endpoint=http://host:port"),
        ("sqs://EU/x", "cannot be read"),
        ("sqs://[/x", "cannot be read"),
        ("sqs://eu-central-1/a-b", "the prefix of queues must be"),
        ("sqs://eu-central-1/a/b", "the prefix of queues must be"),
        (f"sqs://eu-central-1/{'x' * 21}", "at most 20"),
        ("sqs://eu-central-1/x?region=a", "unknown parameter 'region'"),
        ("sqs://eu-central-1/x?endpoint=ftp://a", "endpoint must be"),
        ("sqs://eu-central-1/x?endpoint=http://a:b@c", "endpoint must be"),
        ("https://eu-central-1/x", "is not Amazon SQS"),
    ],
)
def test_a_wrong_url_is_told_in_one_line(url, line):
    with pytest.raises(ConfigError, match=re.escape(line)) as told:
        Address.of(url)
    assert "\n" not in str(told.value) and "secret" not in str(told.value)


@given(st.sets(st.tuples(PREFIXES, TASKS, st.sampled_from([WAITING, DEAD])), min_size=2, max_size=8))
def test_no_two_queues_share_a_name(places):
    names = [Address(None, prefix, None, "").queue(task, kind) for prefix, task, kind in places]
    assert len(set(names)) == len(places)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name) for name in names)


@pytest.mark.parametrize(
    "one,other",
    [
        (("a", "a.b", WAITING), ("a", "a_b", WAITING)),
        (("a", "x" * 100, WAITING), ("a", "x" * 99, WAITING)),
        (("a", "t", DEAD), ("a", "dead-t", WAITING)),
        (("a", "task-t", WAITING), ("a_task", "t", WAITING)),
    ],
)
def test_names_that_look_alike_are_told_apart(one, other):
    names = {Address(None, prefix, None, "").queue(task, kind) for prefix, task, kind in (one, other)}
    assert len(names) == 2


def test_what_is_cut_cannot_be_the_name_of_another_task():
    cut = Address(None, "a", None, "").queue("x.y")
    assert cut.startswith("a-task--x_y-")  # behind the prefix it begins with a hyphen, as no task does


@given(st.binary(max_size=BODY_MAX))
def test_any_bytes_come_back_from_text_that_the_service_takes(body):
    text = text_of(body)
    assert text and all(0x20 <= ord(character) < 0x7F for character in text)
    assert body_of(text) == body


def test_people_can_read_what_is_text_and_nothing_is_taken_for_something_else():
    assert text_of(b'{"job":"1"}') == '{"job":"1"}'
    assert text_of(b"b64:eA==") != "b64:eA=="
    assert body_of(text_of(b"b64:eA==")) == b"b64:eA=="


@pytest.mark.parametrize(
    "text",
    ["", "b64:", "b64:%%%", "b64:x", "\U0001f980" * 600, "x" * 1_000_000, "b64:" + "QUFB" * 9999, "\ud800"],
)
def test_whatever_somebody_sends_is_bytes_of_a_bounded_size(text):
    assert len(body_of(text)) <= BODY_MAX + 1


@given(st.lists(st.sampled_from(["a", "ü" * 1000, "x" * 100_000, "x" * 200_000]), max_size=40))
def test_calls_hold_ten_entries_and_no_more_bytes_than_the_service_takes(texts):
    calls = list(groups(texts))
    assert [entry["MessageBody"] for call in calls for entry in call] == texts
    for call in calls:
        assert 1 <= len(call) <= 10 and len({entry["Id"] for entry in call}) == len(call)
        assert sum(len(entry["MessageBody"].encode()) for entry in call) <= 256 * 1024 or len(call) == 1


def test_handles_go_ten_in_a_call():
    calls = list(tens([{"ReceiptHandle": str(n)} for n in range(23)]))
    assert [len(call) for call in calls] == [10, 10, 3]
    assert [entry["ReceiptHandle"] for call in calls for entry in call] == [str(n) for n in range(23)]
