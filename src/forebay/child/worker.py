"""Worker: the main thread of a child. Import, load, warm up, then run what the line brings."""

import gc
import inspect
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from forebay.child import guard
from forebay.child.blobs import ChildBlobs
from forebay.child.handler import Handler
from forebay.child.line import Line, connect
from forebay.child.loading import LoadError, load_app, place_of
from forebay.child.sync_loop import SyncLoop
from forebay.child.texts import TraceLog, clean, safe_text, type_name
from forebay.declare import App, Context, Device, Task
from forebay.declare.circuits import Report, told, watch, works_for
from forebay.declare.variants import Way
from forebay.node.frames import (
    MARK_COMPANY,
    PAGE_BYTES,
    PAGE_MARK,
    BreakerReport,
    LoadFailed,
    Ready,
    RunItem,
    Start,
)

EXIT_LOAD_FAILED = 70  # the reason was sent before


def serve_on(fd: int, mark_fd: int) -> None:
    """Serve the node at the other end of `fd` until it says stop. `mark_fd` is a page shared with it."""
    guard.dump_crashes()
    line = connect(fd)
    line.start_reader()
    start = line.starts.get()
    page = memoryview(mmap.mmap(mark_fd, PAGE_BYTES))
    line.share(page)
    mark = page.cast("Q")
    began = time.perf_counter()
    try:
        app = load_app(start.app)
    except LoadError as error:
        _give_up(line, LoadFailed("import_failed", str(error), where=error.where))
    imported = time.perf_counter()
    line.on_told = told
    for report in watch(partial(_breaker_changed, line)):
        _breaker_changed(line, report)
    handlers = _load_all(line, start, app)
    # What was loaded stays: the collector need not walk through it again and again.
    gc.freeze()
    _run(line, handlers, mark, Ready(imported - began, time.perf_counter() - imported))


def _breaker_changed(line: Line, report: Report) -> None:
    line.breaker(BreakerReport(*report))


def _run(line: Line, handlers: dict[str, Handler], mark: memoryview, ready: Ready) -> None:
    if any(handler.is_async for handler in handlers.values()):
        from forebay.child.async_loop import AsyncLoop

        mark[PAGE_MARK] = MARK_COMPANY  # calls overlap: whenever it dies, any of them may be to blame
        loop: AsyncLoop | SyncLoop = AsyncLoop(line, handlers)
    else:
        loop = SyncLoop(line, handlers, mark)
    line.send(ready)
    loop.run()


def _load_all(line: Line, start: Start, app: App) -> dict[str, Handler]:
    names = start.tasks or tuple(name for name, task in app.tasks.items() if task.spec.kind == "function")
    traces = TraceLog()
    blobs = None if start.blobs is None else ChildBlobs(start.blobs)
    handlers: dict[str, Handler] = {}
    for name in names:
        task = app.tasks.get(name)
        if task is None:
            _give_up(line, LoadFailed("import_failed", f"{start.app}: it declares no task {name}"))
        make = partial(
            Handler,
            result_bytes_max=start.result_bytes_max,
            traces=traces,
            emit=line.part,
            blobs=blobs,
        )
        called = name
        works_for(name, alone=len(names) == 1)
        try:
            call = _load(task, start)
            variants: list[Handler] = []
            for level, way in enumerate(task.variants, 1):
                called = f"{name}: variant {way.name}"
                variant = _variant(task, way)
                own = call if way.target is None else _load(variant, start)
                variants.append(make(variant, own, contexts=_context_maker(line, level)))
            handlers[name] = make(task, call, contexts=_context_maker(line), variants=tuple(variants))
        except BaseException as error:
            traces.write(error)
            _give_up(line, _load_failed(called, error))
    return handlers


def _variant(task: Task, way: Way) -> Task:
    """Return the task as this variant runs it: it reads and answers what the task does."""
    if way.target is None:
        return task
    whole = task.signature
    signature = replace(way.signature, input_type=whole.input_type, output_type=whole.output_type)
    return replace(task, target=way.target, signature=signature)


def _load(task: Task, start: Start) -> Callable[..., Any]:
    """Return what to call: the function, or predict of a loaded and warm instance."""
    if not task.is_class:
        return task.target
    instance = task.target()
    load = getattr(instance, "load", None)
    if load is not None:
        kind = "cuda" if start.device.startswith("cuda") else start.device
        device = Device(kind, 0, start.slot)
        _finish(load(device) if inspect.signature(load).parameters else load())
    warm_up = getattr(instance, "warm_up", None)
    if warm_up is not None:
        _finish(warm_up())
    predict: Callable[..., Any] = instance.predict
    return predict


def _finish(answer: Any) -> None:
    """Await what an async load returned, on the loop that will run its predict."""
    if inspect.iscoroutine(answer):
        from forebay.child.async_loop import own_loop

        own_loop().run_until_complete(answer)


def _load_failed(name: str, error: BaseException) -> LoadFailed:
    kind = type_name(error)
    text = clean(f"{name}: load failed with {kind}: {safe_text(error)}", 2_000)
    return LoadFailed("load_failed", text, kind, place_of(error))


def _give_up(line: Line, reason: LoadFailed) -> NoReturn:
    line.send(reason)
    os._exit(EXIT_LOAD_FAILED)


def _context_maker(line: Line, level: int = 0) -> Callable[[list[RunItem]], Context]:
    def make(items: list[RunItem]) -> Context:
        deadlines = [item.deadline_at for item in items if item.deadline_at is not None]
        return Context(
            items[0].job_id,
            items[0].attempt,
            min(deadlines) if deadlines else None,
            tags=tuple(item.tag for item in items),
            cancelled=line.cancelled,
            report=line.report,
            checkpoint=items[0].checkpoint,
            save=line.checkpoint,
            tenant=items[0].tenant,
            level=level,
        )

    return make
