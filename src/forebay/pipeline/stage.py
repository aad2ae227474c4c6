"""Stage: one step of a pipeline as it is declared: what is called, how many at once, and what if not."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from forebay.core.breaker import BreakerPolicy
from forebay.core.buffer import Backoff
from forebay.declare.breaker import NOTHING, Breaker
from forebay.declare.options import Exceptions, Reader, refuse, refuse_unknown
from forebay.errors import AppError
from forebay.pipeline.terms import Degrade, Queue

PER_GPU: Final = "per_gpu"
REPLICAS_MAX: Final = 64
AT_ONCE: Final = 16  # frames that are with a task at a time
TASK_TIMEOUT_S: Final = 1.0  # of a frame without a deadline, there
BATCH_MAX: Final = 1_024


class FrameFacts(NamedTuple):
    """What a stage may know of a frame beside its value: an optional second parameter of what it calls."""

    stream: str
    seq: int  # numbers what its stream offered
    captured_at: float  # seconds since the epoch
    deadline: float | None
    degraded: int = 0  # the step of this stage's ladder, 0 for none: where there is a choice, be cheap
    facts: Mapping[str, Any] | None = None  # what its source said of it


class Callee(NamedTuple):
    """How a stage's target is called."""

    target: Callable[..., Any] | str  # a text is the name of a task
    batched: bool  # a class with predict(items), else a function of one
    informed: bool  # it takes FrameFacts as well
    loads: bool = False
    warms: bool = False


class Stage:
    """One step: a function of one value, or a class with `load(device)` and `predict(values)`.

    What it returns goes to the next stage; None ends the frame there, as served. A second parameter gets
    FrameFacts. `replicas`: how many work at once; "per_gpu": a process for each GPU, one where there is none.
    `processes`: whether each is a process of its own (by default with "per_gpu") or a thread of this one.
    `batch_max`, `batch_wait`: frames of one `predict`, of all streams together. `timeout`: of one call; then
    a process is killed. `breaker`, `fallback`: what to call in its place while it keeps failing.

    A text is the name of a task of the App that serves the pipeline (`@app.pipeline()`): its replicas serve
    the frames beside requests and jobs, and make the batches. `replicas` is then how many frames are with it
    at once (16), `timeout` what a frame without a deadline gets (1 s).

    Not promised: that a thread which hangs can be stopped, or that values keep more than JSON, bytes and
    arrays on the way to a process. Raises AppError with one line.
    """

    def __init__(
        self,
        target: Callable[..., Any] | str,
        *,
        name: str | None = None,
        queue: Queue | int | None = None,
        on_full: str | Backoff | None = None,
        replicas: int | str | None = None,
        processes: bool | None = None,
        batch_max: int = 1,
        batch_wait: float | str = 0,
        timeout: float | str | None = None,
        load_timeout: float | str = "10m",
        degrade: Degrade | None = None,
        breaker: Breaker | None = None,
        fallback: Any = NOTHING,
        **unknown: object,
    ) -> None:
        self.name = _name(target, name)
        where = f"stage {self.name}"
        known = ("name", "queue", "on_full", "replicas", "processes", "batch_max", "batch_wait", "timeout")
        refuse_unknown(where, unknown, (*known, "load_timeout", "degrade", "breaker", "fallback"))
        read = Reader(where)
        self.task = target if isinstance(target, str) else None
        self.callee = callee_of(where, target)
        if replicas is None:
            replicas = 1 if self.task is None else AT_ONCE
        if timeout is None:
            timeout = "1m" if self.task is None else TASK_TIMEOUT_S
        if self.task is not None and (processes or batch_max != 1 or replicas == PER_GPU):
            raise AppError(f"{where}: it is a task, whose own processes and batches serve it; leave them out")
        queue = Queue(queue) if isinstance(queue, int) and not isinstance(queue, bool) else queue or Queue()
        if not isinstance(queue, Queue):
            raise refuse(where, "queue", "a forebay.Queue or a number of frames", queue)
        self.put_timeout_s = queue.put_timeout_s
        self.terms = queue.with_stage(where, on_full, degrade)
        if replicas != PER_GPU:
            if isinstance(replicas, str):
                raise refuse(where, "replicas", f'a whole number or "{PER_GPU}"', replicas)
            read.count("replicas", replicas, most=REPLICAS_MAX)
        self.replicas = replicas
        self.processes = replicas == PER_GPU if processes is None else read.flag("processes", processes)
        self.batch_max = read.count("batch_max", batch_max, most=BATCH_MAX)
        if self.batch_max > 1 and not self.callee.batched:
            rule = "1 for a function of one value (use a class with predict(values) for batches)"
            raise refuse(where, "batch_max", rule, batch_max)
        self.batch_wait_s = read.seconds("batch_wait", batch_wait, positive=False)
        self.timeout_s = read.seconds("timeout", timeout)
        self.load_timeout_s = read.seconds("load_timeout", load_timeout)
        self.fallback = None if fallback is NOTHING else callee_of(f"{where}: fallback", fallback)
        self.breaker, self.ignore = _breaker(where, breaker, needed=self.fallback is not None)

    def __repr__(self) -> str:
        return f"<Stage {self.name}: {self.replicas} replicas, {self.terms.items_max} waiting at most>"


def callee_of(where: str, target: Any) -> Callee:
    """Return how the target is called. Raises AppError with one line."""
    if isinstance(target, str):
        return Callee(target, False, False)
    if inspect.isclass(target):
        predict = inspect.getattr_static(target, "predict", None)
        if not inspect.isfunction(predict):
            raise AppError(f"{where}: the class needs a method predict(self, values)")
        _refuse_async(where, predict)
        informed = _parameters(where, predict, own=1) > 1
        return Callee(target, True, informed, hasattr(target, "load"), hasattr(target, "warm_up"))
    if not callable(target):
        raise AppError(f"{where}: a stage is a function or a class, not {type(target).__name__}")
    _refuse_async(where, target)
    return Callee(target, False, _parameters(where, target, own=0) > 1)


def _parameters(where: str, function: Callable[..., Any], *, own: int) -> int:
    """Return how many values it can be given by position, `self` left out: 1 or 2."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in
        return 1
    for count in (2, 1):
        try:
            signature.bind(*(None,) * (own + count))
        except TypeError:
            continue
        needed = [
            one
            for one in signature.parameters.values()
            if one.default is one.empty and one.kind < one.VAR_POSITIONAL
        ]
        # A second parameter with a default of its own is not meant for us.
        return 2 if len(needed) == own + 2 else 1
    raise AppError(f"{where}: it is called with a value, and FrameFacts if it has a second parameter")


def _refuse_async(where: str, function: Any) -> None:
    if inspect.iscoroutinefunction(function):
        raise AppError(
            f"{where}: it must be a plain function: a stage has threads or processes, no event loop"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise AppError(f"{where}: it must return one value for a frame, not be a generator")


def _name(target: Any, name: str | None) -> str:
    found: Any
    if name is not None:
        found = name
    elif isinstance(target, str):
        found = target
    else:
        found = getattr(target, "__name__", type(target).__name__).strip("<>")
    if not isinstance(found, str) or not 0 < len(found) <= 100 or not found.isprintable():
        raise refuse("stage", "name", "a text of 1 to 100 printable characters", found)
    return found


def _breaker(where: str, breaker: Any, *, needed: bool) -> tuple[BreakerPolicy | None, Exceptions]:
    if breaker is None and not needed:
        return None, ()
    breaker = Breaker() if breaker is None else breaker
    if not isinstance(breaker, Breaker):
        raise refuse(where, "breaker", "a forebay.Breaker", breaker)
    if breaker.fallback is not NOTHING:
        raise AppError(f"{where}: give fallback= to the stage, not to its breaker")
    policy = breaker.policy
    return policy if breaker.slow_given else dataclasses.replace(policy, slow_s=None), breaker.ignore
