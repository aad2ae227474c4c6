"""Opening: is this a server we can use, and a store of our version? Says so in one line where not."""

import re
from typing import Any, Final

from forebay.brokers.redis.address import Address, redis_module, told
from forebay.brokers.redis.connections import Connection, Connections, ask, gone, let_go
from forebay.brokers.redis.scripts import script
from forebay.brokers.shared.left import arriving_line, left_line
from forebay.errors import ConfigError, StoreUnavailableError, StoreVersionError

SERVER_MIN: Final = 7  # the oldest whose scripts say beforehand whether they need memory
VERSION: Final = 1  # of what the keys hold
# How a server says it of what a script does: not by the code of the error.
_FORBIDDEN: Final = re.compile(r"can't (run|access)|no permission", re.IGNORECASE)


async def prepare(connections: Connections, *, leaving: bool = False, arriving: bool = False) -> str:
    """Begin a store, or see that it is of our version and was not left. `leaving`: it must be there, and may
    have been left; `arriving`: the jobs of another store may be on their way there. Returns what a crash of
    the server's machine loses, in words; nothing where what is answered survives it.

    Raises StoreUnavailableError, StoreVersionError or ConfigError with one line; nothing was made then.
    """
    address, errors = connections.address, redis_module().exceptions
    try:
        connection = await connections.connect()
    except (errors.RedisError, *gone()) as error:
        raise _refused(address, told(error)) from None
    try:
        about = _about(await ask(connection, "INFO"))
        _check_server(address, about)
        await _check_rights(connection, connections)
        await _check_version(connection, address, leaving=leaving)
        if not arriving:
            await _check_whole(connection, address)
        return await _loss(connection, about)
    except errors.ReadOnlyError:
        raise _refused(address, "the server is read-only: a replica takes no jobs") from None
    except (errors.RedisError, *gone()) as error:
        raise _refused(address, _why(error)) from None
    finally:
        await let_go(connection)


def _about(info: Any) -> dict[str, str]:
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _check_server(address: Address, about: dict[str, str]) -> None:
    version = about.get("redis_version", "0")
    if int(version.split(".")[0]) < SERVER_MIN:
        raise StoreVersionError(
            f"{address.label}: Redis {version} is too old; {SERVER_MIN} or newer is needed"
        )
    if about.get("role") == "slave":
        raise _refused(address, "the server is read-only: a replica takes no jobs")
    policy = about.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys-"):
        raise _refused(
            address,
            f"maxmemory-policy is {policy}: it throws jobs away when memory is short; set it to noeviction",
        )


async def _check_rights(connection: Connection, connections: Connections) -> None:
    """Raise what the driver raises when a command that scripts use, or the channel, is not allowed."""
    prefix = connections.address.prefix
    one = script("probe")
    await ask(connection, "EVAL", one.text, "1", f"{prefix}meta", prefix)
    await ask(connection, "EVALSHA", one.sha, "1", f"{prefix}meta", prefix)
    await ask(connection, "PUBLISH", connections.address.channel, "")
    await ask(connection, "TIME")


async def _check_version(connection: Connection, address: Address, *, leaving: bool) -> None:
    key = f"{address.prefix}meta"
    known, left, done = await ask(connection, "HMGET", key, "version", "leaving", "left_at")
    if leaving and known is None:
        raise ConfigError(f"--from: there is no store in {address.label} (name {address.name})")
    if left is not None and not leaving:
        raise ConfigError(left_line(address.label, done=done is not None))
    if known is None:  # a server without memory opens what is there
        await ask(connection, "HSETNX", key, "version", str(VERSION))
    version = int(await ask(connection, "HGET", key, "version"))
    if version > VERSION:
        raise StoreVersionError(
            f"{address.label}: the store {address.name!r} has version {version}, this is for {VERSION}:"
            " it was written by a newer Forebay"
        )


async def _check_whole(connection: Connection, address: Address) -> None:
    name, done = await ask(connection, "HMGET", f"{address.prefix}origin", "name", "done_at")
    if name is not None and done is None:
        raise ConfigError(arriving_line(address.label))


async def _loss(connection: Connection, about: dict[str, str]) -> str:
    if about.get("aof_enabled") != "1":
        return "appendonly is off there: what was accepted since its last snapshot is lost with that process"
    try:
        answer = await ask(connection, "CONFIG", "GET", "appendfsync")
    except redis_module().exceptions.ResponseError:  # who hides it gets no promise
        return "appendfsync cannot be read there: what was accepted last may be lost with the power"
    policy = answer[1].decode() if len(answer) == 2 else "not set"
    if policy == "always":
        return ""
    much = "in the last second or two" if policy == "everysec" else "since its machine last wrote to the disk"
    return f"appendfsync is {policy} there, not always: what was accepted {much} is lost with the power"


def _why(error: BaseException) -> str:
    text = told(error)
    if isinstance(error, redis_module().exceptions.NoPermissionError) or _FORBIDDEN.search(text):
        return f"the user may not do what is needed: {text}"
    return text


def _refused(address: Address, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"broker: {address.label}: {why}")
