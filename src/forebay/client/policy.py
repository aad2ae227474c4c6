"""Patience: what is tried again, when, and for how long. Time and chance are arguments."""

from collections.abc import Callable
from typing import Final, NamedTuple

from forebay.client.faults import fault_of, problem_of, retry_after_s
from forebay.client.holding import HOLDS_MAX, Holding
from forebay.client.wire import Answer, Call, Lost
from forebay.core.retry_budget import RETRIES_PER_S, RetryBudget
from forebay.errors import ForebayError, OverBudgetError

BASE_S = 0.1
CAP_S = 2.0
INTERACTIVE_MAX_S = 5.0
BATCH_MAX_S = 30.0
FLOOR_MAX = 0.75  # of the cap: above it there is room for chance
UNREACHABLE_FOR_S = 5.0  # a server that this client has never reached is given up sooner
RETRY_FOR_S = 60.0  # a verb gives up after this long without an answer that helps
SPREAD_MAX_S = 2.0  # callers that were all told the same second return over this much, at most

AGAIN = frozenset({408, 425, 429, 502, 503, 504})
AGAIN_WHEN_TOLD = frozenset({409, 507})  # only with a Retry-After: "not yet", not "no"
BEGUN = frozenset({"worker_lost"})  # codes of a 503 behind the door: something was done
AWAY = frozenset({502, 503, 504})
AWAY_TOLD_S = 5.0  # who waits no longer than this for a server says so in the end


class Backoff(NamedTuple):
    """How one class of producers waits: the longest wait of its own choice, and the longest it lets a server
    ask for, None for any. One that is asked for more gives up at once, with that refusal."""

    cap_s: float = CAP_S
    told_max_s: float | None = None


BACKOFFS: Final = {
    "standard": Backoff(),
    "interactive": Backoff(INTERACTIVE_MAX_S, INTERACTIVE_MAX_S),  # somebody looks at the screen
    "batch": Backoff(BATCH_MAX_S),
}
STANDARD: Final = BACKOFFS["standard"]


class Hint(NamedTuple):
    """What a refusal says about coming back."""

    after_s: float | None = None  # not earlier than this
    service_s: float | None = None  # one job of the task takes so long on average
    exact: bool = False  # the time was made for this caller: to the moment, not later by chance


NO_HINT: Final = Hint()


def hint_of(fault: ForebayError | None) -> Hint:
    """Return what a refusal says about coming back."""
    if fault is None:
        return NO_HINT
    return Hint(fault.retry_after_s, fault.service_s, isinstance(fault, OverBudgetError))


def floor_s(service_s: float | None, *, cap_s: float = CAP_S) -> float:
    """Return the least first wait: half of what one job takes, as sooner no place can have come free; of a
    long job at most FLOOR_MAX of the cap."""
    return min((service_s or 0.0) / 2, FLOOR_MAX * cap_s)


def backoff_s(
    *,
    failures: int,
    draw: float,
    after_s: float | None = None,
    service_s: float | None = None,
    cap_s: float = CAP_S,
) -> float:
    """Return the wait after the nth failure in a row: 100, 200, 400, 800 ms … `cap_s`, less up to a quarter.

    Where half of `service_s`, what one job takes, is more than 100 ms, it begins there and doubles from it.
    `after_s`, what the server asked for, is never undercut; a drawn spread on top keeps callers who were
    refused together from returning together. Never negative, never overflows.
    """
    floor = floor_s(service_s, cap_s=cap_s)
    full = min(cap_s, max(BASE_S, floor) * 2.0 ** min(max(0, failures - 1), 10))
    wait = max(full * (0.75 + 0.25 * draw), floor * (1.0 + 0.25 * draw))
    if after_s is None:
        return wait
    return max(wait, after_s + draw * min(SPREAD_MAX_S, after_s / 4))


def may_repeat(call: Call, reply: Answer | Lost) -> bool:
    """Return whether sending `call` again is both safe and of use."""
    if isinstance(reply, Lost):
        return call.repeatable or not reply.sent
    told = reply.headers.get("x-should-retry", "").lower()
    if told in ("true", "false"):
        return told == "true" and call.repeatable
    if reply.status in AGAIN_WHEN_TOLD:
        return call.repeatable and retry_after_s(reply) is not None
    if call.repeatable:
        return reply.status in AGAIN
    # 429 and 503 are refusals at the door: nothing was done, so even a call that is not repeatable may go.
    # What was read to be sent is gone, though.
    return reply.status in (429, 503) and call.source is None and problem_of(reply).get("code") not in BEGUN


class Known:
    """What one client knows of its server, shared by all its verbs: whether it was ever there, so that a
    restart in the middle of its life is waited out like any outage; how long a job takes, as last told; the
    retries that may still be made; and of which kinds the server takes few."""

    __slots__ = ("away", "holding", "reached", "retries", "service_s")

    def __init__(self, *, hold_back: bool = True, retries_per_s: float = RETRIES_PER_S) -> None:
        self.reached = False
        self.away = False  # and that was told
        self.service_s: float | None = None
        self.retries = RetryBudget(retries_per_s)
        self.holding = Holding(on=hold_back, trickle_per_s=retries_per_s)


class Patience:
    """How long one caller goes on trying. A success resets it.

    `unreachable_for_s` is the shorter patience while no connection has been established yet.
    """

    __slots__ = (
        "_away", "_backoff", "_failures", "_held", "_known", "_since", "retry_for_s", "unreachable_for_s",
    )  # fmt: skip

    def __init__(
        self,
        *,
        now: float,
        retry_for_s: float,
        unreachable_for_s: float | None = None,
        known: Known | None = None,
        backoff: Backoff = STANDARD,
        away: Callable[[ForebayError, float], object] | None = None,
    ) -> None:
        self._away = away
        self.retry_for_s = retry_for_s
        self.unreachable_for_s = retry_for_s if unreachable_for_s is None else unreachable_for_s
        self._known = known or Known()
        self._backoff = backoff
        self._since = now
        self._failures = 0
        self._held = 0  # in a row

    @property
    def met(self) -> bool:
        """Whether the server was ever there."""
        return self._known.reached

    def meet(self, reply: Answer | Lost | None = None) -> None:
        """Note that the server is there, unless `reply` shows a request that cannot have reached it."""
        if not isinstance(reply, Lost) or reply.sent:
            self._known.reached = True

    def success(self, now: float) -> None:
        """Begin anew: the server took something."""
        self.meet()
        self._known.away = False
        self._known.retries.succeeded()
        self._since = now
        self._failures = 0

    @property
    def holding(self) -> Holding:
        """What the client keeps back."""
        return self._known.holding

    def hold_s(self, kind: str, count: int = 1, *, now: float, draw: float) -> float:
        """Return 0.0 when a call of so many lines is to be sent, which was not before; else the seconds until
        this is asked again: never more than HOLDS_MAX times in a row, nor beyond what patience is left."""
        known = self._known
        if self._held < HOLDS_MAX and known.holding.ask(kind, count, now=now, draw=draw) is not None:
            wait_s = backoff_s(
                failures=self._held + 1, draw=draw, service_s=known.service_s, cap_s=self._backoff.cap_s
            )
            if wait_s <= self._since + self.retry_for_s - now:
                self._held += 1
                return wait_s
        self._held = 0
        return 0.0

    def counted(self, kind: str, *, taken: int, hint: Hint, refused: int, now: float) -> None:
        """Note how many lines of a call were taken; those told their turn in a budget do not count."""
        again = 0 if hint.exact else refused
        self._known.holding.counted(kind, taken=taken, refused=again, now=now, after_s=hint.after_s)

    def refused(self, reply: Answer | Lost, *, now: float, draw: float) -> float | None:
        """Return the seconds to wait before the next try, or None when it is time to give up.

        Gives up at once when the server asks for more time than is left: waiting would be in vain.
        """
        self.meet(reply)
        fault = fault_of(reply)
        wait_s = self.wait_s(hint_of(fault), now=now, draw=draw)
        if wait_s is not None:
            self.tell(reply, fault, now=now)
        return wait_s

    def tell(self, reply: Answer | Lost, fault: ForebayError, *, now: float) -> None:
        """Have whoever wants to hear it hear that the server is away, and for how long it is waited for at
        most: once, until it is back."""
        left_s = self._since + self.retry_for_s - now
        is_away = isinstance(reply, Lost) or reply.status in AWAY
        if self._away is None or self._known.away or not is_away or not self.met or left_s < AWAY_TOLD_S:
            return
        self._known.away = True
        self._away(fault, left_s)

    def wait_s(self, hint: Hint, *, now: float, draw: float) -> float | None:
        """As `refused`, from what it said alone.

        A time made for this caller is kept to the moment. Where the server named no time, the retry is
        taken from the budget of the client; a server that names one says itself how many come back.
        """
        after_s, known, backoff = hint.after_s, self._known, self._backoff
        known.service_s = known.service_s if hint.service_s is None else hint.service_s
        patience_s = self.retry_for_s if self.met else min(self.retry_for_s, self.unreachable_for_s)
        left = self._since + patience_s - now
        if after_s is not None and after_s > min(left, backoff.told_max_s or left):
            return None
        if hint.exact and after_s is not None:
            return after_s
        self._failures += 1
        wait = backoff_s(
            failures=self._failures,
            draw=draw,
            after_s=after_s,
            service_s=known.service_s,
            cap_s=backoff.cap_s,
        )
        if after_s is not None:
            return min(wait, left)  # where only the spread does not fit
        wait = max(wait, known.retries.take(now=now))
        if wait <= left:
            return wait
        known.retries.put_back()
        return None
