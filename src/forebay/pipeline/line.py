"""Line: a stage's queue between threads: who puts waits by its policy, who takes gets streams by turns."""

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from forebay.core.breaker import CircuitBreaker, Ending, Permit, Refused
from forebay.core.buffer import OnFull, Reason
from forebay.core.gate import Gate, Let
from forebay.core.ladder import Step
from forebay.core.lanes import StreamShare, Ticket
from forebay.core.sequence import Sequence
from forebay.pipeline.ledger import Ledger
from forebay.pipeline.stage import Stage

SLICE_S: Final = 0.5  # whoever waits looks so often, should a bell be missed
AHEAD: Final = 2  # batches of each replica that may be done and wait for an earlier frame


class Line:
    """The queue before a stage, and the order of what leaves it."""

    def __init__(
        self,
        stage: Stage,
        replicas: int,
        shares: Mapping[str, StreamShare],
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self.stage = stage
        self.gate = Gate(stage.terms, shares)
        self.sequence = Sequence()
        self.ended = False  # nothing more is put
        self.dropping = False  # nor taken: what waits is dropped
        self.waited_s = 0.0  # those who put, for room
        self.idle_s = 0.0  # those who take, for frames
        self.on_room: Callable[[], None] | None = None  # told when a crowded queue has room again
        self._ledger = ledger
        self._now = now
        self._window = AHEAD * replicas * stage.batch_max
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._over = threading.Event()
        self._crowded = False
        self._breaker = None if stage.breaker is None else CircuitBreaker(stage.breaker)

    # ---- putting ----------------------------------------------------------------------------------------

    def offer(self, ticket: Ticket) -> Let:
        """Take in the frame by the policy, at once. What is dropped is closed in the accounts; a frame that
        would wait is not."""
        with self._lock:
            if self.ended:
                let = Let(False, Reason.ENDED)
            else:
                let = self.gate.offer(ticket, now=self._now())
            if let.entered:
                self._work.notify()
            self._crowded = self._crowded or self.gate.room() == 0
        for victim, reason in let.shed:
            self._ledger.drop(victim, reason, self.stage.name)
        if let.reason is not None:
            self._ledger.drop(ticket, let.reason, self.stage.name)
        return let

    def put(self, ticket: Ticket) -> Let:
        """The same, and wait for room where the policy does: `put_timeout` at most."""
        let, tries, began = self.offer(ticket), 0, self._now()
        while not let.entered and let.reason is None:
            tries += 1
            left_s = self.left_s(ticket, began)
            if left_s <= 0:
                return self.give_up(ticket)
            self.wait_for_room(tries, left_s)
            let = self.offer(ticket)
        return let

    def left_s(self, ticket: Ticket, began: float) -> float:
        """Return how long a frame may still wait for room, by put_timeout and by its deadline."""
        now = self._now()
        most_s = self.stage.put_timeout_s
        left_s = math.inf if most_s is None else began + most_s - now
        return min(left_s, max(ticket.deadline - now, 1e-4))

    def give_up(self, ticket: Ticket, reason: Reason = Reason.TIMEOUT) -> Let:
        """Drop a frame that waited for room in vain."""
        self._ledger.drop(ticket, reason, self.stage.name)
        return Let(False, reason)

    def retry_after_s(self, tries: int) -> float | None:
        """Return how long to wait after so many tries in vain, None where a bell rings for room."""
        door = self.gate.door
        return door.backoff.wait_s(tries) if door.on_full is OnFull.BACKOFF else None

    def wait_for_room(self, tries: int, most_s: float) -> None:
        """Return when there may be room, after `most_s` at the latest."""
        began, wait_s = self._now(), self.retry_after_s(tries)
        if wait_s is not None:
            self._over.wait(min(wait_s, most_s))
        else:
            with self._lock:
                if not self.gate.room() and not self.ended:
                    self._room.wait(min(most_s, SLICE_S))
        with self._lock:
            self.waited_s += self._now() - began

    # ---- taking -----------------------------------------------------------------------------------------

    def take(self) -> list[Ticket] | None:
        """Return frames to serve together, after waiting for some; None when none will come any more."""
        began = self._now()
        with self._lock:
            frames = self._wait_for_frames()
            self.idle_s += self._now() - began
            ring = self._crowded and self.gate.room() * 4 >= self.gate.door.crowded_from
            self._crowded = self._crowded and not ring
        if ring and self.on_room is not None:
            self.on_room()
        return frames

    def _wait_for_frames(self) -> list[Ticket] | None:
        closes_at = None
        while True:
            room = self._window - len(self.sequence)
            if self.gate.depth and room > 0 and not self.dropping:
                wait_s = self._company_s(closes_at)
                if wait_s <= 0:
                    if frames := self._taken(min(room, self.stage.batch_max)):
                        return frames
                else:
                    closes_at = closes_at or self._now() + wait_s
                    self._work.wait(wait_s)
                continue
            if self.ended and (self.dropping or not self.gate.depth):
                return None
            closes_at = None
            self._work.wait(SLICE_S)

    def _company_s(self, closes_at: float | None) -> float:
        """Return how long the frames that wait go on waiting for others to share a batch with."""
        stage = self.stage
        if not stage.batch_wait_s or self.gate.depth >= stage.batch_max or self.ended:
            return 0.0
        return stage.batch_wait_s if closes_at is None else closes_at - self._now()

    def _taken(self, most: int) -> list[Ticket]:
        """Take out up to so many, the late ones dropped; the lock is held."""
        taken = self.gate.take(most, now=self._now())
        for late in taken.late:
            self._ledger.drop(late, Reason.LATE, self.stage.name)
        for ticket in taken.frames:
            self.sequence.took(ticket)
        self._room.notify_all()
        if self.gate.depth:
            self._work.notify()
        return taken.frames

    def step_of(self, ticket: Ticket) -> Step:
        """Return the step of the ladder that the frame was let in at."""
        return self.gate.step_of(ticket)

    # ---- handing on, in order ---------------------------------------------------------------------------

    def finish(self, ticket: Ticket, result: Any, hand_on: Callable[[Ticket, Any], None]) -> None:
        """Note what became of a frame; hand on all of its stream that have no earlier one before them."""
        with self._lock:
            mine = self.sequence.done(ticket, result)
        while mine:
            with self._lock:
                was_shut = len(self.sequence) >= self._window
                found = self.sequence.next(ticket.stream)
                if was_shut:
                    self._work.notify()
            if found is None:
                return
            hand_on(*found)

    # ---- the breaker ------------------------------------------------------------------------------------

    def ask(self) -> Permit | Refused | None:
        """Return the permit for one call, why there is none, or None without a breaker."""
        if self._breaker is None:
            return None
        with self._lock:
            return self._breaker.ask(now=self._now())

    def called(self, permit: Permit | Refused | None, ending: Ending) -> None:
        """Tell the breaker how a call ended."""
        if self._breaker is not None and isinstance(permit, Permit):
            with self._lock:
                self._breaker.ended(permit, ending, now=self._now())

    def breaker(self) -> tuple[str, int] | None:
        """Return the breaker's state and how often it opened, None without one."""
        if self._breaker is None:
            return None
        with self._lock:
            return self._breaker.state(now=self._now()).value, self._breaker.trips

    # ---- the end ----------------------------------------------------------------------------------------

    def end(self) -> None:
        """Take in nothing more; what waits is still served."""
        with self._lock:
            self.ended = True
            self._over.set()
            self._work.notify_all()
            self._room.notify_all()

    def abandon(self) -> None:
        """Drop what waits, and serve nothing more."""
        with self._lock:
            self.ended = self.dropping = True
            left = self.gate.lanes.empty()
            self._over.set()
            self._work.notify_all()
            self._room.notify_all()
        for ticket in left:
            self._ledger.drop(ticket, Reason.ENDED, self.stage.name)

    def depths(self) -> dict[str, int]:
        """Return how many frames of each stream wait."""
        with self._lock:
            return self.gate.lanes.depths()

    def looks(self) -> tuple[int, int, int, float, float, float | None]:
        """Return depth, bytes, step, seconds waited, seconds idle and when the oldest was captured."""
        with self._lock:
            gate = self.gate
            return gate.depth, gate.size_b, gate.level, self.waited_s, self.idle_s, gate.lanes.oldest_at()
