"""The answers of `forebay size`: rows for people, a document for programs, settings to paste."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from forebay.cli.arrivals import Arrived
from forebay.core.sizing import words
from forebay.core.sizing.crew import workers_by_rule
from forebay.core.sizing.erlang import Wait
from forebay.core.sizing.findings import Finding
from forebay.core.sizing.growth import full_after_s, growth
from forebay.core.sizing.law import ServiceLaw
from forebay.core.sizing.plan import Load, Sized

Rows = list[tuple[str, str]]
SETTINGS = ("workers", "queue_max", "queue_bytes_max")  # of forebay.toml; the others are the task's alone


class Answer(NamedTuple):
    """One answer in all its forms."""

    rows: Rows
    document: dict[str, Any]
    good: bool


def toml_of(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield lines to paste into forebay.toml, and the same as arguments of each task.

    The bounds of a queue are the file's for one answer alone: of several tasks each has its own.
    """
    from forebay.config import Settings

    least_b = Settings().body_bytes_max
    settings: dict[str, int] = dict(answers[0].document["settings"]) if len(answers) == 1 else {}
    workers = max(answer.document["settings"].get("workers", 0) for answer in answers)
    if workers:
        settings["workers"] = workers
    for name in SETTINGS:
        if name == "queue_bytes_max" and name in settings and settings[name] < least_b:
            yield f"{name} = {least_b}  # room for one submission; {settings[name]} would do"
        elif name in settings:
            yield f"{name} = {settings[name]}"
    for answer in answers:
        task = answer.document.get("task")
        yield f"# {task + ': ' if task else ''}{answer.document['verdict']['text']}"
        own = {name: value for name, value in answer.document["settings"].items() if name != "workers"}
        if own:
            yield f"# @app.task({', '.join(f'{name}={value}' for name, value in own.items())})"
        for one in answer.document["findings"]:
            yield f"# {one['code']}: {one['change']}"


def answer_of(
    load: Load | None,
    found: Sized | None,
    contradictions: list[Finding],
    arrived: Arrived | None = None,
    cpus: int | None = None,
    task: str = "",
) -> Answer:
    """Return the answer; it is good when the verdict is and nothing contradicts anything."""
    rows: Rows = []
    document: dict[str, Any] = {"task": task} if task else {}
    settings: dict[str, int] = {}
    good, verdict = True, ""
    if load is not None and found is not None:
        rows = [*_peak(load, arrived), *_queue(load, found), *_replicas(load, found)]
        document |= _document(load, found, arrived)
        settings = _settings(load, found)
        good, verdict = found.verdict
    if cpus is not None:
        both = {
            "blocking": workers_by_rule(cpus, blocking=True),
            "async": workers_by_rule(cpus, blocking=False),
        }
        rule = f"{both['blocking']} for handlers that block (2 x {cpus} + 1), {both['async']} for async ones"
        rows.append(("by rule", f"{rule}; what was measured goes before it"))
        document["workers_by_rule"] = both
    return _finished(rows, document, settings, contradictions, good, verdict)


def growth_answer(
    arrives: float, leaves: float, lasts_s: float, item_b: int, room: Mapping[str, int], *, assumed: bool
) -> Answer:
    """Return what becomes of a queue; `room` is each bound that was given, in items."""
    found = growth(arrives, leaves, lasts_s, item_b)
    over = [name for name, items in room.items() if found.items > items]
    change = (
        f"{words.rate(found.grows_per_s)} more than leave"
        if found.grows_per_s > 0
        else "no more than can leave"
    )
    rows: Rows = [
        ("comes", f"{words.rate(arrives)} in, {words.rate(leaves)} out: {change}"),
        ("after", f"{words.span(lasts_s)}: {found.items:,} items, {words.size(found.bytes)}"),
        ("an item", f"{words.size(item_b)}{' (assumed; --item-size says otherwise)' if assumed else ''}"),
        (
            "then",
            f"empty after {words.span(found.empties_s)} more, {words.span(found.done_s)} from the start",
        ),
    ]
    full = {name: full_after_s(items, arrives, leaves) for name, items in room.items()}
    rows += [(name, f"{room[name]:,} items: full after {words.span(at_s)}") for name, at_s in full.items()]
    verdict = f"{found.items:,} items, {words.size(found.bytes)}"
    if over:
        verdict = f"{' and '.join(over)} too small for {verdict}"
    document = {
        "in_per_s": arrives,
        "out_per_s": leaves,
        "for_s": lasts_s,
        "item_bytes": item_b,
        "grows_per_s": found.grows_per_s,
        "items": found.items,
        "bytes": found.bytes,
        "empties_s": _finite(found.empties_s),
        "done_s": _finite(found.done_s),
        "full_after_s": {name: _finite(at_s) for name, at_s in full.items()},
    }
    settings = {"queue_max": max(1, found.items), "queue_bytes_max": max(1, found.bytes)}
    return _finished(rows, document, settings, [], not over, verdict)


def _finished(
    rows: Rows,
    document: dict[str, Any],
    settings: dict[str, int],
    contradictions: list[Finding],
    good: bool,
    verdict: str,
) -> Answer:
    for one in contradictions:
        rows.append((one.code, f"{one.evidence}. Change: {one.change}"))
    if contradictions:
        joined = "" if not verdict else "; but " if good else "; and "
        verdict += f"{joined}limits contradict each other"
    good = good and not contradictions
    verdict = verdict or "nothing contradicts"
    document["settings"] = settings
    document["findings"] = [
        {"code": one.code, "evidence": one.evidence, "change": one.change} for one in contradictions
    ]
    document["verdict"] = {"good": good, "text": verdict}
    return Answer([*rows, ("verdict", verdict)], document, good)


def _peak(load: Load, arrived: Arrived | None) -> Rows:
    if arrived is None:
        return [("peak", words.rate(load.peak_per_s))]
    return [
        ("peak", f"{words.rate(load.peak_per_s)}: p99 of {arrived.peaks.windows:,} sliding seconds"),
        ("largest", words.rate(arrived.peaks.max_per_s)),
        ("mean", f"{words.rate(arrived.mean_per_s)}: {arrived.arrivals:,} arrivals in {arrived.rows:,} rows"),
    ]


def _queue(load: Load, found: Sized) -> Rows:
    queue = found.queue
    if queue is None or load.wait_max_s is None:
        return []
    peak, wait = words.rate(load.peak_per_s), words.span(load.wait_max_s)
    rows: Rows = [("waiting", f"{words.count(queue.waiting)}: {peak} x {wait} (W is the wait alone)")]
    if load.law is not None:
        service = words.span((queue.in_system - queue.waiting) / load.peak_per_s)
        text = f"{words.count(queue.in_system)}: {peak} x ({wait} + {service}) (W is wait and service)"
        rows.append(("in system", text))
    size = words.size(queue.bound * load.item_b)
    rows.append(("bound", f"{queue.bound:,} items, {size}: {words.count(queue.waiting)} and its root"))
    if found.queue_max is not None and found.queue_max != queue.bound:
        rows.append(("queue_max", f"{found.queue_max:,}: the setting counts what runs too"))
    return rows


def _replicas(load: Load, found: Sized) -> Rows:
    law = load.law
    if law is None or found.for_load is None:
        return []
    rows: Rows = [
        ("a replica", f"{words.rate(law.rate_per_s)}: {_law(law)}"),
        ("to keep up", f"{found.for_load:,}"),
    ]
    late = f"p{load.quantile * 100:g}"
    for name, count, wait in (
        ("replicas", found.needed, found.wait),
        ("there are", load.replicas, found.wait_now),
    ):
        if count is not None and wait is not None:
            rows.append((name, f"{count:,}: {_waits(wait, late)}"))
    if found.hpa is not None:
        hpa = found.hpa
        text = f"averageValue {hpa.target:,} waiting, {hpa.replicas_min:,} to {hpa.replicas_max:,} replicas"
        rows.append(("autoscaler", text))
    return rows


def _law(law: ServiceLaw) -> str:
    if law.batch_max == 1:
        several = f", {law.at_once} at once" if law.at_once > 1 else ""
        return f"{words.span(law.full_s)} an item{several}"
    return f"{words.span(law.fixed_s)} + {words.span(law.each_s)} an item, {law.batch_max} in a batch"


def _waits(wait: Wait, late: str) -> str:
    if math.isinf(wait.late_s):
        return f"{words.share(wait.utilisation)} of what they can do: the line grows for ever"
    waits = f"{words.share(wait.waiting_share)} wait, {words.span(wait.mean_s)} on average"
    return f"{words.share(wait.utilisation)} busy; {waits}, {late} {words.span(wait.late_s)}"


def _settings(load: Load, found: Sized) -> dict[str, int]:
    settings: dict[str, int] = {}
    if found.needed is not None:
        settings["workers"] = settings["replicas"] = found.needed
    if found.queue is not None and found.queue_max is not None:
        settings["queue_max"] = found.queue_max
        settings["queue_bytes_max"] = found.queue_max * load.item_b
    if load.law is not None and load.law.batch_max > 1:
        settings["batch_max"] = load.law.batch_max
    return settings


def _document(load: Load, found: Sized, arrived: Arrived | None) -> dict[str, Any]:
    queue, law = found.queue, load.law
    document: dict[str, Any] = {
        "peak_per_s": load.peak_per_s,
        "mean_per_s": load.mean_per_s,
        "wait_max_s": load.wait_max_s,
        "quantile": load.quantile,
        "item_bytes": load.item_b,
    }
    if arrived is not None:
        document["arrivals"] = {
            "rows": arrived.rows,
            "count": arrived.arrivals,
            "windows": arrived.peaks.windows,
            "max_per_s": arrived.peaks.max_per_s,
        }
    if queue is not None:
        document["queue"] = {
            "waiting": queue.waiting,
            "in_system": queue.in_system,
            "bound": queue.bound,
            "bound_bytes": queue.bound * load.item_b,
        }
    if law is not None:
        document["service"] = {
            "fixed_s": law.fixed_s,
            "each_s": law.each_s,
            "batch_max": law.batch_max,
            "rate_per_s": law.rate_per_s,
        }
        document["replicas"] = {
            "to_keep_up": found.for_load,
            "needed": found.needed,
            "there_are": load.replicas,
            "lost_share": found.lost,
            "wait_needed": _wait_document(found.wait),
            "wait_there_are": _wait_document(found.wait_now),
        }
        document["hpa"] = None if found.hpa is None else found.hpa._asdict()
    return document


def _wait_document(wait: Wait | None) -> dict[str, float | None] | None:
    if wait is None:
        return None
    return {name: _finite(value) for name, value in wait._asdict().items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
