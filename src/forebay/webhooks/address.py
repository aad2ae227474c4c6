"""checked: the addresses of a host that may be connected to; the only way from a name to a connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from forebay.core.callback import Address, Callback, CallbackRules, address_problem

RESOLVE_S = 5.0  # for one look-up
RESOLVERS_MAX = 8  # threads: a name server that hangs holds no more than these
ADDRESSES_MAX = 3  # of one name that are tried

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class AddressError(Exception):
    """Nothing can or may be sent there; the message says why."""


class Resolver:
    """Looks names up as the system does, in threads of its own. Close it in the end."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVERS_MAX, thread_name_prefix="forebay-names")

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of a name, in the system's order. Raises OSError when there are none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        """Let the threads go; a look-up that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(address[4][0]) for address in found))


async def checked(callback: Callback, resolve: Resolve, rules: CallbackRules) -> Sequence[Address]:
    """Return the addresses to try, looked up once. Whoever connects, connects to these and looks up no more.

    Raises AddressError: a host is refused whole when one of its addresses is not allowed.
    """
    addresses: Sequence[Address]
    if callback.address is not None:
        addresses = [callback.address]
    else:
        try:
            async with asyncio.timeout(RESOLVE_S):
                addresses = await resolve(callback.host, callback.port)
        except TimeoutError:
            raise AddressError(f"the name was not resolved in {RESOLVE_S:g} s") from None
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "is no name"
            raise AddressError(f"the name cannot be resolved: {why}") from None
    for address in addresses:
        problem = address_problem(address, rules)
        if problem is not None:
            raise AddressError(f"refused: {problem}")
    if not addresses:
        raise AddressError("the name has no address")
    return addresses[:ADDRESSES_MAX]
