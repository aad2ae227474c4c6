"""Every check of the contract, on a real server: with times as given, and by the server's clock."""

import asyncio

import pytest

from forebay.conformance import CHECKS, run_check
from tests.brokers.redis.engines import Redis

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("given_time", [True, False], ids=["given", "own"])
def test_the_contract_holds(server, check, given_time):
    way = Redis(server, given_time)

    async def run():
        try:
            return await run_check(check, way.open, reopen=way.reopen)
        finally:
            await way.close()

    lacking = asyncio.run(run())
    if lacking is not None:
        assert lacking in ({"owned"} if given_time else {"owned", "given_time"})
        pytest.skip(f"redis has not: {lacking}")
