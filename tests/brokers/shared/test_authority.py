"""Passwords in URLs: one whose signs are not escaped is refused, and no piece of it is shown."""

import pytest

from forebay.brokers.nats.address import Address as Nats
from forebay.brokers.postgres.address import Address as Postgres
from forebay.brokers.rabbitmq.address import Address as Rabbit
from forebay.brokers.redis.address import Address as Redis
from forebay.errors import ConfigError
from forebay.values import without_password

KINDS = {"postgresql": Postgres, "redis": Redis, "amqp": Rabbit, "nats": Nats}


@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize(
    "password", ["hush@hush:hush/hush", "hush/hush", "hush@1/hush", "hush#hush", "1/hush", "1?hush"]
)
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(scheme, password):
    url = f"{scheme}://user:{password}@127.0.0.1:1/0"
    with pytest.raises(ConfigError) as told:
        KINDS[scheme].of(url)
    assert "hush" not in str(told.value) and "%40" in str(told.value) and "\n" not in str(told.value)
    assert "hush" not in without_password(url) and without_password(url).startswith(f"{scheme}://user:***@")


@pytest.mark.parametrize("scheme", ["postgresql", "redis", "amqp"])
def test_one_that_is_escaped_is_taken_and_not_shown(scheme):
    address = KINDS[scheme].of(f"{scheme}://user:hush%40%2F%3F%23@127.0.0.1:1/0")
    assert "hush" not in address.label and "127.0.0.1:1" in address.label
