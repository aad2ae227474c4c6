"""Where a project is, and what its topics are called."""

import re
import sys

import pytest

from forebay.brokers.pubsub.address import Address, pubsub_modules
from forebay.errors import ConfigError


def test_a_url_names_a_project_and_how_long_things_last():
    address = Address.of("pubsub://basin-1?prefix=shop&ack_deadline=1m&retention=1h")
    assert address[:4] == ("basin-1", "shop", 60.0, 3600.0)
    assert Address.of("pubsub://example.com:basin")[:4] == ("example.com:basin", "forebay", 30.0, 604_800.0)
    assert address.topic(address.name("a.b")) == "projects/basin-1/topics/shop-a-2eb"
    assert address.subscription(address.dead_name("echo")) == "projects/basin-1/subscriptions/shop-echo--dead"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("pubsub://", "cannot be read"),
        ("pubsub://UPPER", "cannot be read"),
        ("pubsub://a/b", "cannot be read"),
        ("pubsub://basin?nothing=1", "unknown parameter 'nothing'"),
        ("pubsub://basin?prefix=google", "prefix must be"),
        ("pubsub://basin?prefix=1", "prefix must be"),
        ("pubsub://basin?ack_deadline=5s", "ack_deadline must be from 10 s to 600 s, not '5s'"),
        ("pubsub://basin?retention=30d", "retention must be from 600 s to 604800 s"),
        ("pubsub://basin?retention=soon", "retention: "),
    ],
)
def test_what_cannot_be_read_is_one_line(url, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        Address.of(url)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("broker: ")


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.pubsub_v1", None)
    with pytest.raises(ConfigError, match=re.escape('pip install "forebay[pubsub]"')):
        pubsub_modules()


def test_names_are_those_that_the_service_takes():
    address = Address.of("pubsub://basin")
    for task in ("a", "\u00fc" * 100, "x" * 300, "a-b", "a_b", ""):
        for name in (address.name(task), address.dead_name(task)):
            assert re.fullmatch(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}", name)
