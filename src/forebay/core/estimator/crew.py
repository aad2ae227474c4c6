"""Crew: the replicas of one lane as an estimate needs them: ready, busy with what, and still loading."""

from forebay.core.hand import Hand
from forebay.core.replicas import Replica, Run

LOAD_GAIN = 0.5  # the last loads decide


class Crew:
    """What is known of a lane's replicas. `hand` None: only how many there are."""

    __slots__ = ("_far", "_hand", "_load_s", "_share", "_starting", "changes", "count")

    def __init__(self, hand: Hand | None = None) -> None:
        self._hand = hand
        self._starting: dict[int, float] = {}  # replica -> when it began to load, maybe in the future
        self._load_s: float | None = None
        self.count = 0  # ready now
        self._far: dict[str, int] = {}  # task -> replicas that are ready on other nodes
        self._share = 1.0  # of the replicas' time that requests leave to jobs
        self.changes = 0  # grows when replicas come or go

    @property
    def known(self) -> bool:
        """Whether it can be seen what each replica does."""
        return self._hand is not None

    @property
    def load_s(self) -> float:
        """How long a child took to load of late, 0 while none was seen to."""
        return self._load_s or 0.0

    def heard(self, task: str, ready: int) -> None:
        """So many replicas of other nodes serve a task now."""
        if ready != self._far.get(task, 0):
            self._far[task] = ready
            self.changes += 1

    def serving(self, task: str) -> int:
        """Return how many replicas serve a task now, here and elsewhere."""
        return self.count + self._far.get(task, 0)

    def unseen(self, task: str) -> int:
        """Return how many of them are known by their number alone."""
        return self._far.get(task, 0) if self.known else self.serving(task)

    def in_hand(self, task: str) -> int:
        """Return how many jobs of a task are with the replicas that can be seen, or on their way to them."""
        if self._hand is None:
            return 0
        return sum(item.lease.job.task == task for item in self._hand.items.values())

    def starting(self, replica: int, *, at: float) -> None:
        """A child begins to load at `at`, which may lie ahead (a pause before a restart)."""
        self._starting[replica] = at
        self.changes += 1

    def ready(self, replica: int, *, now: float) -> None:
        """A child has loaded."""
        began_at = self._starting.pop(replica, None)
        if began_at is not None:
            took_s = max(0.0, now - began_at)
            self._load_s = (
                took_s if self._load_s is None else self._load_s + LOAD_GAIN * (took_s - self._load_s)
            )
        self.count += 1
        self.changes += 1

    def gone(self, replica: int, *, was_ready: bool) -> None:
        """A child died or was stopped."""
        self._starting.pop(replica, None)
        self.count -= was_ready
        self.changes += 1

    def loading(self, now: float) -> list[float]:
        """Return in how many seconds each loading child is expected; empty while no load was measured."""
        load_s = self._load_s
        if load_s is None or not self._starting:
            return []
        # One that is late already is expected after as long again as it has been late.
        return [
            left_s if (left_s := at + load_s - now) > 0 else max(0.1 * load_s, -left_s)
            for at in self._starting.values()
        ]

    def replicas(self) -> list[Replica]:
        """Return the replicas that may be given work."""
        if self._hand is None:
            return []
        return [one for one in self._hand.replicas.values() if one.open]

    def expected_s(self, run: Run, items: int) -> float:
        """Return the expected seconds of `items` of a run of any task of the lane."""
        assert self._hand is not None
        return self._hand.tasks[run.task].fit_at(run.level).run_s(items) or 0.0

    def jobs_share(self, now: float) -> float:
        """Return the share of the replicas' time that is left to jobs beside the requests of late."""
        hand = self._hand
        return 1.0 if hand is None else hand.basin.jobs_share(len(self.replicas()), now=now)

    def beside_requests(self, wait_s: float, run_s: float) -> float:
        """Return how long a wait is for jobs that share the replicas with requests, as last looked at: the
        turn of jobs comes every so many runs while requests wait too."""
        if self._share >= 1.0 or self._hand is None:
            return wait_s
        turn_s = 0.5 * run_s * (1.0 / self._share - 1.0) if self._hand.basin.waiting else 0.0
        return wait_s / self._share + turn_s

    def waiting(self, task: str, now: float) -> tuple[int, int]:
        """Look; return what is leased and with no replica: of the task, and of how many other tasks."""
        if self._hand is None:
            return 0, 0
        self._share = self.jobs_share(now)
        tasks = self._hand.tasks
        own = tasks.get(task)
        held = 0 if own is None else len(own.held)
        if len(tasks) == 1:
            return held, 0
        return held, sum(
            1 for name, other in tasks.items() if name != task and (other.held or other.runs_out)
        )


def start_after(offsets: list[float], runs: int, run_s: float) -> float:
    """Return when the run after `runs` others starts on replicas that get free at `offsets` (sorted, not
    empty), if each run takes `run_s`."""
    free = len(offsets)
    if free == 1:
        return offsets[0] + runs * run_s
    while free > 1:
        total = 0.0
        for offset in offsets[:free] if free < len(offsets) else offsets:
            total += offset
        # On average; replicas that take turns start half a run earlier than the sum of work says.
        starts_s = (runs * run_s + total) / free - run_s * (free - 1) / (2 * free)
        if offsets[free - 1] <= starts_s or offsets[free - 1] - offsets[0] < run_s:
            break
        free -= 1
    if offsets[free - 1] - offsets[0] < run_s or free == 1:
        rounds, place = divmod(runs, free)
        return rounds * run_s + offsets[place]
    return max(offsets[0], (runs * run_s + sum(offsets[:free])) / free - run_s * (free - 1) / (2 * free))
