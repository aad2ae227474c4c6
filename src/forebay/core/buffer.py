"""Door: what becomes of a frame at a bounded buffer, by its policy and its depth, with the reason."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from forebay.core.units import duration_s
from forebay.core.watermark import Watermark
from forebay.errors import InvalidError

CALM_SHARE: Final = 0.9  # degrading ends when the depth has fallen to this share of where it began


class OnFull(str, Enum):
    """What a full buffer does with one frame more."""

    BLOCK = "block"
    BACKOFF = "backoff"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"
    LATEST_ONLY = "latest_only"
    REJECT = "reject"


class Reason(str, Enum):
    """Why a frame was not served."""

    FULL = "full"  # no room, and the policy drops what comes
    WATERMARK = "watermark"  # from drop_at on, before there is no room
    NO_SLOT = "no_slot"  # room in the queue, but readers hold all memory
    TIMEOUT = "timeout"  # waited for room in vain
    REJECTED = "rejected"  # no room, and the caller was told by an error
    INVALID = "invalid"  # not a frame of this queue
    ENDED = "ended"  # came after the end
    LATE = "late"  # its deadline had passed
    OLDEST = "oldest"  # made room for a newer one
    REPLACED = "replaced"  # a newer one is all that counts
    LOST = "lost"  # the process that had it died
    DECIMATED = "decimated"  # one in so many is wanted while a stage is crowded
    FAILED = "failed"  # its stage raised
    BREAKER = "breaker"  # the breaker of its stage was open, and nothing stood in
    REFUSED = "refused"  # the task that it went to could not take it


# Met by the stages of a pipeline alone; a queue of frames knows all others.
IN_STAGES: Final = (Reason.DECIMATED, Reason.FAILED, Reason.BREAKER, Reason.REFUSED)


class Accepted(NamedTuple):
    """The frame is in the queue. `seq` numbers what its process offered.

    `degraded` asks for the cheaper model.
    """

    seq: int
    degraded: bool = False
    evicted: int = 0  # frames that were dropped to make room


class Dropped(NamedTuple):
    """The frame is not in the queue, and was counted under `reason`. False in a condition.

    `retry_after_s` is, under `Backoff`, when to offer the newest frame instead; otherwise None.
    """

    reason: str
    retry_after_s: float | None = None

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """Wait longer each time: `first`, then `factor` times as long, at most `cap`.

    Starts anew when there was room.
    """

    first_s: float
    cap_s: float
    factor: float

    def __init__(self, first: str | float = "50ms", *, cap: str | float = "1s", factor: float = 2.0) -> None:
        put = object.__setattr__
        put(self, "first_s", positive_s("first", first))
        put(self, "cap_s", positive_s("cap", cap))
        put(self, "factor", float(factor))
        if self.cap_s < self.first_s:
            raise InvalidError(f"Backoff: cap ({cap!r}) is shorter than first ({first!r})")
        if not 1 <= self.factor <= 100:
            raise InvalidError(f"Backoff: factor must be between 1 and 100, not {factor!r}")

    def wait_s(self, tries: int) -> float:
        """Return seconds to wait after `tries` failed tries (0 and 1 are the first); grows up to the cap."""
        doublings = max(0, tries - 1)
        if doublings * math.log(self.factor) > math.log(self.cap_s / self.first_s):
            return self.cap_s
        return min(self.cap_s, self.first_s * self.factor**doublings)


class Enter(NamedTuple):
    """Take it in, after dropping `evict` waiting frames for `reason`."""

    degraded: bool
    evict: int = 0
    reason: Reason = Reason.OLDEST


class Hold(NamedTuple):
    """There is no room now, and the policy waits for it."""


class Refuse(NamedTuple):
    """Drop it, for `reason`."""

    reason: Reason


Decision = Enter | Hold | Refuse
_HOLD: Final = Hold()
_ENTER: Final = Enter(degraded=False)
_ENTER_DEGRADED: Final = Enter(degraded=True)
_REFUSE: Final = {reason: Refuse(reason) for reason in Reason}


class Door:
    """Decides for one buffer. From `drop_at` on, and without it when full, a frame costs another or itself.

    Remembers nothing but whether it degrades now, so that this does not flap at one level.
    """

    __slots__ = ("_degrade", "_drop_items", "_items_max", "_on_full", "backoff")

    def __init__(
        self,
        policy: str | Backoff,
        *,
        items_max: int,
        degrade_at: float | None = None,
        drop_at: float | None = None,
    ) -> None:
        self.backoff = policy if isinstance(policy, Backoff) else Backoff()
        self._on_full = OnFull.BACKOFF if isinstance(policy, Backoff) else on_full_of(policy)
        self._items_max = items_max
        _check_marks(degrade_at, drop_at)
        self._drop_items = items_max if drop_at is None else max(1, math.ceil(drop_at * items_max))
        high = None if degrade_at is None else math.ceil(degrade_at * items_max)
        self._degrade = None if high is None else Watermark(low=high * CALM_SHARE, high=high)

    @property
    def on_full(self) -> OnFull:
        """The policy's name."""
        return self._on_full

    @property
    def crowded_from(self) -> int:
        """The depth from which on a frame costs another, itself, or a wait."""
        return self._drop_items

    def decide(self, depth: int) -> Decision:
        """Return what to do with one frame more where `depth` wait already."""
        mark = self._degrade
        degraded = mark is not None and mark.see(depth)
        if self._on_full is OnFull.LATEST_ONLY and depth:
            return Enter(degraded, depth, Reason.REPLACED)
        if depth < self._drop_items:
            return _ENTER_DEGRADED if degraded else _ENTER
        return self._crowded(depth, degraded)

    def no_slot(self, degraded: bool) -> Decision:
        """Return what to do where the depth allows the frame but no memory is free: readers hold it."""
        if self._on_full in (OnFull.DROP_OLDEST, OnFull.LATEST_ONLY):
            return Enter(degraded, 1, Reason.OLDEST)
        if self._on_full in (OnFull.BLOCK, OnFull.BACKOFF):
            return _HOLD
        return _REFUSE[Reason.REJECTED if self._on_full is OnFull.REJECT else Reason.NO_SLOT]

    def _crowded(self, depth: int, degraded: bool) -> Decision:
        full = depth >= self._items_max
        if self._on_full is OnFull.DROP_OLDEST:
            return Enter(degraded, depth - self._drop_items + 1, Reason.OLDEST)
        if not full:
            return _REFUSE[Reason.WATERMARK]
        if self._on_full in (OnFull.BLOCK, OnFull.BACKOFF):
            return _HOLD
        return _REFUSE[Reason.REJECTED if self._on_full is OnFull.REJECT else Reason.FULL]


def on_full_of(policy: object) -> OnFull:
    """Return the policy of this name. Raises InvalidError with the names there are."""
    names = [one.value for one in OnFull if one is not OnFull.BACKOFF]
    if isinstance(policy, str) and policy in names:
        return OnFull(policy)
    raise InvalidError(f"policy must be one of {', '.join(names)} or Backoff(...), not {policy!r:.60}")


def instant(name: str, value: Any) -> float:
    """Return seconds since the epoch. Raises InvalidError that names the field for what is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidError(f"{name} must be a finite number of seconds since the epoch, not {value!r:.60}")
    return float(value)


def _check_marks(degrade_at: float | None, drop_at: float | None) -> None:
    for name, share in (("degrade_at", degrade_at), ("drop_at", drop_at)):
        if share is None:
            continue
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise InvalidError(f"{name} must be a share of maxsize above 0, at most 1, not {share!r:.60}")
    if degrade_at is not None and drop_at is not None and degrade_at >= drop_at:
        raise InvalidError(
            f"degrade_at ({degrade_at}) must be below drop_at ({drop_at}): from drop_at on no frame comes"
            " in, so none would be degraded"
        )


def positive_s(name: str, value: object) -> float:
    """Return seconds from a duration above zero. Raises InvalidError that names the field."""
    try:
        seconds = duration_s(value)
    except ValueError as error:
        raise InvalidError(f"{name}: {error}") from None
    if seconds <= 0:
        raise InvalidError(f"{name} must be above zero, not {value!r}")
    return seconds
