"""Hinting: what both shared engines offer to a relay in front of them: each says how it asks its store."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from forebay.brokers.shared.bells import Bells
from forebay.brokers.shared.news import News
from forebay.ports.hinted import Hearer

SECRET_BYTES: Final = 32


class Hinting:
    """A ports.hinted.Hinted."""

    def __init__(
        self,
        bells: Bells,
        tell_others: Callable[[News], None],
        *,
        secret: Callable[[bytes], Awaitable[bytes]],
        queued: Callable[[str, int], Awaitable[list[str]]],
        still_queued: Callable[[Sequence[str]], Awaitable[set[str]]],
    ) -> None:
        """`secret`: keep this one unless there is one, and return what is kept."""
        self.on_told: Callable[[Hearer], Callable[[], None]] = bells.on_told
        self._tell_others = tell_others
        self._secret = secret
        self._queued = queued
        self._still_queued = still_queued

    async def secret(self) -> bytes:
        """Return the key that hints are signed with."""
        return await self._secret(secrets.token_bytes(SECRET_BYTES))

    async def queued(self, task: str, *, limit: int) -> list[str]:
        """Return ids of queued jobs of a task."""
        return await self._queued(task, limit)

    async def still_queued(self, ids: Sequence[str]) -> set[str]:
        """Return which of these jobs are queued."""
        return await self._still_queued(ids)

    def cry(self, tasks: Collection[str]) -> None:
        """Ring everywhere for these tasks."""
        news = News()
        news.ready(tasks)
        news.nobodys = True
        self._tell_others(news)
