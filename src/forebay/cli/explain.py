"""sentence: why a job is where it is, from what the server says of it, its queue and the workers."""

from typing import Any

from forebay.cli.show import about
from forebay.client.faults import said_of
from forebay.client.wire import object_of

View = dict[str, Any]
POOLS = ("(functions)", "(fallbacks)")  # the workers that plain functions share


def sentence(view: View, queue: View, workers: list[View] | None) -> str:
    """Return one sentence. `queue` and `workers` matter only while the job has not ended; None: not told."""
    task, state = view.get("task"), view.get("state")
    head = f"{view.get('job_id')} ({task})"
    ended = _ended(view)
    if ended is not None:
        return f"{head} {ended}."
    if view.get("cancel_requested"):
        return f"{head} runs and has been asked to stop."
    if state == "running":
        return f"{head} runs now, attempt {view.get('attempt')} of {view.get('attempts_max')}."
    if view.get("waits_for"):
        return (
            f"{head} waits for job {view['waits_for']} of the same ordering key ({view.get('ordering_key')})."
        )
    if _waits_for_version(view):
        return f"{head} {view['error'].get('message')}. Start one, or serve the task with on_version=run."
    error = object_of(view.get("error"))
    if state == "scheduled" and error is not None:
        held = _held(view.get("task"), workers or []) if error.get("code") == "breaker_open" else ""
        return (
            f"{head} was put off ({error.get('code')}: {error.get('message')}) and will be tried again{held}."
        )
    if state == "scheduled":
        return f"{head} waits for its time: it was submitted to run later{_at(view, 'run_at')}."
    if state == "retrying":
        cause = "" if error is None else f" ({error.get('code')}: {said_of(error)})"
        return f"{head} failed attempt {view.get('attempt')}{cause} and waits for the next one."
    return f"{head} {_queued(view, queue, workers)}."


def _queued(view: View, queue: View, workers: list[View] | None) -> str:
    task = view.get("task")
    if queue.get("paused"):
        return f"waits because the queue of {task} is paused; `forebay queues resume {task}` lets it go on"
    breaker = object_of(queue.get("breaker")) or {}
    if breaker.get("state") == "open":
        again = f"one job will try it in {about(breaker.get('retry_after_s'))}"
        return f"waits because the breaker of {task} is open ({breaker.get('reason')}); {again}"
    place, eta = view.get("position"), object_of(view.get("eta"))
    ahead = f"at place {place} in line" if place is not None else "in line"
    when = f"; it should be done in about {about(eta.get('p50_s'))}" if eta else ""
    if workers is None:
        return f"waits {ahead}{when}"
    workers = [row for row in workers if row.get("state") != "parked"]  # nobody is to be there
    able = [row for row in workers if row.get("task") == task]
    able = able or [row for row in workers if row.get("task") in POOLS]
    up = [row for row in able if str(row.get("state")) == "ready"]
    if not able:
        return f"waits because no worker serves {task}"
    if not up:
        states = ", ".join(sorted({str(row.get("state")) for row in able}))
        return f"waits because no worker of {task} is ready (they are {states})"
    running = queue.get("running") or 0
    return f"waits {ahead} behind {running} running on {len(up)} worker{'s' * (len(up) != 1)}{when}"


def _held(task: Any, workers: list[View]) -> str:
    """Return in how many workers a breaker is open that guards calls of a task."""
    states: dict[str, list[str]] = {}
    for row in workers:
        for one in row.get("breakers") or ():
            if task in (one.get("tasks") or ()):
                states.setdefault(one["breaker"], []).append(one["state"])
    told = [
        f"; the breaker {name} is open in {seen.count('open')} of its {len(seen)} workers"
        for name, seen in sorted(states.items())
        if "open" in seen
    ]
    return "".join(told)


def _waits_for_version(view: View) -> bool:
    error = object_of(view.get("error")) or {}
    return view.get("state") in ("scheduled", "queued") and error.get("code") == "version_waits"


def _ended(view: View) -> str | None:
    status, error = view.get("status"), object_of(view.get("error"))
    why = "" if error is None else f": {error.get('code')}, {said_of(error)}"
    match status:
        case "COMPLETED":
            return f"is done since {view.get('finished_at')}"
        case "FAILED":
            return f"failed for good after attempt {view.get('attempt')}{why}"
        case "CANCELLED":
            return "was cancelled"
        case "EXPIRED":
            return f"expired before it could be done{why}"
        case _:
            return None


def _at(view: View, name: str) -> str:
    return f", at {view[name]}" if view.get(name) else ""
