"""tls://: the certificate must be of the host in the URL, and nothing is said before there is one."""

import asyncio

import pytest

from forebay.brokers.nats import NatsTransport
from forebay.conformance.hinting import bodies, received, same
from forebay.errors import DeliveryUnavailableError
from tests.brokers.nats.server import NatsServer
from tests.certificates import certified

pytestmark = pytest.mark.engines


@pytest.mark.parametrize(
    ("host", "trusted", "line"),
    [("127.0.0.1", True, ""), ("127.0.0.1", False, "not accepted"), ("127.0.0.9", True, "not accepted")],
    ids=["right", "of-nobody-we-trust", "of-another-host"],
)
def test_a_certificate_is_held_to_the_host_and_to_who_is_trusted(tmp_path, host, trusted, line):
    one = NatsServer(tls=certified(tmp_path, host))
    more = {"ca": tmp_path / "cert.pem"} if trusted else {}

    async def run():
        try:
            transport = await NatsTransport.open(one.url(**more).replace("nats://", "tls://"))
        except DeliveryUnavailableError as error:
            assert line and line in str(error)
            return
        assert not line
        await transport.send("echo", bodies(2))
        same(await received(transport, "echo", 2), bodies(2), "what came")
        await transport.close()

    try:
        one.start()
        asyncio.run(run())
    finally:
        one.stop()


def test_no_password_is_sent_to_a_server_that_offers_no_tls(server):
    async def run():
        heard = []

        async def listen(reader, writer):
            writer.write(
                b'INFO {"server_id":"x","version":"2.15.1","headers":true,"max_payload":1048576}\r\n'
            )
            heard.append(await reader.read())
            writer.close()

        async with await asyncio.start_server(listen, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            with pytest.raises(DeliveryUnavailableError, match="offers no TLS"):
                await NatsTransport.open(f"tls://me:hush@127.0.0.1:{port}")
        while not heard:
            await asyncio.sleep(0)
        assert heard == [b""]

    asyncio.run(run())
