"""AcceptRatio: a producer whose server takes few of its calls holds most of the next ones back itself."""

from typing import Final, NamedTuple

from forebay.core.token_bucket import TokenBucket

ACCEPT_FACTOR = 2.0  # K: so many calls are sent for each one that the server takes
WINDOW_S = 10.0  # over which calls are counted
TRICKLE_PER_S = 10.0  # sent whatever the ratio is, so that a server that is well again is found out
TRICKLE_BURST_S = 2.0  # of those at once: fewer refusals than this hold nothing back
TRICKLE_BURST = TRICKLE_PER_S * TRICKLE_BURST_S
WELL_S, WELL_CALLS = 1.0, 10  # so long and so many calls without a refusal: what was before counts no more
KINDS_MAX = 256  # calls that are not alike, counted apart; the one longest unused is forgotten
_SLOTS: Final = 10
_SLOT_S: Final = WINDOW_S / _SLOTS


class Held(NamedTuple):
    """Why a call is not sent: of so many like it in the window so many were taken. `after_s` is left of the
    time that the last refused one was told, None where none was."""

    calls: int
    taken: int
    after_s: float | None


class AcceptRatio:
    """Counts calls of one kind. `now` is an argument everywhere, in seconds; a clock that goes back stands
    still.

    A call is held back by chance, with (calls - K * taken) / (calls + 1), where calls are those of the
    window, sent or held back. So a server that takes few is asked for about K times what it takes, and for
    the trickle beside; for more than it takes, as nobody knows when it takes more.
    """

    __slots__ = ("_at", "_back_at", "_calls", "_row", "_row_from", "_taken", "_trickle")

    def __init__(self, trickle_per_s: float = TRICKLE_PER_S) -> None:
        self._calls = [0] * _SLOTS
        self._taken = [0] * _SLOTS
        self._at: int | None = None  # the slot of the last moment, counted from the beginning of time
        self._back_at: float | None = None
        self._row = 0  # calls taken one after another
        self._row_from = 0.0  # the last refusal before them
        self._trickle = TokenBucket(rate_per_s=trickle_per_s, burst=max(1.0, trickle_per_s * TRICKLE_BURST_S))

    def share(self, *, now: float) -> float:
        """Return the share of calls that is held back now, in [0, 1); the trickle is beside it."""
        self._slide(now)
        calls, taken = sum(self._calls), sum(self._taken)
        return max(0.0, (calls - ACCEPT_FACTOR * taken) / (calls + 1))

    def ask(self, count: int = 1, *, now: float, draw: float) -> Held | None:
        """Return None when a call of so many lines is to be sent, else why not; it counts as a call then."""
        if draw >= self.share(now=now) or self._trickle.take(1, now=now) == 0.0:
            return None
        after_s = None if self._back_at is None else max(0.0, self._back_at - now)
        held = Held(sum(self._calls), sum(self._taken), after_s)
        self._calls[self._slide(now)] += count
        return held

    def answered(self, *, taken: int, refused: int, now: float, after_s: float | None = None) -> None:
        """Note what became of a call that was sent: so many lines taken, so many refused for want of room,
        and when those may come back."""
        slot = self._slide(now)
        self._row += 1
        if refused:
            self._row, self._row_from = 0, now
            self._back_at = None if after_s is None else now + after_s
        elif self._row >= WELL_CALLS and now - self._row_from >= WELL_S:
            self._calls, self._taken = [0] * _SLOTS, [0] * _SLOTS
            self._row, self._row_from = 0, now
        self._calls[slot] += taken + refused
        self._taken[slot] += taken

    def _slide(self, now: float) -> int:
        at = int(now // _SLOT_S)
        last = at if self._at is None else self._at
        for passed in range(last + 1, min(at, last + _SLOTS) + 1):
            self._calls[passed % _SLOTS] = self._taken[passed % _SLOTS] = 0
        self._at = max(at, last)
        return self._at % _SLOTS


class AcceptRatios:
    """The ratios of all calls of one producer, by kind: those alike to the server, of one task say."""

    __slots__ = ("_kept", "_trickle_per_s")

    def __init__(self, trickle_per_s: float = TRICKLE_PER_S) -> None:
        self._trickle_per_s = trickle_per_s
        self._kept: dict[str, AcceptRatio] = {}

    def of(self, kind: str) -> AcceptRatio:
        """Return the ratio of a kind, made now where there is none."""
        ratio = self._kept.pop(kind, None) or AcceptRatio(self._trickle_per_s)
        self._kept[kind] = ratio  # the last one used is the last
        if len(self._kept) > KINDS_MAX:
            del self._kept[next(iter(self._kept))]
        return ratio
