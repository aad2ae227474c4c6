"""TLS to the server of a store: its certificate must be of the host in the URL and of who is trusted."""

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from forebay.brokers.postgres import PostgresBroker
from forebay.brokers.redis import RedisBroker
from forebay.errors import StoreUnavailableError
from tests.brokers.postgres.server import PostgresServer
from tests.brokers.redis.server import RedisServer
from tests.brokers.shared.sharing import WAIT_MAX_S, a_job, clock
from tests.certificates import certified
from tests.ports import free_port

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]


def postgres(files):
    """Return a server, how its engine is opened, and a URL without and with the trust."""
    one = PostgresServer().make()
    for place in (one.root / "cert.pem", one.root / "key.pem"):
        place.write_bytes(Path(files[f"{place.stem}_file"]).read_bytes())
        place.chmod(0o600)
        if one.user is not None:
            os.chown(place, one.user.pw_uid, one.user.pw_gid)
    one.start(ssl="on", ssl_cert_file=one.root / "cert.pem", ssl_key_file=one.root / "key.pem")
    return one, PostgresBroker, one.url("tls", sslmode="verify-full"), "sslrootcert"


def redis(files):
    one, port = RedisServer(), free_port()
    more = {"tls-port": port, "tls-cert-file": files["cert_file"], "tls-key-file": files["key_file"]}
    one.start(**more, **{"tls-ca-cert-file": files["cert_file"], "tls-auth-clients": "no"})
    return one, RedisBroker, f"rediss://127.0.0.1:{port}/0?name=tls", "ssl_ca_certs"


async def in_time(broker, url):
    """Open a store, again where a busy machine made the driver give up."""
    while True:
        try:
            return await broker.open(url, clock=clock)
        except StoreUnavailableError as error:
            if "time" not in str(error):
                raise


def connected(url):
    """Return this process's connections to the server of a URL."""
    port = urlsplit(url).port
    return [one for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port == port]


@pytest.mark.parametrize("engine", [postgres, redis])
@pytest.mark.parametrize(
    ("host", "trusted"),
    [("127.0.0.1", True), ("127.0.0.1", False), ("127.0.0.9", True)],
    ids=["right", "of-nobody-we-trust", "of-another-host"],
)
def test_a_certificate_is_held_to_the_host_and_to_who_is_trusted(tmp_path, engine, host, trusted):
    server, broker, url, trusts = engine(certified(tmp_path, host))
    if trusted:
        url += f"&{trusts}={tmp_path / 'cert.pem'}"

    async def run():
        async with asyncio.timeout(WAIT_MAX_S):
            try:
                opened = await in_time(broker, url)
            except StoreUnavailableError as error:
                assert (host, trusted) != ("127.0.0.1", True), str(error)
                assert "certificate" in str(error).lower() and "\n" not in str(error)
                return
            assert (host, trusted) == ("127.0.0.1", True)
            job = a_job(opened)
            await opened.enqueue([job], now=clock.now())
            assert (await opened.get(job.id, now=clock.now())).job == job
            await opened.close()
            assert not connected(url), "a connection with TLS ends with a farewell, and close waits for it"

    try:
        asyncio.run(run())
        assert server.jobs("tls") == ((host, trusted) == ("127.0.0.1", True))
    finally:
        server.stop()
