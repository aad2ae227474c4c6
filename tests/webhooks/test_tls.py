"""TLS to a checked address: the certificate must be of the name in the URL, and of somebody who is trusted.

The certificates beside this file were made for it, are of no use elsewhere, and end in a hundred years.
"""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from forebay.core.outbox import DeliveryState
from tests.webhooks.receivers import INSIDE, Post, Receiver, eventually
from tests.webhooks.test_sender import SLOW

HERE = Path(__file__).parent / "certificates"


async def at_home(_host, _port):
    return [ip_address("127.0.0.1")]


def first_try(monkeypatch, name, *, trusted=True, place=HERE):
    """Send to https://NAME, which is answered under a certificate of hooks.example; return the try and SNI."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(place / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(place / "hooks.example.pem")
    asked = []
    context.sni_callback = lambda _socket, server_name, _context: asked.append(server_name)

    async def run():
        async with asyncio.timeout(30), Receiver(tls=context) as receiver:
            async with Post(rules=INSIDE, resolve=at_home, policy=SLOW) as office:
                job_id = await office.ended(f"https://{name}:{receiver.port}/x")
                await eventually(lambda: asyncio.sleep(0, office.outcomes), "a try")
                row = await office.row(job_id)
                return row, [headers["host"] for headers, _ in receiver.requests], receiver.port

    row, hosts, port = asyncio.run(run())
    return row, asked, [host.removesuffix(f":{port}") for host in hosts]


def test_the_name_of_the_url_is_asked_for_and_held_to_the_certificate(monkeypatch):
    row, asked, hosts = first_try(monkeypatch, "hooks.example")
    assert row.state is DeliveryState.DELIVERED
    assert (asked, hosts) == (["hooks.example"], ["hooks.example"])


def test_a_certificate_of_another_name_is_a_failed_try(monkeypatch):
    row, _, hosts = first_try(monkeypatch, "other.example")
    assert row.state is DeliveryState.WAITING
    assert "CERTIFICATE_VERIFY_FAILED" in row.log[0].detail
    assert hosts == []


def test_a_certificate_of_nobody_we_trust_is_a_failed_try(monkeypatch):
    row, _, hosts = first_try(monkeypatch, "hooks.example", trusted=False)
    assert "CERTIFICATE_VERIFY_FAILED" in row.log[0].detail
    assert hosts == []


def certificates(place, valid_from, valid_until):
    """Write an authority and a certificate of hooks.example that it signed, valid between these instants."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of a test")])
    decade = timedelta(days=3_650)
    now = datetime.now(UTC)

    def signed(subject, public_key, since, until, *extensions):
        builder = x509.CertificateBuilder(
            authority_name, subject, public_key, x509.random_serial_number(), since, until
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    ca = x509.BasicConstraints(ca=True, path_length=None)
    authority = signed(authority_name, authority_key.public_key(), now - decade, now + decade, ca)
    (place / "authority.pem").write_bytes(authority)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hooks.example")])
    names = x509.SubjectAlternativeName([x509.DNSName("hooks.example")])
    leaf = signed(name, key.public_key(), valid_from, valid_until, names)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (place / "hooks.example.pem").write_bytes(leaf + secret)


@pytest.mark.parametrize(
    ("from_days", "until_days", "said"), [(-2, -1, "certificate has expired"), (1, 2, "not yet valid")]
)
def test_a_certificate_whose_time_is_over_or_has_not_come_is_a_failed_try(
    monkeypatch, tmp_path, from_days, until_days, said
):
    now = datetime.now(UTC)
    certificates(tmp_path, now + timedelta(days=from_days), now + timedelta(days=until_days))
    row, _, hosts = first_try(monkeypatch, "hooks.example", place=tmp_path)
    assert row.state is DeliveryState.WAITING
    assert said in row.log[0].detail
    assert hosts == []


def test_a_certificate_made_the_same_way_delivers_while_it_is_valid(monkeypatch, tmp_path):
    now = datetime.now(UTC)
    certificates(tmp_path, now - timedelta(days=1), now + timedelta(days=1))
    row, _, hosts = first_try(monkeypatch, "hooks.example", place=tmp_path)
    assert row.state is DeliveryState.DELIVERED
    assert hosts == ["hooks.example"]
