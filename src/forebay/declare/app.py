"""App and its task decorator: the list of what can be served, checked when it is declared."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never, TypeVar

from forebay.core.crons import ENTRIES_MAX, CronEntry
from forebay.core.retry import RetryPolicy
from forebay.declare.breaker import NOTHING, Breaker
from forebay.declare.every import UNSAID, read_entry, taking_one
from forebay.declare.instead import Instead, read_breaker, read_fallback
from forebay.declare.options import Reader, refuse, refuse_unknown
from forebay.declare.saturation import Saturation
from forebay.declare.signature import signature_of
from forebay.declare.task import Task, read_spec
from forebay.declare.upstream import upstream_task
from forebay.declare.variants import read_variants
from forebay.errors import AppError

Target = TypeVar("Target", bound=Callable[..., Any])
PIPELINES_MAX = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)


class App:
    """What one application serves. `tasks` maps names to Task, in the order of declaration; `pipelines` names
    to the functions that start them.

    Not promised: what a handler changes in its process (working directory, umask, environment, signal
    handlers, patched modules) is not undone for the next job of that process; `recycle_after=1` gives each
    a fresh one. Programs a handler leaves behind end with the process, unless they made a session of their
    own.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self._entries: dict[str, tuple[Callable[..., Any], CronEntry]] = {}  # with what each is on
        self._unasked: dict[Callable[..., Any], str] = {}  # made tasks by @app.every alone
        self.pipelines: dict[str, Callable[[], Any]] = {}

    def task(
        self,
        *bare: Never,
        name: str | None = None,
        batch_max: int = 1,
        batch_wait: float | str | None = None,
        timeout: float | str = "10m",
        load_timeout: float | str = "10m",
        attempts_max: int = 3,
        backoff: "float | str | RetryPolicy | None" = None,
        ttl: float | str = "24h",
        deadline: float | str | None = None,
        discipline: str = "deadline",
        wait_target: float | str | None = None,
        wait_interval: float | str | None = None,
        queue_max: int | None = None,
        queue_bytes_max: int | str | None = None,
        replicas: int | str | None = None,
        devices: str | list[str] | tuple[str, ...] | None = None,
        version: str | int = "1",
        priority: str | int = "normal",
        order: str = "arrival",
        reserve: float = 0.0,
        concurrency: int | None = None,
        deaths_max: int = 2,
        quarantine_deaths: int | None = None,
        recycle_after: int | None = None,
        recycle_memory: int | str | None = None,
        split: bool = True,
        coalesce: bool | None = None,
        cache: float | str | None = None,
        on_version: str = "run",
        retention: float | str | None = None,
        retention_failed: float | str | None = None,
        breaker: Breaker | None = None,
        fallback: object = NOTHING,
        variants: object = None,
        variants_stay: float | str = "1s",
        retry_on: object = None,
        permanent_on: object = (),
        **unknown: object,
    ) -> Callable[[Target], Target]:
        """Return a decorator that declares a class (load, predict) or a function as a task.

        The class or function itself is returned unchanged. Raises AppError with one sentence that names
        the argument, its rule and the value.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "unknown", "bare")}
        _no_bare("task", bare)
        return self._declare(given, unknown)

    def every(
        self,
        period: float | str | None = None,
        *,
        cron: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        payload: object = None,
        priority: str | int | None = None,
        tenant: str = UNSAID,
        missed: str = "once",
        overlap: bool = True,
        jitter: float | str = 0,
        **unknown: object,
    ) -> Callable[[Target], Target]:
        """Return a decorator that has a task's job submitted again and again: each `period`, or by `cron`.

        It goes on what @app.task() is on, above or below it, several times with a `name` each; on a function
        without @app.task() it declares the task too, and a function without parameters will do. The target
        is returned unchanged. Raises AppError with one sentence that names the argument, its rule, the value.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "unknown")}
        if callable(period):
            raise AppError(f'@app.every on {_name(period, None)}: give it a period, as in @app.every("15m")')

        def declare(target: Target) -> Target:
            called = _name(target, given["name"])
            refuse_unknown(f"cron entry {called}", unknown, given)
            if called in self._entries:
                raise AppError(f"cron entry {called}: declared twice; give one of them another name=")
            if len(self._entries) >= ENTRIES_MAX:
                raise AppError(f"cron entry {called}: an application may have {ENTRIES_MAX:,} at most")
            self._entries[called] = (target, read_entry(called, given))
            if self._task_of(target) is None:
                self.task()(taking_one(target))
                self._unasked[target] = target.__name__
            return target

        return declare

    def pipeline(
        self, *bare: Never, name: str | None = None, **unknown: object
    ) -> Callable[[Target], Target]:
        """Return a decorator for a function without parameters that starts a `forebay.Pipeline` and returns
        what its `start` returned. `forebay serve` calls it in a process of its own, and again when that dies.

        A stage of it that is the name of a task, as in `Stage("Detect")`, sends its frames to the replicas of
        that task. The function is returned unchanged. Raises AppError with one sentence.
        """
        given = {"name": name}
        _no_bare("pipeline", bare)

        def declare(target: Target) -> Target:
            given_on: object = target
            if not inspect.isfunction(given_on):
                raise AppError(f"@app.pipeline() goes on a plain function, not on {type(target).__name__}")
            called = _checked(f"pipeline {target.__name__}", target.__name__ if name is None else name)
            refuse_unknown(f"pipeline {called}", unknown, given)
            if inspect.signature(target).parameters or inspect.iscoroutinefunction(target):
                raise AppError(f"pipeline {called}: it must be a plain function without parameters")
            if called in self.pipelines:
                raise AppError(f"pipeline {called}: declared twice; give one of them another name=")
            if len(self.pipelines) >= PIPELINES_MAX:
                raise AppError(f"pipeline {called}: an application may have {PIPELINES_MAX} at most")
            self.pipelines[called] = target
            return target

        return declare

    @property
    def crons(self) -> tuple[CronEntry, ...]:
        """The cron entries in the order of declaration, each with the name of its task."""
        return tuple(
            dataclasses.replace(entry, task=self._task_of(target) or "")
            for target, entry in self._entries.values()
        )

    def _task_of(self, target: Callable[..., Any]) -> str | None:
        found = (name for name, task in self.tasks.items() if task.target is target)
        return self._unasked.get(target) or next(found, None)

    def upstream(
        self,
        name: str,
        *,
        url: str,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        concurrency: int | str = "auto",
        timeout: float | str = "10m",
        connect_timeout: float | str = "5s",
        first_byte_timeout: float | str = "2m",
        idle_timeout: float | str = "1m",
        answer_bytes_max: int | str = "1MiB",
        attempts_max: int = 3,
        backoff: "float | str | RetryPolicy | None" = None,
        ttl: float | str = "24h",
        deadline: float | str | None = None,
        discipline: str = "deadline",
        wait_target: float | str | None = None,
        wait_interval: float | str | None = None,
        queue_max: int | None = None,
        queue_bytes_max: int | str | None = None,
        version: str | int = "1",
        priority: str | int = "normal",
        order: str = "arrival",
        coalesce: bool | None = None,
        cache: float | str | None = None,
        retention: float | str | None = None,
        retention_failed: float | str | None = None,
        breaker: "Breaker | bool | None" = None,
        fallback: object = NOTHING,
        gate: "Saturation | None" = None,
        description: str = "",
        **unknown: object,
    ) -> Task:
        """Declare a model server behind HTTP as a task and return it: the payload is the body of a request
        to `url`, the answer the result; server-sent events and JSON lines are parts as they come.

        `concurrency` "auto" finds how many calls the server takes; with a `gate` none begins while the server
        says that it is full. It has a breaker unless that is False.
        Not promised: that a call is made once; the job's id goes along as Idempotency-Key. Raises AppError
        with one sentence that names the argument, its rule and the value.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "unknown")}
        where = f"upstream {_checked('an upstream', name)}"
        refuse_unknown(where, unknown, given)
        if name in self.tasks:
            raise AppError(f"{where}: declared twice; give one of them another name")
        instead = read_fallback(where, fallback, self.tasks)
        task = self.tasks[name] = upstream_task(where, given, instead)
        return task

    def _declare(self, given: dict[str, object], unknown: dict[str, object]) -> Callable[[Target], Target]:
        def declare(target: Target) -> Target:
            name = _name(target, given["name"])
            where = f"task {name}"
            refuse_unknown(where, unknown, given)
            self.tasks.pop(self._unasked.pop(target, ""), None)
            if name in self.tasks:
                raise AppError(f"{where}: declared twice; give one of them another name=")
            instead = read_fallback(where, given["fallback"], self.tasks)
            self.tasks[name] = _task(where, name, target, given, instead)
            return target

        return declare


def _no_bare(decorator: str, given: tuple[object, ...]) -> None:
    """Refuse a decorator without parentheses, and arguments without names."""
    if given and callable(given[0]):
        name = getattr(given[0], "__name__", "it")
        raise AppError(f"@app.{decorator} on {name}: write @app.{decorator}(), with parentheses")
    if given:
        raise AppError(f"@app.{decorator}(): each argument has its name, like name={given[0]!r:.60}")


def _name(target: object, given: object) -> str:
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        raise AppError(f"@app.task() goes on a class or a plain function, not on {type(target).__name__}")
    return _checked(f"task {target.__name__}", target.__name__ if given is None else given)


def _checked(where: str, name: object) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        rule = "letters, digits, _ . - and at most 100 characters, beginning with a letter or _"
        raise refuse(where, "name", rule, name)
    return name


def _task(where: str, name: str, target: Callable[..., Any], given: dict[str, Any], instead: Instead) -> Task:
    is_class = inspect.isclass(target)
    signature = signature_of(where, target)
    read = Reader(where)
    if not is_class and given["batch_max"] != 1:
        rule = "1 on a plain function (it takes one item; use a class with predict(items) for batches)"
        raise refuse(where, "batch_max", rule, given["batch_max"])
    policy, ignore = read_breaker(where, given["breaker"], needed=instead.given)
    ladder, ways = read_variants(read, given["variants"], given["variants_stay"], target, signature)
    spec = replace(
        read_spec(read, name, target, given, signature),
        ladder=ladder,
        breaker=policy,
        fallback=instead.task,
        canned=instead.canned,
    )
    for argument in ("replicas", "devices"):
        if not is_class and given[argument] is not None:
            rule = (
                "left out on a plain function (functions share one pool of `workers` processes; use a class)"
            )
            raise refuse(where, argument, rule, given[argument])
    return Task(
        spec=spec,
        target=target,
        signature=signature,
        variants=ways,
        split=read.flag("split", given["split"]),
        retry_on=None if given["retry_on"] is None else read.exceptions("retry_on", given["retry_on"]),
        permanent_on=read.exceptions("permanent_on", given["permanent_on"]),
        breaker_ignore=ignore,
    )
