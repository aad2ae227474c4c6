"""Ledger: the accounts of a running pipeline, safe for threads."""

import copy
import threading
from collections import Counter

from forebay.core.accounts import Accounts, StreamAccount
from forebay.core.buffer import Reason
from forebay.core.lanes import Ticket


class Ledger:
    """Every frame is opened once and closed once; by stage too, where it was dropped."""

    def __init__(self) -> None:
        self._accounts = Accounts()
        self._lock = threading.Lock()
        self.dropped_at: Counter[tuple[str, str]] = Counter()  # (stage, reason)

    def name(self, stream: str) -> str:
        """Return the stream under which frames of this name go."""
        with self._lock:
            return self._accounts.name(stream)

    def open(self, stream: str) -> int:
        """Count a frame as sent, and return its number."""
        with self._lock:
            return self._accounts.open(stream)

    def serve(self, ticket: Ticket, now: float) -> None:
        """Close a frame as served."""
        with self._lock:
            self._accounts.serve(ticket, now=now)

    def drop(self, ticket: Ticket, reason: Reason, stage: str) -> None:
        """Close a frame as dropped, at a stage."""
        ticket.load = None
        with self._lock:
            self._accounts.drop(ticket, reason)
            self.dropped_at[stage, reason.value] += 1

    def streams(self) -> dict[str, StreamAccount]:
        """Return a copy of all accounts, all of one instant."""
        with self._lock:
            return copy.deepcopy(self._accounts.streams)

    def dropped_by_stage(self) -> "Counter[tuple[str, str]]":
        """Return a copy of what was dropped where."""
        with self._lock:
            return Counter(self.dropped_at)
