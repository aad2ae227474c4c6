"""Where a cluster is, and what its topics are called."""

import itertools
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.brokers.kafka.address import Address, kafka_module
from forebay.errors import ConfigError


def test_a_url_names_servers_and_how_topics_are_made():
    address = Address.of(
        "kafka://one:9093,two,[::1]:7?prefix=shop&partitions=3&replicas=2&retention=1h&make=no"
    )
    assert address.servers == "one:9093,two:9092,[::1]:7"
    assert address[2:7] == ("shop", 3, 2, 3600.0, False)
    plain = Address.of("kafka://one")
    assert plain[2:7] == ("forebay", 12, -1, 7 * 86_400.0, True)
    assert plain.settings == {} and plain.label == "kafka://one:9092"


def test_a_name_and_password_mean_tls_and_are_shown_nowhere():
    address = Address.of("kafka://me:p%40ss@one?ssl.ca.location=/ca.pem")
    assert address.settings == {
        "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/ca.pem",
        "sasl.username": "me", "sasl.password": "p@ss",
    }  # fmt: skip
    assert "p@ss" not in address.label and "me" not in address.label.removeprefix("kafka://")
    plain = Address.of("kafka://me:x@one?security.protocol=sasl_plaintext&sasl.mechanism=SCRAM-SHA-512")
    assert plain.settings["security.protocol"] == "sasl_plaintext"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("kafka://", "cannot be read"),
        ("kafka:one", "cannot be read"),
        ("kafka://one,,two", "cannot be read"),
        ("kafka://one/path", "cannot be read"),
        ("kafka://secret:word@o ne", "cannot be read"),
        ("kafka://one?nothing=1", "unknown parameter 'nothing'"),
        ("kafka://one?prefix=a-b", "prefix must be letters"),
        ("kafka://one?prefix=", "prefix must be letters"),
        ("kafka://one?partitions=0", "partitions must be a number from 1 to 1000, not '0'"),
        ("kafka://one?partitions=%C2%B2", "partitions must be a number"),
        ("kafka://one?replicas=x", "replicas must be a number"),
        ("kafka://one?retention=1s", "retention must be 60 s or more"),
        ("kafka://one?retention=soon", "retention: "),
        ("kafka://one?make=maybe", "make must be yes or no"),
    ],
)
def test_what_cannot_be_read_is_one_line(url, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        Address.of(url)
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value)
    assert str(caught.value).startswith("broker: ")


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=re.escape('pip install "forebay[kafka]"')):
        kafka_module()


def test_a_topic_reads_like_its_task():
    address = Address.of("kafka://one")
    assert address.topic("read_invoice") == "forebay-read_invoice"
    assert address.topic("a.b-c") == "forebay-a-2eb-2dc"
    assert address.dead_topic("echo") == "forebay-echo--dead"


NAMES = [
    "a",
    "b",
    "a-b",
    "a_b",
    "a.b",
    "a--dead",
    "a-2db",
    "A",
    "\u00fc",
    "",
    "x" * 300,
    "x" * 301,
    "-" * 300,
]


def test_topics_are_different_for_different_tasks_and_prefixes():
    addresses = [Address.of(f"kafka://one?prefix={prefix}") for prefix in ("a", "a_b", "forebay")]
    topics = [make(name) for one in addresses for name in NAMES for make in (one.topic, one.dead_topic)]
    assert len(set(topics)) == len(topics)
    # Brokers take . and _ for one another when they look for names that collide.
    assert len({topic.replace(".", "_") for topic in topics}) == len(topics)
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) for topic in topics)


@given(st.text(max_size=80), st.text(max_size=80))
def test_two_tasks_never_share_a_topic(one, other):
    address = Address.of("kafka://one")
    names = list(itertools.chain(*((address.topic(task), address.dead_topic(task)) for task in (one, other))))
    assert len(set(names)) == (2 if one == other else 4)
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) for name in names)
