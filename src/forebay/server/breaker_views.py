"""Shapes of breakers: of a task, inside a worker, and of all workers of a task together."""

import msgspec


class BreakerView(msgspec.Struct):
    """A circuit breaker: `state` closed, open or half_open, how often it tripped, why it changed last, and in
    how many seconds it lets a probe through."""

    breaker: str
    state: str
    trips: int
    retry_after_s: float
    reason: str


class InnerBreakerView(BreakerView):
    """A named breaker inside a worker, as it was when it last changed; `tasks`: whose calls it, or the one of
    another worker of the same tasks, guarded so far; `shared`: all workers of the node have one state."""

    since: str | None = None
    tasks: list[str] = []
    shared: bool = False


class TaskBreakerView(msgspec.Struct):
    """A named breaker that guards calls of a task: the worst state over its `workers` and since when the
    first of them is in it, in how many of them it is `open`, how often they tripped, and in how many seconds
    the first of them lets a call through."""

    breaker: str
    state: str
    since: str | None
    workers: int
    open: int
    trips: int
    retry_after_s: float
    reason: str
    shared: bool
