"""Signatures: what any Standard Webhooks library accepts, and nothing else."""

import base64
import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from forebay.core.signing_keys import read_keys
from forebay.errors import ConfigError
from forebay.secret import new_secret, own_secret
from forebay.webhooks.build import KEY_FILE as FILE_NAME
from forebay.webhooks.signing import signed

BODY = '{"job_id":"x","result":"ü"}'.encode()


def headers_of(secrets, *, at=None, body=BODY):
    at = at or datetime.now(UTC)
    made = signed(read_keys(secrets), message_id="msg_1", timestamp=int(at.timestamp()), body=body)
    return {name.decode(): value.decode() for name, value in made}


def test_the_reference_library_accepts_what_we_sign():
    secret = new_secret()
    assert Webhook(secret).verify(BODY, headers_of(secret)) == json.loads(BODY)


def test_it_refuses_every_flipped_byte_of_the_body():
    secret = new_secret()
    headers = headers_of(secret)
    for at in range(len(BODY)):
        flipped = BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]
        with pytest.raises((WebhookVerificationError, UnicodeDecodeError)):
            Webhook(secret).verify(flipped, headers)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_it_refuses_another_header(name):
    secret = new_secret()
    headers = headers_of(secret)
    headers[name] = headers[name][:-2] + ("11" if not headers[name].endswith("11") else "22")
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY, headers)


def test_it_refuses_another_secret_and_an_old_timestamp():
    secret = new_secret()
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(BODY, headers_of(secret))
    for minutes in (-6, 6):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(
                BODY, headers_of(secret, at=datetime.now(UTC) + timedelta(minutes=minutes))
            )


def test_while_secrets_are_rotated_receivers_with_either_accept():
    old, new = new_secret(), new_secret()
    headers = headers_of(f"{new}, {old}")
    assert len(headers["webhook-signature"].split()) == 2
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, headers)


@pytest.mark.parametrize(
    "text",
    [
        "", "secret", "whsec_", "whsec_$$$$", "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(), "WHSEC_" + base64.b64encode(b"x" * 32).decode(),
        ",".join(["whsec_" + base64.b64encode(b"x" * 32).decode()] * 6),
        "whsec_" + base64.b64encode(b"x" * 32).decode() + ",",
        "whsec_" + base64.b64encode(b"y" * 32).decode().replace("=", "") + "!",
    ],
)  # fmt: skip
def test_what_is_no_secret_is_refused_without_being_shown(text):
    with pytest.raises(ValueError, match="^must ") as refused:
        read_keys(text)
    assert len(text) < 10 or text.split("_", 1)[-1][:12] not in str(refused.value)


def test_a_store_keeps_a_secret_of_its_own(tmp_path):
    keys, path, made = own_secret(tmp_path, FILE_NAME)
    assert made
    assert path == tmp_path / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert own_secret(tmp_path, FILE_NAME) == (keys, path, False)
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_secret_left_by_a_crash_is_not_used(tmp_path):
    (tmp_path / f".{FILE_NAME}.new").write_text("whsec_ha")
    keys, _, made = own_secret(tmp_path, FILE_NAME)
    assert made
    assert len(keys[0]) == 32


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b"whsec_c2hvcnQ="])
def test_a_broken_secret_file_is_one_line_without_its_content(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=FILE_NAME) as refused:
        own_secret(tmp_path, FILE_NAME)
    assert "c2hvcnQ" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_secret_file_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(ConfigError, match=FILE_NAME):
        own_secret(tmp_path, FILE_NAME)
