"""Breaker: guards calls to something that may fail or be slow; decorator and context, sync and async."""

import copy
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar, cast

from forebay.core.breaker import (
    BreakerPolicy,
    Ending,
    Permit,
    Refused,
)
from forebay.declare.circuits import Circuit, circuit_of
from forebay.declare.options import Exceptions, Reader, refuse
from forebay.errors import AppError, BreakerOpenError

P = ParamSpec("P")
R = TypeVar("R")

NAME_LENGTH_MAX: Final = 100
AUTO: Final = "auto"
SLOW_S: Final = 1.0  # what "auto" means where a breaker by rate guards calls
NOTHING: Final = object()  # no fallback: None is a fallback too


class _Entered(NamedTuple):
    """A `with` that is open in this thread or task, and those around it."""

    circuit: Circuit
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
    share their state in one process; those with a name are shown with the tasks that use them. `shared`: with
    all workers of a node, within some milliseconds: when it opens in one it is open in all, and the first
    probe that goes well closes all. Any thread and task may use it. Not promised: a state that several nodes
    share, or processes that are no workers.
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
        shared: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = "" if name is None else _read_name(Reader("breaker"), name)
        read = Reader(f"breaker {self.name}".rstrip())
        self.slow_given = slow != AUTO
        self.policy = _policy(read, failures, window, rate, calls_min, slow, open_for)
        self.ignore: Exceptions = read.exceptions("ignore", ignore)
        self.fallback = fallback
        self.shared = read.flag("shared", shared)
        if self.shared and not self.name:
            raise AppError("breaker: shared needs a name: it is what the processes know it by")
        self._circuit = circuit_of(self.name, self.policy, read.clock(clock), shared=self.shared)

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
        The KEYS_MAX used last are remembered; none of them is shown, or shared. `key` must be hashable."""
        one = copy.copy(self)
        vars(one).update(name="", shared=False, _circuit=self._circuit.of(key))
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


def _taken(top: _Entered | None, circuit: Circuit) -> tuple[_Entered | None, _Entered | None]:
    """Return the innermost `with` of a circuit, and those that stay open."""
    if top is None or top.circuit is circuit:
        return top, None if top is None else top.outer
    found, rest = _taken(top.outer, circuit)
    return found, top._replace(outer=rest)


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
