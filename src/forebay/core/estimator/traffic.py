"""Traffic: how fast jobs of each priority come and how fast jobs leave, over the last half minute."""

from collections import deque

from forebay.core.job import AGEING_S, PRIORITY_LEAST

ROLL_S = 1.0
FADE = 0.98  # of a rate, each second: the last ~50 s decide
DRAIN_WINDOW_S = 30.0
DRAIN_BUCKETS_MAX = 64
KNOWN_S = 50.0  # 1 / (1 - FADE): the time a rate stands for
URGENT_SHARE_MAX = 0.9  # of the capacity that more urgent arrivals are believed to take


class Arrivals:
    """Rates by priority. Cheap for every submission: one addition."""

    __slots__ = (
        "_began_at",
        "_counts",
        "_rates",
        "_roll_at",
        "_squares",
        "_weight",
        "clumped",
        "mixed",
        "total_per_s",
    )

    def __init__(self) -> None:
        self._counts = [0] * (PRIORITY_LEAST + 1)
        self._rates = [0.0] * (PRIORITY_LEAST + 1)
        self._roll_at = 0.0
        self._began_at = 0.0
        self._weight = 0.0
        self._squares = 0.0
        self.clumped = 1.0  # variance over mean of the count of a second: 1 when jobs come independently
        self.mixed = False  # whether jobs of different urgency come
        self.total_per_s = 0.0

    def count(self, priority: int, count: int, *, now: float) -> None:
        """Count accepted submissions of one priority."""
        if now >= self._roll_at:
            self.roll(now)
        self._counts[priority] += count

    def roll(self, now: float) -> None:
        """Bring the rates up to `now`; once a second is enough."""
        if self._roll_at == 0.0:
            self._began_at = now
        elapsed_s = now - self._began_at
        if elapsed_s >= ROLL_S:
            fade = FADE**elapsed_s
            gain = 1.0 - fade
            self._weight = self._weight * fade + gain
            rates, counts = self._rates, self._counts
            arrived = sum(counts)
            self._squares = self._squares * fade + gain * arrived * arrived / elapsed_s
            for at, count in enumerate(counts):
                rates[at] = rates[at] * fade + gain * count / elapsed_s
                counts[at] = 0
            self._began_at = now
            self.total_per_s = sum(rates) / self._weight
            mean = self.total_per_s
            self.clumped = max(1.0, self._squares / self._weight / mean - mean) if mean > 0 else 1.0
            self.mixed = sum(1 for rate in rates if rate > 0.01 * self.total_per_s > 0) > 1
        self._roll_at = self._began_at + ROLL_S

    def overtaking(self, priority: int, *, wait_s: float, item_s: float) -> tuple[float, float]:
        """Return how many more urgent jobs are expected to come within the wait and to go first, and the
        variance of that number.

        One k levels more urgent goes first only if it comes within k * AGEING_S. `item_s` is the time
        between two departures; each that overtakes makes the wait longer for others to overtake.
        """
        known = self._weight
        if not known:
            return 0.0, 0.0
        total = variance = 0.0
        # Of a burst that is coming in right now the rest is still to come, and the rate says nothing of it.
        rest = max(0.0, self.clumped - sum(self._counts)) / max(1e-9, self.total_per_s)
        for urgent in range(priority):
            rate = self._rates[urgent] / known
            if rate > 0.0:
                share = min(URGENT_SHARE_MAX, rate * item_s)
                within_s = min(wait_s / (1.0 - share), (priority - urgent) * AGEING_S)
                total += rate * (within_s + rest)
                # How many come by chance, and how little the rate is known after so short a time.
                variance += rate * within_s * (1.0 + within_s / (known * KNOWN_S))
        return total, variance * self.clumped


class Drain:
    """Jobs that left the queue for good, by time."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, int]] = deque(maxlen=DRAIN_BUCKETS_MAX)

    def count(self, count: int, *, now: float) -> None:
        """Count jobs that left."""
        buckets = self._buckets
        if buckets and now - buckets[-1][0] < DRAIN_WINDOW_S / (DRAIN_BUCKETS_MAX - 4):
            start, before = buckets[-1]
            buckets[-1] = (start, before + count)
        else:
            buckets.append((now, count))

    def total(self, *, now: float) -> tuple[int, float]:
        """Return how many left within the window, and per second."""
        while self._buckets and self._buckets[0][0] < now - DRAIN_WINDOW_S:
            self._buckets.popleft()
        if not self._buckets:
            return 0, 0.0
        total = sum(count for _, count in self._buckets)
        return total, total / max(1.0, now - self._buckets[0][0])
