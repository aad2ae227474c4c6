"""Chains: jobs of one task, tenant and ordering key, of which one goes at a time, in the order of their ids.

Only the head of a chain may be granted: the job that runs, else the one with the least id. Its members are
the open jobs; a final one has left.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from forebay.core.ledger_index import SortedKeys

M = TypeVar("M", bound=Any)  # an id or a sequence

ChainKey = tuple[str, str, str]  # task, tenant, ordering key


def _keep_nothing(*_step: Any) -> None:
    """Take a step of undoing for whoever never undoes."""


class _Chain(Generic[M]):
    __slots__ = ("members", "running")

    def __init__(self) -> None:
        self.members: SortedKeys[M] = SortedKeys()
        self.running: M | None = None

    def head(self) -> M | None:
        return self.members.first() if self.running is None else self.running


class Chains(Generic[M]):
    """All chains of a store. Holds open jobs with an ordering key and nothing else.

    `undo_by` takes the calls that take a change back, newest last.
    """

    def __init__(self, undo_by: Callable[..., None] = _keep_nothing) -> None:
        self._chains: dict[ChainKey, _Chain[M]] = {}
        self._undo_by = undo_by

    def __bool__(self) -> bool:
        return bool(self._chains)

    def head(self, key: ChainKey) -> M | None:
        """Return the one member that may run or runs, None when there is no such chain."""
        chain = self._chains.get(key)
        return None if chain is None else chain.head()

    def enter(self, key: ChainKey, member: M) -> M | None:
        """Take in a member; returns the one that was the head until now, when it is that no more."""
        before = self.head(key)
        self._add(key, member)
        self._undo_by(self._remove, key, member)
        return before if before != self.head(key) else None

    def leave(self, key: ChainKey, member: M) -> M | None:
        """Let a member go; returns the new head, when that is another one now."""
        before = self.head(key)
        self.rest(key, member)
        self._remove(key, member)
        self._undo_by(self._add, key, member)
        after = self.head(key)
        return after if after != before else None

    def run(self, key: ChainKey, member: M) -> None:
        """Take note that the head runs: it stays the head, whatever enters."""
        self._set_running(key, member)
        self._undo_by(self._set_running, key, None)

    def rest(self, key: ChainKey, member: M) -> M | None:
        """Take note that a member does not run any more; returns the new head, when that is another one."""
        chain = self._chains[key]
        if chain.running != member:
            return None
        self._set_running(key, None)
        self._undo_by(self._set_running, key, member)
        return chain.head() if chain.head() != member else None

    def rank(self, key: ChainKey, member: M) -> int:
        """Return how many members of the chain have a smaller id."""
        return self._chains[key].members.rank(member)

    def snapshot(self) -> dict[ChainKey, tuple[list[M], M | None]]:
        """Return every chain with its members in order and the one that runs; for audits."""
        return {key: (list(chain.members), chain.running) for key, chain in self._chains.items()}

    def _add(self, key: ChainKey, member: M) -> None:
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = _Chain()
        chain.members.add(member)

    def _remove(self, key: ChainKey, member: M) -> None:
        chain = self._chains[key]
        chain.members.remove(member)
        if not chain.members:
            del self._chains[key]

    def _set_running(self, key: ChainKey, member: M | None) -> None:
        self._chains[key].running = member
