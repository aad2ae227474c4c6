"""breaker= and fallback= of a task: what is done in its place while it keeps failing."""

import dataclasses
import json
from collections.abc import Mapping
from typing import NamedTuple

from forebay.core.breaker import BreakerPolicy
from forebay.declare.breaker import NOTHING, Breaker
from forebay.declare.options import Exceptions, refuse
from forebay.declare.task import Task
from forebay.errors import AppError

CANNED_BYTES_MAX = 64 * 1024  # of the JSON text of a canned answer


class Instead(NamedTuple):
    """What stands in: another task by its name, or the JSON text of a canned answer."""

    task: str = ""
    canned: bytes | None = None

    @property
    def given(self) -> bool:
        """Whether anything does."""
        return bool(self.task) or self.canned is not None


def read_breaker(where: str, value: object, *, needed: bool) -> tuple[BreakerPolicy | None, Exceptions]:
    """Return the policy of a task's breaker and what it ignores; the default one where a fallback needs it.
    Raises AppError with one sentence."""
    if value is None and not needed:
        return None, ()
    breaker = Breaker() if value is None else value
    if not isinstance(breaker, Breaker):
        raise refuse(where, "breaker", "a forebay.Breaker", value)
    if breaker.name:
        raise AppError(f"{where}: breaker has the name of its task; leave out name={breaker.name!r}")
    if breaker.fallback is not NOTHING:
        raise AppError(f"{where}: give fallback= to the task, not to its breaker")
    policy = breaker.policy
    if not breaker.slow_given:
        policy = dataclasses.replace(policy, slow_s=None)
    return policy, breaker.ignore


def read_fallback(where: str, value: object, tasks: Mapping[str, Task]) -> Instead:
    """Return what `fallback=` names: a task declared before, by its class, its function
    or what app.upstream returned, or any JSON value as
    the answer. Raises AppError with one sentence."""
    if value is NOTHING:
        return Instead()
    if callable(value) or isinstance(value, Task):
        found = next((task for task in tasks.values() if value is task or value is task.target), None)
        name = getattr(value, "__name__", type(value).__name__)
        if found is None:
            raise AppError(f"{where}: fallback {name} must be declared before it, with @app.task()")
        if found.spec.fallback or found.spec.canned is not None:
            raise AppError(f"{where}: fallback {name} has a fallback itself; one step is the most there is")
        return Instead(found.spec.name)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise refuse(where, "fallback", "a task, or JSON as the answer", value) from None
    if len(text) > CANNED_BYTES_MAX:
        raise refuse(where, "fallback", f"at most {CANNED_BYTES_MAX:,} bytes of JSON", f"{len(text):,} bytes")
    return Instead(canned=text)
