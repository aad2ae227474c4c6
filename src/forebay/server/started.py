"""Started: how a request is answered: what every answer tells, and whether one was begun."""

from collections.abc import Awaitable, Callable
from typing import Any

from forebay.core.quota import Quota
from forebay.server.access import rate_fields
from forebay.server.front import Front
from forebay.server.whole import CLOSE, cycle_of, write_answer


class Started:
    """Remembers whether an answer was begun. While the server drains every answer ends its connection, so
    that none is open, with a request on its way, when the server goes."""

    __slots__ = ("_cycle", "_front", "_send", "quota", "yes")

    def __init__(self, send: Callable[[Any], Awaitable[None]], front: Front) -> None:
        self._send = send
        self._cycle = cycle_of(send)
        self._front = front
        self.quota: Quota | None = None  # of the caller: every answer tells what is left of its rates
        self.yes = False

    @property
    def gone(self) -> bool:
        """Whether the client is known to have gone: what is sent goes nowhere."""
        return self._cycle is not None and self._cycle.disconnected

    async def send(self, message: Any) -> None:
        """Send what is said of an answer, or go on with it."""
        if not self.yes:
            self.yes = True
            message = {**message, "headers": self._told(message["headers"])}
        await self._send(message)

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer in one step; False, and nothing is sent, where it takes two."""
        if self.yes or self._cycle is None:
            return False
        self.yes = write_answer(self._cycle, status, self._told(headers), body)
        return self.yes

    def _told(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self.quota is not None:
            headers = [*headers, *rate_fields(self.quota, now=self._front.clock.now())]
        if self._front.lifecycle.draining and CLOSE not in headers:
            headers = [*headers, CLOSE]
        return headers
