"""RedisTrial: the engine as the checks get it: under a name whose keys are removed at the end."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from forebay.brokers.redis.address import UNREADABLE, Address, redis_module, told
from forebay.brokers.redis.connections import Connections, ask, gone, let_go
from forebay.brokers.redis.engine import RedisBroker
from forebay.errors import ConfigError, StoreUnavailableError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock

SCANNED_EACH: Final = 1_000  # keys looked at by one call


class RedisTrial:
    """Goes by the times it is given: only so can a check see a lease run out. When it serves, the server's
    clock counts."""

    capabilities = replace(RedisBroker.SERVED, own_clock=False)

    def __init__(
        self, url: str, *, clock_at: Callable[[float], Clock], at: float, retention_s: float
    ) -> None:
        self._url = _with_name(url, f"forebay_conform_{secrets.token_hex(4)}")
        self._address = Address.of(self._url)
        self._clock_at = clock_at
        self._at = at
        self._retention_s = retention_s
        self._made = False

    async def open(self) -> Broker:
        """Return the engine on a new store. Raises ForebayError when the server is no good."""
        await self.remove()
        self._made = True
        return await self._open(self._at)

    async def reopen(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return the engine on the same store. A crash cuts its connections as they are."""
        assert isinstance(broker, RedisBroker)
        await (broker.abandon() if crash else broker.close())
        return await self._open(now)

    async def remove(self) -> None:
        """Remove every key of the name that was drawn here. Raises StoreUnavailableError naming it."""
        if not self._made:
            return
        try:
            connection = await Connections(self._address, self._clock_at(self._at)).connect()
            try:
                at = b"0"
                while True:
                    at, keys = await ask(
                        connection, "SCAN", at, "MATCH", f"{self._address.prefix}*", "COUNT", SCANNED_EACH
                    )
                    if keys:
                        await ask(connection, "DEL", *keys)
                    if at == b"0":
                        return
            finally:
                await let_go(connection)
        except (redis_module().exceptions.RedisError, *gone()) as error:
            raise StoreUnavailableError(
                f"{self._address.label}: the keys {self._address.prefix}* could not be removed: {told(error)}"
            ) from None

    async def _open(self, now: float) -> Broker:
        return await RedisBroker.open(
            self._url, clock=self._clock_at(now), retention_s=self._retention_s, given_time=True
        )


def _with_name(url: str, name: str) -> str:
    """Return the URL with another name."""
    try:
        parts = urlsplit(url)
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "name"]
    except ValueError:
        raise ConfigError(UNREADABLE) from None
    return urlunsplit(parts._replace(query=urlencode([*query, ("name", name)])))
