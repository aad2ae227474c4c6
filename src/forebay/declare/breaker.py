"""Breaker: guards calls to something that may fail or be slow; decorator and context, sync and async."""

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from forebay.core.breaker import (
    BreakerPolicy,
    BreakerState,
    Change,
    CircuitBreaker,
    Ending,
    Permit,
    Refused,
)
from forebay.declare.options import Exceptions, Reader, refuse
from forebay.errors import AppError, BreakerOpenError

P = ParamSpec("P")
R = TypeVar("R")

NAMED_MAX: Final = 256  # breakers with a name in one process: each is reported
NAME_LENGTH_MAX: Final = 100
KEYS_MAX: Final = 1_000  # of one breaker: those used last are kept
AUTO: Final = "auto"
SLOW_S: Final = 1.0  # what "auto" means where a breaker by rate guards calls
NOTHING: Final = object()  # no fallback: None is a fallback too


class Report(NamedTuple):
    """Where a named breaker stands, for whoever watches."""

    name: str
    state: str
    trips: int
    wait_s: float  # until it lets a probe through; 0.0 unless it is open
    reason: str  # of its last change, for people


class _Circuit:
    """The state that all breakers of one name in this process share."""

    def __init__(self, name: str, policy: BreakerPolicy, clock: Callable[[], float]) -> None:
        self.name = name
        self.core = CircuitBreaker(policy)
        self.keyed: dict[object, _Circuit] = {}  # the one used last is the last
        self._clock = clock
        self._lock = threading.Lock()

    def of(self, key: object) -> "_Circuit":
        with self._lock:
            found = self.keyed.pop(key, None) or _Circuit("", self.core.policy, self._clock)
            if len(self.keyed) >= KEYS_MAX:
                del self.keyed[next(iter(self.keyed))]
            self.keyed[key] = found
            return found

    def ask(self) -> Permit | Refused:
        with self._lock:
            answer = self.core.ask(now=self._clock())
            self._tell(answer.change if isinstance(answer, Permit) else None)
            return answer

    def ended(self, permit: Permit, ending: Ending) -> None:
        with self._lock:
            self._tell(self.core.ended(permit, ending, now=self._clock()))

    def state(self) -> BreakerState:
        with self._lock:
            return self.core.state(now=self._clock())

    def wait_s(self) -> float:
        with self._lock:
            return self.core.retry_after_s(now=self._clock())

    def report(self) -> Report:
        with self._lock:
            return self._report()

    def _report(self) -> Report:
        core, now = self.core, self._clock()
        state = core.state(now=now)
        wait_s = core.open_until - now if state is BreakerState.OPEN else 0.0
        return Report(self.name, state.value, core.trips, wait_s, core.reason)

    def _tell(self, change: Change | None) -> None:
        if change is not None and self.name in _named and _watchers:
            report = self._report()
            for watcher in _watchers:
                watcher(report)


_named: dict[str, _Circuit] = {}
_named_lock = threading.Lock()
_watchers: list[Callable[[Report], None]] = []


class _Entered(NamedTuple):
    """A `with` that is open in this thread or task, and those around it."""

    circuit: _Circuit
    permit: Permit
    outer: "_Entered | None"


_entered: "ContextVar[_Entered | None]" = ContextVar("forebay_breakers", default=None)


class Breaker:
    """A circuit breaker: stops calling what keeps failing or being slow, and tries it again with one call.

    `failures` opens it at so many bad calls within `window`; `rate` when that share of the calls within it
    was bad, of at least `calls_min`. Neither given: `rate=0.5` within 10 s of at least 10 calls. A call is
    bad when it raises an exception that is not in `ignore`, or takes longer than `slow` ("auto": 1 s by
    rate, no limit with `failures` alone or on a task; None: no limit). After `open_for` one call, the probe,
    goes through and decides.

    Use it as a decorator, or as `with breaker:` or `async with breaker:` around a call. While it is open a
    decorated function answers with `fallback` (called with the same arguments when it can be called) or
    raises BreakerOpenError with `retry_after_s`; a context always raises that. Breakers with the same `name`
    share their state in one process; those with a name are shown at GET /v1/workers. Any thread and task may
    use it. Not promised: a state that is shared between processes.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        failures: int | None = None,
        window: float | str | None = None,
        rate: float | None = None,
        calls_min: int = 10,
        slow: float | str | None = AUTO,
        open_for: float | str = "30s",
        fallback: object = NOTHING,
        ignore: object = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = "" if name is None else _read_name(Reader("breaker"), name)
        read = Reader(f"breaker {self.name}".rstrip())
        self.slow_given = slow != AUTO
        self.policy = _policy(read, failures, window, rate, calls_min, slow, open_for)
        self.ignore: Exceptions = read.exceptions("ignore", ignore)
        self.fallback = fallback
        self._circuit = _circuit(self.name, self.policy, read.clock(clock))

    @property
    def state(self) -> str:
        """What it is now: "closed", "open" or "half_open"."""
        return self._circuit.state().value

    @property
    def trips(self) -> int:
        """How often it went from closed to open in this process."""
        return self._circuit.core.trips

    @property
    def retry_after_s(self) -> float:
        """Seconds until a call may go through; 0.0 when one may now."""
        return self._circuit.wait_s()

    def of(self, key: object) -> "Breaker":
        """Return the breaker of one of many, such as a tenant or a host: the same limits, a state of its own.
        The KEYS_MAX used last are remembered; none of them is shown. `key` must be hashable."""
        one = copy.copy(self)
        vars(one).update(name="", _circuit=self._circuit.of(key))
        return one

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function guarded. A coroutine function stays one. Raises AppError for a generator."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise AppError(f"breaker: {function.__qualname__} is a generator; put `with breaker:` in it")
        if inspect.iscoroutinefunction(function):
            return cast("Callable[P, R]", self._guard_async(function))
        return self._guard(function)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _enter(self) -> None:
        answer = self._circuit.ask()
        if isinstance(answer, Refused):
            raise self._refusal(answer)
        _entered.set(_Entered(self._circuit, answer, _entered.get()))

    def _leave(self, error: BaseException | None) -> None:
        entered, rest = _taken(_entered.get(), self._circuit)
        _entered.set(rest)
        if entered is not None:  # else a generator was left in another context; a probe ends by its time
            self._circuit.ended(entered.permit, self.ending_of(error))

    def ending_of(self, error: BaseException | None) -> Ending:
        """Return what the end of a call says: a cancel, an exit and what is in `ignore` say nothing."""
        if error is None:
            return Ending.GOOD
        ours = isinstance(error, Exception) and not isinstance(error, self.ignore)
        return Ending.BAD if ours else Ending.IGNORED

    def _guard(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            permit = self._circuit.ask()
            if isinstance(permit, Refused):
                return cast("R", self._instead(permit, args, kwargs))
            try:
                answer = function(*args, **kwargs)
            except BaseException as error:
                self._circuit.ended(permit, self.ending_of(error))
                raise
            self._circuit.ended(permit, Ending.GOOD)
            return answer

        return guarded

    def _guard_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            permit = self._circuit.ask()
            if isinstance(permit, Refused):
                answer = self._instead(permit, args, kwargs)
                return (await answer) if inspect.isawaitable(answer) else answer
            try:
                answer = await function(*args, **kwargs)
            except BaseException as error:
                self._circuit.ended(permit, self.ending_of(error))
                raise
            self._circuit.ended(permit, Ending.GOOD)
            return answer

        return guarded

    def _instead(self, refused: Refused, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.fallback is NOTHING:
            raise self._refusal(refused)
        return self.fallback(*args, **kwargs) if callable(self.fallback) else self.fallback

    def _refusal(self, refused: Refused) -> BreakerOpenError:
        what = f"the breaker {self.name}" if self.name else "the breaker"
        why = self._circuit.core.reason
        text = f"{what} is open: {why}; try again in {refused.retry_after_s:.3g} s"
        return BreakerOpenError(text, retry_after_s=refused.retry_after_s)


def _taken(top: _Entered | None, circuit: _Circuit) -> tuple[_Entered | None, _Entered | None]:
    """Return the innermost `with` of a circuit, and those that stay open."""
    if top is None or top.circuit is circuit:
        return top, None if top is None else top.outer
    found, rest = _taken(top.outer, circuit)
    return found, top._replace(outer=rest)


def watch(watcher: Callable[[Report], None]) -> list[Report]:
    """Have `watcher` called at every change of a named breaker and return where each stands now. It is
    called under a lock, by any thread: it must be quick and must not raise."""
    _watchers.append(watcher)
    return [circuit.report() for circuit in list(_named.values())]


def _circuit(name: str, policy: BreakerPolicy, clock: Callable[[], float]) -> _Circuit:
    if not name:
        return _Circuit(name, policy, clock)
    with _named_lock:
        found = _named.get(name)
        if found is None:
            if len(_named) >= NAMED_MAX:
                raise AppError(
                    f"breaker {name}: there are {NAMED_MAX} names in this process already (NAMED_MAX); "
                    "a breaker for each of many things needs no name"
                )
            found = _named[name] = _Circuit(name, policy, clock)
            for watcher in _watchers:
                watcher(found.report())
        elif found.core.policy != policy:
            raise AppError(f"breaker {name}: made twice with different limits; give one another name")
        return found


def _policy(
    read: Reader,
    failures: object,
    window: object,
    rate: object,
    calls_min: object,
    slow: object,
    open_for: object,
) -> BreakerPolicy:
    count = read.count_or_none("failures", failures, most=10_000)
    if rate is not None and not (
        isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= 1
    ):
        raise refuse(read.where, "rate", "a share above 0 and at most 1, such as 0.5", rate)
    default = BreakerPolicy()
    if slow == AUTO:
        slow = SLOW_S if count is None or rate is not None else None
    return BreakerPolicy(
        failures=count,
        rate=float(rate) if rate is not None else default.rate if count is None else None,
        window_s=default.window_s if window is None else read.seconds("window", window),
        calls_min=read.count("calls_min", calls_min, most=1_000_000),
        slow_s=None if slow is None else read.seconds("slow", slow),
        open_s=read.seconds("open_for", open_for),
    )


def _read_name(read: Reader, name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise refuse(read.where, "name", f"a text of 1 to {NAME_LENGTH_MAX} printable characters", name)
    return name
