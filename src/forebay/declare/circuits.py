"""Circuits: the states behind breakers, one for each name in this process, told of and told by others."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple

from forebay.core.breaker import BreakerPolicy, BreakerState, Change, CircuitBreaker, Ending, Permit, Refused
from forebay.errors import AppError

NAMED_MAX: Final = 256  # breakers with a name in one process: each is reported
KEYS_MAX: Final = 1_000  # of one breaker: those used last are kept
TASKS_MAX: Final = 64  # that one breaker is said to be used by


class Report(NamedTuple):
    """Where a named breaker stands, for whoever watches."""

    name: str
    state: str
    trips: int
    wait_s: float  # until it lets a probe through; 0.0 unless it is open
    reason: str  # of its last change, for people
    tasks: tuple[str, ...] = ()  # whose calls it guarded so far
    shared: bool = False
    told: bool = False  # it stands so because another process told


class Circuit:
    """The state that all breakers of one name in this process share."""

    def __init__(
        self, name: str, policy: BreakerPolicy, clock: Callable[[], float], *, shared: bool = False
    ) -> None:
        self.name = name
        self.shared = shared
        self.core = CircuitBreaker(policy)
        self.keyed: dict[object, Circuit] = {}  # the one used last is the last
        self._clock = clock
        self._lock = threading.Lock()
        self._tasks = {""}  # whose calls it guarded

    def of(self, key: object) -> "Circuit":
        """Return the circuit of one of many."""
        with self._lock:
            found = self.keyed.pop(key, None) or Circuit("", self.core.policy, self._clock)
            if len(self.keyed) >= KEYS_MAX:
                del self.keyed[next(iter(self.keyed))]
            self.keyed[key] = found
            return found

    def ask(self) -> Permit | Refused:
        """Return whether a call may go through."""
        with self._lock:
            answer = self.core.ask(now=self._clock())
            task = _task.get(_alone.task)
            new = task not in self._tasks and len(self._tasks) <= TASKS_MAX
            if new:
                self._tasks.add(task)
            self._tell(answer.change if isinstance(answer, Permit) else None, anyway=new)
            return answer

    def ended(self, permit: Permit, ending: Ending) -> None:
        """Take in how a call ended."""
        with self._lock:
            self._tell(self.core.ended(permit, ending, now=self._clock()))

    def told(self, state: BreakerState, wait_s: float, reason: str) -> None:
        """Take in what another process found out."""
        with self._lock:
            until = self.core.open_until
            change = self.core.told(state, wait_s=wait_s, reason=reason, now=self._clock())
            self._tell(change, anyway=until != self.core.open_until, told=True)

    def state(self) -> BreakerState:
        """Return what it is now."""
        with self._lock:
            return self.core.state(now=self._clock())

    def wait_s(self) -> float:
        """Return the seconds until a call may go through."""
        with self._lock:
            return self.core.retry_after_s(now=self._clock())

    def report(self) -> Report:
        """Return where it stands."""
        with self._lock:
            return self._report()

    def _report(self, *, told: bool = False) -> Report:
        core, now = self.core, self._clock()
        state = core.state(now=now)
        wait_s = core.open_until - now if state is BreakerState.OPEN else 0.0
        tasks = tuple(sorted(self._tasks - {""}))
        return Report(self.name, state.value, core.trips, wait_s, core.reason, tasks, self.shared, told)

    def _tell(self, change: Change | None, *, anyway: bool = False, told: bool = False) -> None:
        if (change is not None or anyway) and self.name in _named and _watchers:
            report = self._report(told=told)
            for watcher in _watchers:
                watcher(report)


class _Alone:
    task = ""  # the only task of this process: also of its threads that know none


_named: dict[str, Circuit] = {}
_named_lock = threading.Lock()
_watchers: list[Callable[[Report], None]] = []
_alone = _Alone()
_task: "ContextVar[str]" = ContextVar("forebay_task")


def circuit_of(
    name: str, policy: BreakerPolicy, clock: Callable[[], float], *, shared: bool = False
) -> Circuit:
    """Return the circuit of a name; one of its own where there is none. Raises AppError."""
    if not name:
        return Circuit(name, policy, clock)
    with _named_lock:
        found = _named.get(name)
        if found is None:
            if len(_named) >= NAMED_MAX:
                raise AppError(
                    f"breaker {name}: there are {NAMED_MAX} names in this process already (NAMED_MAX); "
                    "a breaker for each of many things needs no name"
                )
            found = _named[name] = Circuit(name, policy, clock, shared=shared)
            for watcher in _watchers:
                watcher(found.report())
        elif (found.core.policy, found.shared) != (policy, shared):
            raise AppError(f"breaker {name}: made twice with different limits; give one another name")
        return found


def watch(watcher: Callable[[Report], None]) -> list[Report]:
    """Have `watcher` called at every change of a named breaker and return where each stands now. It is
    called under a lock, by any thread: it must be quick and must not raise."""
    _watchers.append(watcher)
    return [circuit.report() for circuit in list(_named.values())]


def works_for(task: str, *, alone: bool = False) -> None:
    """Say whose calls are made from here on in this context. `alone`: this process makes no others."""
    _task.set(task)
    if alone:
        _alone.task = task


def told(name: str, state: str, wait_s: float, reason: str) -> None:
    """Take in what another process found out of a shared breaker; others are left alone."""
    circuit = _named.get(name)
    if circuit is not None and circuit.shared:
        circuit.told(BreakerState(state), wait_s, reason)
