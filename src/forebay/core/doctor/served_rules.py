"""Rules over one task of a running server: who waits, who works, and what keeps the two apart."""

import math
from collections.abc import Callable, Iterable, Iterator

from forebay.core.doctor.readings import Gpu, Served
from forebay.core.sizing import words
from forebay.core.sizing.findings import Finding

FULL_RATIO = 0.9  # of the queue; the shipped alert's share too
STALLED_S = 60.0
CRASHES_MIN = 3
OVERLOAD = 1.05  # times the capacity: less is within what was measured
BATCH_GAIN = 1.2  # times the rate, that makes a larger batch worth a word
GPU_IDLE_RATIO = 0.5
NO_REPLICA = "no replica"
WORKERLESS = ("no_worker", "crash_loop")
UNREADY = (  # how a reason begins, and what to do
    ("draining", "it stops: start it again, or ask another"),
    ("store_full", "free room on the disk of its data directory (--data), or give it a larger one"),
    ("store_unavailable", "bring its store back; its log says what is wrong with it"),
    (NO_REPLICA, "wait while they load; forebay workers tells why one does not come up"),
)


def served_findings(served: Served, gpus: tuple[Gpu, ...] = ()) -> list[Finding]:
    """Return what is wrong with a task; `gpus` are those its replicas run on, where they can be seen."""
    told = [found for rule in RULES for found in rule(served)]
    return [found._replace(task=served.task) for found in (*told, *_gpu_starved(served, gpus))]


def readiness_findings(reason: str, tasks: Iterable[Finding] = ()) -> list[Finding]:
    """Return what is wrong with a server that is not ready for the `reason` it gives; nothing for none, and
    where what was found of its `tasks` says it already."""
    if not reason or (reason.startswith(NO_REPLICA) and any(one.code in WORKERLESS for one in tasks)):
        return []
    change = next((told for word, told in UNREADY if reason.startswith(word)), "its log says more")
    return [Finding("not_ready", f"it takes no new work: {reason}", change)]


def _no_worker(served: Served) -> Iterator[Finding]:
    if served.ready is None or served.ready > 0:
        return
    waiting = f"{served.waiting:,} wait" if served.waiting else "nothing waits yet"
    if served.replicas == 0:
        yield Finding(
            "no_worker", f"no replica serves it; {waiting}", "start one: forebay work APP --broker URL"
        )
    elif not served.restarts:
        yield Finding(
            "no_worker",
            f"none of {served.replicas:,} replicas is ready; {waiting}",
            "forebay workers; the log",
        )


def _crashes(served: Served) -> Iterator[Finding]:
    if served.restarts >= CRASHES_MIN:
        why = f": {served.last_crash}" if served.last_crash else ""
        yield Finding(
            "crash_loop",
            f"its workers were started again {served.restarts:,} times{why}",
            f"forebay dead-letters ls --task {served.task} shows the log of each",
        )


def _paused(served: Served) -> Iterator[Finding]:
    if served.paused and served.waiting:
        yield Finding(
            "paused", f"it is paused and {served.waiting:,} wait", f"forebay queues resume {served.task}"
        )


def _breaker(served: Served) -> Iterator[Finding]:
    if served.breaker == "open":
        yield Finding(
            "breaker_open",
            "its breaker is open: what it calls fails or is slow, so it is left alone for a while",
            "mend what it calls; a fallback= answers meanwhile",
        )


def _overload(served: Served) -> Iterator[Finding]:
    can, comes = served.served_per_s, served.arrivals_per_s
    if not can or comes <= OVERLOAD * can:
        return
    evidence = f"{words.rate(comes)} come and {words.rate(can)} are done: {1 - can / comes:.0%} too many"
    yield Finding("too_little_capacity", evidence, _more(served, can, comes))


def _more(served: Served, can: float, comes: float) -> str:
    """Return the change that lets a task do what comes: a larger batch if that is enough, else replicas."""
    larger = _larger_batch(served)
    if larger is not None and can * larger[1] >= comes:
        return f"batch_max={larger[0]} (each run costs {words.span(served.fixed_s or 0.0)} before any item)"
    wanted = math.ceil(max(1, served.replicas) * comes / can)
    return f"{wanted:,} replicas (--workers {wanted}), or drop {1 - can / comes:.0%} (forebay size --url)"


def _larger_batch(served: Served) -> tuple[int, float] | None:
    """Return twice the batch and the gain in rate, where it is a gain and its time fits into the deadline."""
    if served.fixed_s is None or served.each_s is None or served.fixed_s + served.each_s <= 0:
        return None
    twice = 2 * served.batch_max
    takes_s = served.fixed_s + twice * served.each_s
    gain = 2 * (served.fixed_s + served.batch_max * served.each_s) / takes_s
    if gain < BATCH_GAIN or (served.deadline_s is not None and 2 * takes_s > served.deadline_s):
        return None
    return twice, gain


def _full(served: Served) -> Iterator[Finding]:
    for used, bound, unit in (
        (served.waiting, served.capacity, "{:,}".format),
        (served.size_b, served.capacity_b, words.size),
    ):
        if bound and used >= FULL_RATIO * bound:
            yield Finding(
                "queue_nearly_full",
                f"{unit(used)} of {unit(bound)} wait",
                "a larger bound lets more of them wait longer: more replicas, or producers with a pace",
            )


def _stalled(served: Served) -> Iterator[Finding]:
    old = served.oldest_age_s
    stands = served.waiting and not served.running and not served.paused
    if stands and served.ready and old is not None and old > STALLED_S:
        yield Finding(
            "stalled",
            f"{served.waiting:,} wait, the oldest for {words.span(old)}; {served.ready:,} replicas are ready",
            f"forebay jobs explain, for a waiting job of {served.task}",
        )


def _stale(served: Served) -> Iterator[Finding]:
    if served.stale:
        yield Finding(
            "lease_lost",
            f"{served.stale:,} results came after their lease had ended, so the work was done twice",
            "a longer lease; a machine or clock that stands still is the usual cause",
        )


def _gpu_starved(served: Served, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    seen = [gpu.busy_ratio for gpu in gpus if gpu.busy_ratio is not None]
    if not seen or not served.waiting or not served.running:
        return
    busy = sum(seen) / len(seen)
    if busy < GPU_IDLE_RATIO:
        yield Finding(
            "gpu_starved",
            f"{served.waiting:,} wait and the GPU works {busy:.0%} of the time",
            "what comes before the model holds it up: more CPUs, a larger batch_max, or two replicas on it",
        )


Rule = Callable[[Served], Iterator[Finding]]

RULES: tuple[Rule, ...] = (_no_worker, _crashes, _paused, _breaker, _overload, _full, _stalled, _stale)
