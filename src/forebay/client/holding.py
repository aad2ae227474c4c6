"""Holding: the calls a client keeps back itself while its server takes few like them."""

import threading

from forebay.client.faults import problem_of, retry_after_s
from forebay.client.wire import Answer, Call, Lost
from forebay.core.accept_ratio import TRICKLE_PER_S, WINDOW_S, AcceptRatios, Held
from forebay.errors import ForebayError, OverBudgetError

HOLDS_MAX = 3  # in a row, of a verb that tries again: then it is sent, whatever the ratio


class HeldBackError(ForebayError):
    """The client did not send the call: the server takes few like it. `retry_after_s` is what is left of the
    time it last told."""

    code, status, title = "held_back", 429, "Held back by the client"


def held_back(held: Held) -> HeldBackError:
    """Return the error of a call that was not sent."""
    return HeldBackError(
        f"not sent: of the last {held.calls} calls like it ({WINDOW_S:g} s) the server took {held.taken}",
        retry_after_s=held.after_s,
    )


def pressed(reply: Answer | Lost) -> bool:
    """Say whether a server that is short of room answers so. A turn in a budget is no such answer, nor is a
    server that was never reached."""
    if isinstance(reply, Lost):
        return reply.sent
    return reply.status in (429, 503) and problem_of(reply).get("code") != OverBudgetError.code


class Holding:
    """What a client remembers of its calls, by `Call.kind`; those without one are never held back. Safe to
    share between threads."""

    def __init__(self, *, on: bool = True, trickle_per_s: float = TRICKLE_PER_S) -> None:
        self._on = on
        self._ratios = AcceptRatios(trickle_per_s)
        self._lock = threading.Lock()

    def ask(self, kind: str, count: int = 1, *, now: float, draw: float) -> Held | None:
        """Return None when a call of so many lines is to be sent, else why not."""
        if not (self._on and kind):
            return None
        with self._lock:
            return self._ratios.of(kind).ask(count, now=now, draw=draw)

    def heard(self, call: Call, reply: Answer | Lost, *, now: float) -> None:
        """Note what a call that was sent came to."""
        bad = pressed(reply)
        after_s = retry_after_s(reply) if bad and isinstance(reply, Answer) else None
        self.counted(call.kind, taken=not bad, refused=bad, now=now, after_s=after_s)

    def counted(
        self, kind: str, *, taken: int, refused: int, now: float, after_s: float | None = None
    ) -> None:
        """Note how many lines of a call were taken, and how many were refused for want of room."""
        if self._on and kind:
            with self._lock:
                self._ratios.of(kind).answered(taken=taken, refused=refused, now=now, after_s=after_s)
