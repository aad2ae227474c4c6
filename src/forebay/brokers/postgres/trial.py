"""PostgresTrial: the engine as the checks of the contract get it: in a schema that is dropped at the end."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from forebay.brokers.postgres.address import Address, psycopg_module, told
from forebay.brokers.postgres.engine import PostgresBroker
from forebay.errors import ConfigError, StoreUnavailableError
from forebay.ports.broker import Broker
from forebay.ports.clock import Clock


class PostgresTrial:
    """Goes by the times it is given: only so can a check see a lease run out. When it serves, the database's
    clock counts."""

    capabilities = replace(PostgresBroker.SERVED, own_clock=False)

    def __init__(
        self, url: str, *, clock_at: Callable[[float], Clock], at: float, retention_s: float
    ) -> None:
        self._url = _with_schema(url, f"forebay_conform_{secrets.token_hex(4)}")
        self._address = Address.of(self._url)
        self._clock_at = clock_at
        self._at = at
        self._retention_s = retention_s
        self._made = False

    async def open(self) -> Broker:
        """Return the engine on a new store. Raises ForebayError when the database is no good."""
        await self.remove()
        self._made = True
        return await self._open(self._at)

    async def reopen(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return the engine on the same store. A crash cuts its connections as they are."""
        assert isinstance(broker, PostgresBroker)
        await (broker.abandon() if crash else broker.close())
        return await self._open(now)

    async def remove(self) -> None:
        """Drop the schema, which has a name that was drawn here. Raises StoreUnavailableError naming it."""
        if not self._made:
            return
        psycopg, schema = psycopg_module(), self._address.schema
        try:
            connection = await psycopg.AsyncConnection.connect(self._address.conninfo, autocommit=True)
            async with connection:
                await connection.execute("SET client_min_messages = warning")
                await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        except (psycopg.Error, OSError) as error:
            raise StoreUnavailableError(
                f"{self._address.label}: the schema {schema} could not be dropped: {told(error)}"
            ) from None

    async def _open(self, now: float) -> Broker:
        return await PostgresBroker.open(
            self._url, clock=self._clock_at(now), retention_s=self._retention_s, given_time=True
        )


def _with_schema(url: str, schema: str) -> str:
    """Return the URL with another schema."""
    try:
        parts = urlsplit(url)
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "schema"]
    except ValueError:
        raise ConfigError(
            "broker: the URL cannot be read; write postgresql://user@host:port/database"
        ) from None
    return urlunsplit(parts._replace(query=urlencode([*query, ("schema", schema)])))
