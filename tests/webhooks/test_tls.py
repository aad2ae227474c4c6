"""TLS to a checked address: the certificate must be of the name in the URL, and of somebody who is trusted.

The certificates beside this file were made for it, are of no use elsewhere, and end in a hundred years.
"""

import asyncio
import ssl
from ipaddress import ip_address
from pathlib import Path

from forebay.core.outbox import DeliveryState
from tests.webhooks.receivers import INSIDE, Post, Receiver, eventually
from tests.webhooks.test_sender import SLOW

HERE = Path(__file__).parent / "certificates"


async def at_home(_host, _port):
    return [ip_address("127.0.0.1")]


def first_try(monkeypatch, name, *, trusted=True):
    """Send to https://NAME, which is answered under a certificate of hooks.example; return the try and SNI."""
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(HERE / "hooks.example.pem")
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
