"""Meters: plain integers that hot paths add to; exposition reads them (metrics.py).

A cached child of prometheus_client costs 0.3 µs and a lock for every increment. At tens of thousands of
jobs a second these objects are added to many times per job, so they are integers and lists, used from
one event loop and read at scrape time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

# 0.045 s is the target that the alerts and the load reports are written against.
SECONDS_BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.045, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
    7200.0,
)  # fmt: skip
BATCH_BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
DELIVERY_OUTCOMES = ("delivered", "retried", "given_up", "disabled")
BREAKERS_MAX = 1_024  # breakers shown, each by its worker and its name
ERROR_BOUNDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Counts by upper bound, inclusive; the last count is above every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # sum of the observed values

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, values: Iterable[float]) -> None:
        """Count many values; cheaper per value than `observe`."""
        bounds, counts = self.bounds, self.counts
        total = 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self.total += total

    def observe_same(self, value: float, times: int) -> None:
        """Count one value several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class TaskMeter:
    """Everything counted of one task. Fields are public: the exposition reads them, tests compare them."""

    __slots__ = (
        "admitted_count", "arrivals", "attempts", "batch_size", "eta_error_s", "joins", "latency_s",
        "refusals", "replays", "requests", "restarts", "slo_good", "stale_commits", "task", "wait_s",
        "waited",
    )  # fmt: skip

    def __init__(self, task: str) -> None:
        self.task = task
        self.arrivals = 0
        self.admitted_count = 0
        self.joins = 0
        self.replays = 0
        self.stale_commits = 0
        self.slo_good = 0  # requests answered with their output within their deadline
        self.requests: dict[str, int] = {}  # that were let in, by how they ended
        self.refusals: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self.wait_s = Histogram(SECONDS_BOUNDS)  # ready -> granted
        self.waited: dict[int, tuple[int, float]] = {}  # by priority: grants, and their waits in all
        self.latency_s = Histogram(SECONDS_BOUNDS)  # accepted -> final
        self.batch_size = Histogram(BATCH_BOUNDS)
        self.eta_error_s = Histogram(ERROR_BOUNDS)  # |told - true| of the time told at submit

    def granted(self, priorities: Sequence[int], waits: Sequence[float]) -> None:
        """Count grants and how long each job was ready before."""
        self.wait_s.observe_many(waits)
        for priority, wait_s in zip(priorities, waits, strict=True):
            count, total = self.waited.get(priority, (0, 0.0))
            self.waited[priority] = (count + 1, total + wait_s)

    def arrived(self, count: int) -> None:
        """Count submissions, whatever becomes of them."""
        self.arrivals += count

    def admitted(self, count: int) -> None:
        """Count submissions that became jobs: accepted is what is open and what has ended."""
        self.admitted_count += count

    def replayed(self, count: int) -> None:
        """Count submissions whose key already had its job."""
        self.replays += count

    def joined(self, count: int) -> None:
        """Count submissions that were answered with an equal job."""
        self.joins += count

    def refused(self, reason: str, count: int) -> None:
        """Count refused submissions by the value of core.admission.Reason, or by the code of the problem."""
        self.refusals[reason] = self.refusals.get(reason, 0) + count

    def attempted(self, outcome: str, count: int = 1) -> None:
        """Count ended attempts by the value of core.lifecycle.Event."""
        self.attempts[outcome] = self.attempts.get(outcome, 0) + count

    def restarted(self, reason: str) -> None:
        """Count a replica that was started again, by a word of a closed list (crash, timeout ...)."""
        self.restarts[reason] = self.restarts.get(reason, 0) + 1

    def stale(self, count: int = 1) -> None:
        """Count commits refused because their fence was not current."""
        self.stale_commits += count


class Meters:
    """The meters of this process, one per served task, and the bounds that were reached."""

    def __init__(self, tasks: Iterable[str] = ()) -> None:
        self.by_task: dict[str, TaskMeter] = {name: TaskMeter(name) for name in tasks}
        self.bounds: dict[str, int] = {}
        self.deliveries: dict[str, int] = dict.fromkeys(DELIVERY_OUTCOMES, 0)
        self.budgets: dict[str, int] = {"granted": 0, "refused": 0}  # jobs of all budgets
        self.cron_turns: dict[tuple[str, str], int] = {}  # by entry and outcome
        self.limits: dict[str, int] = {}  # calls to an upstream at once, by task
        self.gates: dict[str, tuple[str, float | None]] = {}  # of upstreams: how each stands, its value
        self.levels: dict[str, int] = {}  # of tasks with variants: which runs ordinary work now
        self.replicas: dict[str, int] = {}  # of tasks with a range of them: how many there are to be
        self.replica_changes: dict[tuple[str, str], int] = {}  # (task, up or down) -> changes of that
        self.degraded: dict[str, int] = {}  # results by the word for their level
        self.breakers: dict[tuple[str, str], str] = {}  # (worker, name) -> state
        self.breaker_trips: dict[str, int] = {}  # by name; those of processes that are gone stay counted
        self.breaker_uses: dict[
            tuple[str, str], set[str]
        ] = {}  # (task, name) -> lanes where it guards its calls

    def foretold(self, task: str, error_s: float) -> None:
        """Take in how far an estimate was from the truth."""
        self.for_task(task).eta_error_s.observe(abs(error_s))

    def for_task(self, task: str) -> TaskMeter:
        """Return the meter of a task, made on first use. Only served tasks may be asked for."""
        meter = self.by_task.get(task)
        if meter is None:
            meter = self.by_task[task] = TaskMeter(task)
        return meter

    def delivery_tried(self, outcome: str) -> None:
        """Count a try to tell a callback, by what it led to: a word of the closed list above."""
        self.deliveries[outcome] += 1

    def budgeted(self, decision: str, count: int) -> None:
        """Count submissions that a budget granted or refused, a refused one each time it comes."""
        self.budgets[decision] += count

    def cron_turned(self, entry: str, outcome: str) -> None:
        """Count a due instant of a declared entry: submitted, refused, or why it has no job."""
        key = (entry, outcome)
        self.cron_turns[key] = self.cron_turns.get(key, 0) + 1

    def scaled(self, task: str, replicas: int, was: int | None) -> None:
        """Note how many replicas a task has from now on; without `was` as it begins."""
        self.replicas[task] = replicas
        for direction in ("up", "down"):
            changed = was is not None and (replicas > was if direction == "up" else replicas < was)
            key = (task, direction)
            self.replica_changes[key] = self.replica_changes.get(key, 0) + changed

    def breaker(self, worker: str, name: str, state: str, trips: int) -> None:
        """Note the state of a breaker and count how often it tripped since it was last noted."""
        key = (worker, name)
        if key not in self.breakers and len(self.breakers) >= BREAKERS_MAX:
            self.bound_reached("BREAKERS_MAX")
            return
        self.breakers[key] = state
        if name in self.breaker_trips or len(self.breaker_trips) < BREAKERS_MAX:
            self.breaker_trips[name] = self.breaker_trips.get(name, 0) + max(0, trips)

    def breaker_used(self, worker: str, name: str, tasks: Iterable[str]) -> None:
        """Note for which tasks the breaker of a worker has guarded calls."""
        for task in tasks:
            key = (task, name)
            if key not in self.breaker_uses and len(self.breaker_uses) >= BREAKERS_MAX:
                self.bound_reached("BREAKERS_MAX")
            else:
                self.breaker_uses.setdefault(key, set()).add(worker.rpartition("/")[0])

    def breakers_gone(self, worker: str) -> None:
        """Forget where the breakers of a process stood."""
        for key in [key for key in self.breakers if key[0] == worker]:
            del self.breakers[key]

    def bound_reached(self, bound: str) -> None:
        """Count that a named bound of the code was reached."""
        self.bounds[bound] = self.bounds.get(bound, 0) + 1
