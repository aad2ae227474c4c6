"""Slot: one replica's place, and what its child last told of its breakers."""

from dataclasses import dataclass, field

from forebay.core.breaker import BreakerState
from forebay.node.replica import Replica


@dataclass(frozen=True, slots=True)
class BreakerSeen:
    """What was last told of a breaker."""

    state: str
    trips: int
    open_until: float
    reason: str
    since: float = 0.0
    shared: bool = False

    def wait_s(self, now: float) -> float:
        """Return the seconds until it lets a probe through."""
        return max(0.0, self.open_until - now) if self.state == BreakerState.OPEN.value else 0.0

    def shown(self, name: str, *, now: float) -> dict[str, object]:
        """Return it as the breaker of a task is shown; an open one whose time has come is half-open."""
        wait_s = self.wait_s(now)
        due = self.state == BreakerState.OPEN.value and not wait_s
        return {
            "breaker": name,
            "state": BreakerState.HALF_OPEN.value if due else self.state,
            "trips": self.trips,
            "retry_after_s": round(wait_s, 3),
            "reason": self.reason,
        }


@dataclass(slots=True)
class Slot:
    """One replica's place: the child in it now, and what became of those before."""

    number: int  # unique on this node; the dispatcher's number for the child in it
    name: str  # as it stands in timelines, logs and /v1/workers; unique among all nodes
    device: str
    gpu: int | None
    state: str = "starting"  # starting, ready, unresponsive, retiring, stopped, backoff, crash_loop, parked
    replica: Replica | None = None
    restarts: int = 0
    quick_deaths: int = 0
    ready_at: float | None = None
    last_crash: str | None = None
    parked: bool = False  # no child is wanted here now
    breakers: dict[str, BreakerSeen] = field(default_factory=dict[str, BreakerSeen])  # of the child in it

    @property
    def lane(self) -> str:
        """What it has in common with the other places of its lane."""
        return self.name.rpartition("/")[0]
