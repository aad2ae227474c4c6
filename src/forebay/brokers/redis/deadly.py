"""Deadly: inputs in quarantine, in a hash, and in memory for what is asked of every submission.

What a death changes is decided here from what is known, and stored while nobody else has changed it since.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from forebay.brokers.redis.store import STALE_TRIES_MAX, Tx, pairs
from forebay.brokers.shared.quarantine import SharedQuarantine
from forebay.core.quarantine import Change, DeadlyInput, Inputs
from forebay.errors import StoreUnavailableError

T = TypeVar("T")
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(DeadlyInput).decode


class Deadly:
    """What is known of deadly inputs, and the version of it."""

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.version = "0"  # of what is known; the store has a newer one where others changed it

    def rows(self, changes: Sequence[Change]) -> list[Any]:
        """Return changes as the scripts take them."""
        return [
            (_ENCODE((task, fingerprint)), False if row is None else _ENCODE(row))
            for task, fingerprint, row in changes
        ]

    def took(self, tx: Tx, changes: Sequence[Change]) -> None:
        """Know what was just stored."""
        self.inputs.apply(changes)
        self.version = str(int(self.version) + 1)
        tx.news.deadly = True

    def load(self, version: str, flat: Sequence[bytes]) -> None:
        """Take what the store says in place of what was known."""
        found = [_DECODE(row) for _, row in pairs(flat)]
        kept = {(row.task, row.fingerprint): row for row in found}
        gone: list[Change] = [
            (one.task, one.fingerprint, None)
            for one in self.inputs
            if (one.task, one.fingerprint) not in kept
        ]
        self.inputs.apply([*gone, *((task, print_, row) for (task, print_), row in kept.items())])
        self.version = version

    async def refresh(self, tx: Tx) -> None:
        """Know what the store says."""
        _, _, version, flat = await tx.run("look", dv=self.version)
        if flat is not None:
            self.load(version.decode(), flat)

    async def change(self, tx: Tx, decide: Callable[[], tuple[T, Sequence[Change]]]) -> T:
        """Store what `decide` says, decided anew where another server was first; return its answer."""
        await self.refresh(tx)
        for _ in range(STALE_TRIES_MAX):
            answer, changes = decide()
            if not changes:
                return answer
            if await tx.run("deadly", changes=self.rows(changes), dv=self.version) != b"stale":
                self.took(tx, changes)
                return answer
            await self.refresh(tx)
        raise StoreUnavailableError(
            "too many servers change what is known of deadly inputs", retry_after_s=1.0
        )

    async def age_out(self, tx: Tx) -> None:
        """Forget what is too old."""
        if self.inputs.aged(tx.now):
            await self.change(tx, lambda: (None, self.inputs.aged(tx.now)))


class RedisQuarantine(SharedQuarantine):
    """Decided anew where another server was first."""

    def __init__(self, deadly: Deadly, write: Any, seen_at: Callable[[float], float]) -> None:
        super().__init__(deadly.inputs, seen_at)
        self._deadly = deadly
        self._write = write

    async def _stored(self, decide: Callable[[], tuple[T, Sequence[Change]]], now: float) -> T:
        async def work(tx: Tx) -> T:
            return await self._deadly.change(tx, decide)

        answer: T = await self._write(work, now)
        return answer
