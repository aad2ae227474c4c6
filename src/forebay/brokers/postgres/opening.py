"""Opening: is this a database we can use, and is the newest schema in it? Says so in one line where not."""

from typing import Any, Final

from forebay.brokers.postgres.address import Address, psycopg_module, told
from forebay.brokers.postgres.connections import Connection, Connections
from forebay.brokers.postgres.intake import lock_numbers
from forebay.brokers.postgres.schema import VERSION, steps_from
from forebay.brokers.shared.left import arriving_line, left_line
from forebay.errors import ConfigError, StoreUnavailableError, StoreVersionError

SERVER_MIN: Final = 13  # the oldest that its makers kept up when this was written


async def prepare(connections: Connections, *, leaving: bool = False, arriving: bool = False) -> bool:
    """Make or mend the schema, and see that it was not left. `leaving`: it must be there, and may have been
    left; `arriving`: the jobs of another store may be on their way there. Returns whether what is answered
    survives a crash of the database's machine.

    Raises StoreUnavailableError, StoreVersionError or ConfigError with one line; nothing was made then.
    Of several servers that open at once one does it and the others wait.
    """
    address, psycopg = connections.address, psycopg_module()
    try:
        connection = await connections.connect()
    except TimeoutError:
        raise _refused(address, "it did not answer in time") from None
    except (psycopg.Error, OSError) as error:
        raise _refused(address, told(error)) from None
    try:
        _check_server(address, connection.info.server_version)
        if leaving and not await _version(connection, address):
            raise ConfigError(
                f"--from: there is no store in the schema {address.schema!r} of {address.label}"
            )
        await _migrate(connection, address)
        if not leaving:
            await _check_left(connection, address)
        if not arriving:
            await _check_whole(connection, address)
        return await _survives_crashes(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        user = connection.info.user
        what = f"the role {user!r} may not make or use the schema {address.schema!r}: {told(error)}"
        raise _refused(address, what) from None
    except psycopg.errors.ReadOnlySqlTransaction:
        raise _refused(address, "the server is read-only: a standby takes no jobs") from None
    except psycopg.Error as error:
        raise _refused(address, told(error)) from None
    finally:
        await connection.close()


def _check_server(address: Address, number: int) -> None:
    if number // 10_000 < SERVER_MIN:
        has = f"{number // 10_000}.{number % 10_000}"
        raise StoreVersionError(
            f"{address.label}: PostgreSQL {has} is too old; {SERVER_MIN} or newer is needed"
        )


async def _migrate(connection: Connection, address: Address) -> None:
    async with connection.transaction():
        await connection.execute(
            "SELECT pg_advisory_xact_lock(%s)", lock_numbers(address.schema, "schema", [b""])
        )
        version = await _version(connection, address)
        if version > VERSION:
            raise StoreVersionError(
                f"{address.label}: the schema {address.schema!r} has version {version}, this is"
                f" for {VERSION}:"
                " it was written by a newer Forebay"
            )
        if version == VERSION:
            await connection.execute("SELECT 1 FROM jobs LIMIT 0")  # the right to read
            return
        if version == 0:
            await _begin_schema(connection, address)
        await connection.execute(steps_from(version, address.schema), prepare=False)
        await connection.execute("UPDATE meta SET version = %s", [VERSION])


async def _version(connection: Connection, address: Address) -> int:
    """Return the version of the schema, 0 when there is none."""
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f'"{address.schema}".meta'])
    if not (await cursor.fetchone())[0]:
        return 0
    cursor = await connection.execute("SELECT version FROM meta")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def _check_left(connection: Connection, address: Address) -> None:
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f'"{address.schema}".leaving'])
    if (await cursor.fetchone())[0]:
        cursor = await connection.execute("SELECT done_at IS NOT NULL FROM leaving")
        label = f"{address.label} (schema {address.schema})"
        raise ConfigError(left_line(label, done=(await cursor.fetchone())[0]))


async def _check_whole(connection: Connection, address: Address) -> None:
    cursor = await connection.execute("SELECT 1 FROM origins WHERE done_at IS NULL")
    if await cursor.fetchone():
        raise ConfigError(arriving_line(f"{address.label} (schema {address.schema})"))


async def _begin_schema(connection: Connection, address: Address) -> None:
    cursor = await connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", [f'"{address.schema}"'])
    if not (await cursor.fetchone())[0]:
        await connection.execute(f'CREATE SCHEMA "{address.schema}"', prepare=False)
    await connection.execute(
        "CREATE TABLE meta (version int4 NOT NULL); INSERT INTO meta VALUES (0)", prepare=False
    )


async def _survives_crashes(connection: Connection) -> bool:
    cursor = await connection.execute(
        "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'"
    )
    row: Any = await cursor.fetchone()
    return bool(row[0])


def _refused(address: Address, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"broker: {address.label}: {why}")


__all__ = ["ConfigError", "prepare"]
