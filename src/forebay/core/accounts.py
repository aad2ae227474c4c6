"""Accounts: what became of every frame of every stream: sent = served + dropped by reason + in flight."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from forebay.core.buffer import Reason
from forebay.core.lanes import OTHERS, STREAMS_MAX, Ticket

GROWTH: Final = 1.05  # from one bucket to the next: a quantile is at most 5 % too high
LEAST_S: Final = 1e-5
BUCKETS: Final = 400  # up to 54 minutes
RECENT_S: Final = 30.0  # a recent quantile is of the last one to two of these
ALERT_SHARE: Final = 0.001  # of frames dropped, from which on a stream is not well
_LOG: Final = math.log(GROWTH)


class Latencies:
    """How long frames took, in buckets that grow by GROWTH."""

    __slots__ = ("count", "counts")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.count = 0

    def add(self, seconds: float) -> None:
        """Take in one."""
        at = 0 if seconds <= LEAST_S else min(BUCKETS - 1, math.ceil(math.log(seconds / LEAST_S) / _LOG))
        self.counts[at] += 1
        self.count += 1

    def quantile(self, share: float) -> float | None:
        """Return seconds that this share of them did not exceed, None when there are none."""
        return quantile_of(self.counts, share)


def quantile_of(counts: list[int], share: float) -> float | None:
    """Return the upper edge of the bucket in which the share is reached, in seconds."""
    wanted = math.ceil(share * sum(counts))
    seen = 0
    for at, count in enumerate(counts):
        seen += count
        if wanted and seen >= wanted:
            return LEAST_S * GROWTH**at
    return None


@dataclass(slots=True)
class StreamAccount:
    """What became of the frames of one stream."""

    sent: int = 0
    served: int = 0
    fallback: int = 0  # served by what stands in for a stage
    in_flight: int = 0
    dropped: "Counter[str]" = field(default_factory=Counter[str])
    degraded: "Counter[int]" = field(default_factory=Counter[int])  # served, by step
    latency: Latencies = field(default_factory=Latencies)  # from capture, of those served
    recent: list[Latencies] = field(default_factory=lambda: [Latencies(), Latencies()])
    turned_at: float = 0.0

    @property
    def lost(self) -> int:
        """Frames that were not served, for whatever reason."""
        return self.dropped.total()

    @property
    def drop_share(self) -> float:
        """The share of the frames sent that were dropped."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def alert(self) -> bool:
        """Whether more than ALERT_SHARE was dropped. What was decimated on purpose counts too: it is gone."""
        return self.drop_share >= ALERT_SHARE

    @property
    def adds_up(self) -> bool:
        """Whether every frame sent is served, dropped or in flight."""
        return self.sent == self.served + self.lost + self.in_flight

    def recent_quantile(self, share: float) -> float | None:
        """Return the quantile of what was served lately, in seconds from capture."""
        older, newer = self.recent
        return quantile_of([a + b for a, b in zip(older.counts, newer.counts, strict=True)], share)


class Accounts:
    """The accounts of a pipeline. A frame is opened once and closed once, as served or under a reason."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamAccount] = {}

    def name(self, stream: str) -> str:
        """Return the stream under which frames of this name go: past STREAMS_MAX all are one."""
        return stream if stream in self.streams or len(self.streams) < STREAMS_MAX else OTHERS

    def open(self, stream: str) -> int:
        """Count a frame as sent, and return its number in its stream."""
        account = self.streams.setdefault(stream, StreamAccount())
        seq = account.sent
        account.sent += 1
        account.in_flight += 1
        return seq

    def serve(self, ticket: Ticket, *, now: float) -> None:
        """Close a frame as served."""
        account = self.streams[ticket.stream]
        account.in_flight -= 1
        account.served += 1
        account.fallback += ticket.fallback
        if ticket.degraded:
            account.degraded[ticket.degraded] += 1
        took_s = max(0.0, now - ticket.captured_at)
        account.latency.add(took_s)
        if now - account.turned_at >= RECENT_S:
            stale = now - account.turned_at >= 2 * RECENT_S
            account.recent = [Latencies() if stale else account.recent[1], Latencies()]
            account.turned_at = now
        account.recent[1].add(took_s)

    def drop(self, ticket: Ticket, reason: Reason) -> None:
        """Close a frame as dropped."""
        account = self.streams[ticket.stream]
        account.in_flight -= 1
        account.dropped[reason.value] += 1
