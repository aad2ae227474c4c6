"""Account: region, endpoint and credentials as AWS's own chain finds them, and calls signed with them."""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from forebay.brokers.sqs.address import Address
from forebay.errors import ConfigError, DeliveryUnavailableError
from forebay.ports.clock import Clock

EXTRA: Final = 'broker: sqs:// needs an extra: pip install "forebay[sqs]"'
FIND_MAX_S: Final = 30.0  # for the chain: a profile may start a program, a role may ask a server
FRESH_S: Final = 30.0  # what was read is used so long; the chain renews roles minutes before they end
LINE_MAX: Final = 300


def botocore_module(name: str = "session") -> Any:
    """Return a module of `botocore`. Raises ConfigError naming the extra that brings it."""
    try:
        return import_module(f"botocore.{name}")
    except ImportError:
        raise ConfigError(EXTRA) from None


def http_module() -> Any:
    """Return the module `aiohttp`. Raises ConfigError naming the extra that brings it."""
    try:
        return import_module("aiohttp")
    except ImportError:
        raise ConfigError(EXTRA) from None


class Account:
    """Who calls, and where. Reading credentials may wait for a server, so a thread does it."""

    def __init__(self, region: str, endpoint: str, verify: str | bool, chain: Any, clock: Clock) -> None:
        self.region = region
        self.endpoint = endpoint
        self.verify = verify  # certificates to trust: a file, or the usual ones
        self._chain = chain
        self._clock = clock
        self._keys: Any = None
        self._fresh_until = 0.0

    @classmethod
    async def find(cls, address: Address, clock: Clock) -> "Account":
        """Return the account. Raises ConfigError or DeliveryUnavailableError with one line."""
        botocore_module()
        http_module()
        try:
            async with asyncio.timeout(FIND_MAX_S):
                region, endpoint, verify, chain = await asyncio.to_thread(_found, address)
        except TimeoutError:
            raise DeliveryUnavailableError(f"broker: {address.label}: AWS's chain has not ended") from None
        account = cls(region, endpoint, verify, chain, clock)
        await account.keys()
        return account

    async def keys(self) -> Any:
        """Return credentials that are good for a while. Raises DeliveryUnavailableError."""
        if self._keys is None or self._clock.now() >= self._fresh_until:
            try:
                async with asyncio.timeout(FIND_MAX_S):
                    self._keys = await asyncio.to_thread(self._chain.get_frozen_credentials)
            except Exception as error:
                why = line(error) or "they did not come in time"
                raise DeliveryUnavailableError(f"broker: AWS credentials cannot be had: {why}") from None
            self._fresh_until = self._clock.now() + FRESH_S
        return self._keys

    def forget_keys(self) -> None:
        """Read credentials again before the next call: these have ended."""
        self._keys = None

    def signed(self, keys: Any, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers of a call, with its signature."""
        request = botocore_module("awsrequest").AWSRequest("POST", self.endpoint, dict(headers), body)
        botocore_module("auth").SigV4Auth(keys, "sqs", self.region).add_auth(request)
        return dict(request.headers.items())


def _found(address: Address) -> tuple[str, str, str | bool, Any]:
    """Return what the chain finds."""
    session = botocore_module().Session()
    try:
        region = address.region or session.get_config_variable("region")
        if not region:
            raise ConfigError("broker: no region: write sqs://REGION/PREFIX, or set AWS_DEFAULT_REGION")
        endpoint = address.endpoint or _endpoint(session, region)
        chain = session.get_credentials()
        # Hundreds of certificates take a while to read, and nobody shows one over http.
        verify: str | None = session.get_config_variable("ca_bundle") if endpoint[:6] == "https:" else None
    except botocore_module("exceptions").BotoCoreError as error:
        raise ConfigError(f"broker: {address.label}: {line(error)}") from None
    if chain is None:
        raise DeliveryUnavailableError(
            f"broker: {address.label}: no AWS credentials in the environment, a profile or a role"
        )
    return region, endpoint, verify or True, chain


def _endpoint(session: Any, region: str) -> str:
    """Return where a region's SQS is, as AWS's own tools find it: partitions, FIPS, AWS_ENDPOINT_URL_SQS."""
    client = session.create_client("sqs", region_name=region)
    try:
        return f"{str(client.meta.endpoint_url).rstrip('/')}/"
    finally:
        client.close()


def line(error: BaseException) -> str:
    """Return an error's words in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…"
