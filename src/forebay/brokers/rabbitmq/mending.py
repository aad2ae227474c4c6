"""Mending: queues that answer nobody, and when one is removed so that it is made anew.

That is safe for a queue of hints: the store decides what runs, and announces again what has no hint. One of
dead letters is left as it is: what is in it may come back with the servers that hold it.
"""

import asyncio
import contextlib
from typing import Any, Final

from forebay.brokers.rabbitmq.address import Address
from forebay.brokers.rabbitmq.alive import ANSWER_MAX_S, StuckQueueError, closed, internal_error
from forebay.brokers.rabbitmq.session import connected, removed

STUCK_MAX_S: Final = 15.0  # a cluster that agrees on another leader needs less
FORGOTTEN_S: Final = 60.0  # a queue that was found so long ago, and not since, is found for the first time


class Mending:
    """Of one transport. On connections of its own: who asks such a queue may lose the connection by it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._found: dict[str, tuple[float, float]] = {}  # when a queue was first and last found stuck
        self._ops: dict[str, asyncio.Task[None]] = {}

    def note(self, error: StuckQueueError) -> str:
        """Take in that a queue does not answer; return the line to say."""
        queue, now = error.queue, asyncio.get_running_loop().time()
        first, last = self._found.get(queue, (now, now))
        if now - last > FORGOTTEN_S:
            first = now
        self._found[queue] = (first, now)
        if not self._address.is_of_hints(queue):
            return str(error)
        if now - first >= STUCK_MAX_S and queue not in self._ops:
            op = self._ops[queue] = asyncio.ensure_future(self._mend(queue))
            op.add_done_callback(lambda _: self._ops.pop(queue, None))
        return f"{error}; if that stays so for {STUCK_MAX_S:g} s it is removed and made anew"

    async def close(self) -> None:
        """Stop."""
        ops = list(self._ops.values())
        for op in ops:
            op.cancel()
        await asyncio.gather(*ops, return_exceptions=True)

    async def _mend(self, queue: str) -> None:
        connections: list[Any] = []
        try:
            with contextlib.suppress(Exception):  # then it is found stuck again
                connections.append(await connected(self._address))
                if not await _answers(connections[0], queue):  # another process may have made it anew
                    connections.append(await connected(self._address))
                    await removed(connections[1], queue)
                self._found.pop(queue, None)
        finally:
            await asyncio.gather(*(closed(one) for one in connections))


async def _answers(connection: Any, queue: str) -> bool:
    """Return whether somebody answers for a queue that is there."""
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            channel = await connection.channel(publisher_confirms=False)
            there = await channel.get_queue(queue, ensure=False)
            await there.get(fail=False, timeout=None)  # what comes goes back with the connection
    except (TimeoutError, internal_error()):
        return False
    return True
