"""amqps://: the certificate must be of the host in the URL and of who is trusted, and nothing stays half open."""

import asyncio
import os
import shutil

import psutil
import pytest

from forebay.brokers.rabbitmq import RabbitTransport
from forebay.conformance.hinting import bodies, received, same
from forebay.errors import DeliveryUnavailableError
from tests.brokers.rabbitmq.server import RabbitServer
from tests.certificates import certified
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]

TRIES_MAX = 10  # a busy machine makes the driver give up


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Return the port where a server speaks TLS, with a certificate of 127.0.0.1, and the certificate."""
    files = certified(tmp_path_factory.mktemp("tls"), "127.0.0.1")
    port = free_port()
    one = RabbitServer(**{"listeners.ssl.default": f"127.0.0.1:{port}", "ssl_options.verify": "verify_none"})
    for name in ("cert", "key"):
        place = one.root / f"{name}.pem"
        shutil.copyfile(files[f"{name}_file"], place)
        if one.user is not None:
            os.chown(place, one.user.pw_uid, one.user.pw_gid)
        one.settings[f"ssl_options.{name}file"] = place
    try:
        one.start()
        yield port, files["cert_file"]
    finally:
        one.stop()


async def opened(url):
    for _ in range(TRIES_MAX):
        try:
            return await RabbitTransport.open(url)
        except DeliveryUnavailableError as error:
            if "certificate" in str(error).lower():
                raise
            last = error
    raise last


@pytest.mark.parametrize(
    ("host", "trusted"),
    [("127.0.0.1", True), ("127.0.0.1", False), ("localhost", True)],
    ids=["right", "of-nobody-we-trust", "of-another-host"],
)
def test_a_certificate_is_held_to_the_host_and_to_who_is_trusted(secured, host, trusted):
    port, certificate = secured
    url = f"amqps://{host}:{port}/{f'?cafile={certificate}' if trusted else ''}"

    async def run():
        try:
            transport = await opened(url)
        except DeliveryUnavailableError as error:
            assert (host, trusted) != ("127.0.0.1", True), str(error)
            assert "certificate" in str(error).lower() and "\n" not in str(error)
        else:
            assert (host, trusted) == ("127.0.0.1", True)
            await transport.send("echo", bodies(2))
            same(await received(transport, "echo", 2), bodies(2), "what came")
            await transport.close()
        mine = psutil.Process().net_connections("tcp")
        assert not [one for one in mine if one.raddr and one.raddr.port == port]

    asyncio.run(run())
