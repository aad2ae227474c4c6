"""Pending: predictions that wait for their truth; bounded, so at high rates only a sample is scored."""

from collections.abc import Sequence
from typing import NamedTuple

from forebay.core.estimator.eta import Eta

PENDING_MAX = 256
SPARSE_AT, DENSE_AT = PENDING_MAX // 2, PENDING_MAX // 8  # fill at which fewer, or more, are taken
STRIDE_MAX = 4096
CREDIT_PER_S = 250.0  # predictions taken each second at most, beside
CREDIT_MAX = 128.0  # so many at once: scoring costs more than telling
STALE_FACTOR, STALE_S = 8.0, 60.0  # a job this long past its p90 is not waited for


class Told(NamedTuple):
    """One prediction that was told."""

    at: float
    eta: Eta


class Pending:
    """A sample of what was told: all of it while jobs are few, one in `stride` when there are many."""

    __slots__ = ("_at", "_credit", "_skip", "_told", "stride")

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}
        self._skip = 0
        self._credit = CREDIT_MAX
        self._at = 0.0
        self.stride = 1

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, key: str) -> bool:
        return key in self._told

    def offer(self, key: str, eta: Eta, *, now: float) -> None:
        """Keep this prediction if it is its turn and there is room."""
        if self._skip > 0:
            self._skip -= 1
            return
        credit = min(CREDIT_MAX, self._credit + (now - self._at) * CREDIT_PER_S)
        self._at = now
        if credit < 1.0:
            self._credit = credit
            return
        self._credit = credit - 1.0
        told = self._told
        filled = len(told)
        if filled >= SPARSE_AT:
            self.stride = min(STRIDE_MAX, self.stride * 2)
            oldest = next(iter(told))
            at, before, *_ = told[oldest]
            if now > at + STALE_FACTOR * before.p90_s + STALE_S:
                del told[oldest]
        elif filled < DENSE_AT and self.stride > 1:
            self.stride //= 2
        self._skip = self.stride - 1
        if len(told) < PENDING_MAX:
            told[key] = Told(now, eta)

    def take(self, keys: Sequence[str]) -> list[Told]:
        """Take out what was told of these jobs."""
        told = self._told
        return [told.pop(key) for key in keys if key in told]
