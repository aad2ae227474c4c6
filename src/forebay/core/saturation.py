"""SaturationGate: whether calls to a server may begin, by a number that the server says of itself."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

OF: Final = ("max", "sum")  # of several series


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationPolicy:
    """When it closes and when it opens again. Between the two it stays as it is."""

    close_at: float
    open_at: float
    every_s: float = 1.0  # from one look to the next
    stale_s: float = 10.0  # without a value, until it stands open

    def __post_init__(self) -> None:
        assert self.open_at < self.close_at
        assert self.every_s > 0 and self.stale_s > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationSpec:
    """Which number is looked at: a metric on a page in the text format of Prometheus."""

    url: str
    metric: str
    policy: SaturationPolicy
    labels: tuple[tuple[str, str], ...] = ()  # that a series must have to count
    of: str = "max"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # keys may be among them

    def __post_init__(self) -> None:
        assert self.of in OF


class Stand(str, Enum):
    """How the gate stands."""

    OPEN = "open"
    CLOSED = "closed"
    BLIND = "blind"  # open, as there is no value to go by


class Change(NamedTuple):
    """It stands otherwise now, and why, for people."""

    stand: Stand
    reason: str


class SaturationGate:
    """No clock inside: `see` tells it each look, `closed` says whether a call may begin."""

    __slots__ = ("_missing_since", "policy", "stand", "value")

    def __init__(self, policy: SaturationPolicy) -> None:
        self.policy = policy
        self.stand = Stand.OPEN
        self.value: float | None = None  # the last one seen; None while it is blind and before the first
        self._missing_since: float | None = None  # the first look of those in a row that had no value

    @property
    def closed(self) -> bool:
        """Whether no call may begin."""
        return self.stand is Stand.CLOSED

    def see(self, value: float | None, *, now: float, why: str = "") -> Change | None:
        """Take in a look; return the change it made. `value` None: there was none to be had, and `why`.

        Without a value it stays as it is for `stale_s`, then it stands open: a metric that is gone must not
        stop the work, and each call is judged by its own answer all the same.
        """
        if value is None:
            return self._missed(now, why)
        policy = self.policy
        self.value, self._missing_since = value, None
        if value >= policy.close_at and not self.closed:
            return self._stands(Stand.CLOSED, f"{value:g} (closes at {policy.close_at:g})")
        if value <= policy.open_at and self.stand is not Stand.OPEN:
            return self._stands(Stand.OPEN, f"{value:g} (opens at {policy.open_at:g})")
        if self.stand is Stand.BLIND:
            return self._stands(Stand.OPEN, f"{value:g}: there is a value again")
        return None

    def _missed(self, now: float, why: str) -> Change | None:
        if self._missing_since is None:
            self._missing_since = now
        if self.stand is Stand.BLIND or now - self._missing_since < self.policy.stale_s:
            return None
        self.value = None
        return self._stands(Stand.BLIND, f"no value for {self.policy.stale_s:g} s: {why}")

    def _stands(self, stand: Stand, reason: str) -> Change:
        self.stand = stand
        return Change(stand, reason)
