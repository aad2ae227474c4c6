"""`forebay jobs`: list, show, watch, cancel, amend, explain."""

import contextlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay.cli import links
from forebay.cli.options import (
    ApiKey,
    Json,
    Limit,
    Metadata,
    Task,
    Url,
    connect,
    pairs,
    priority_of,
    seconds_of,
    status_of,
)
from forebay.cli.show import Stop, about, clean, complain, estimate, facts, print_json, readable, say, table
from forebay.cli.watch import ENDED, changes
from forebay.client.faults import said_of
from forebay.client.wire import object_of, objects_of
from forebay.errors import ForbiddenError, ForebayError, UnreachableError

View = dict[str, Any]
JobId = Annotated[str, typer.Argument(metavar="JOB_ID")]


def ls(
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only this status or state; several with commas.")
    ] = None,
    task: Task = None,
    metadata: Metadata = None,
    limit: Limit = 50,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """List jobs, newest first. A list carries no results: `jobs show` does."""
    status = status_of(status)
    with connect(url, api_key) as client:
        found = client.list(status=status, task=task, metadata=pairs(metadata), limit=limit)
    views = [{name: value for name, value in job.view.items() if name != "result"} for job in found]
    if json_:
        print_json(views)
    elif views:
        names = ("job_id", "task", "status", "state", "attempt", "created_at")
        table(names, [[view.get(name) for name in names] for view in views])
    else:
        say("none")


def show(job_id: JobId, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Show one job."""
    with connect(url, api_key) as client:
        view = client.get(job_id).view
    print_job(view, json_)


def cancel(
    job_ids: Annotated[list[str] | None, typer.Argument(metavar="JOB_ID...")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="All of this status: PENDING or PROCESSING.")
    ] = None,
    task: Task = None,
    metadata: Metadata = None,
    every: Annotated[bool, typer.Option("--all", help="All that have not ended, of --task if any.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Cancel jobs: waiting ones at once, running ones when their handler has stopped."""
    if job_ids and (status or task or metadata or every):
        raise Stop("JOB_ID...: name jobs, or give --task, --status, --metadata or --all, not both", 2)
    if not job_ids:
        if not (status or metadata or every):
            raise Stop("JOB_ID...: name jobs, or say --all, --status or --metadata", 2)
        with connect(url, api_key) as client:
            counts = client.cancel_many(
                status=status_of(status), task=task, metadata=pairs(metadata), everything=every
            )
        if json_:
            print_json(counts)
        else:
            say(f"{counts['cancelled']} cancelled, {counts['requested']} run and were asked to stop")
        return 0
    with connect(url, api_key) as client:
        return _each(job_ids, lambda job_id: client.cancel(job_id).view, json_)


def _each(job_ids: list[str], do: Callable[[str], View], json_: bool) -> int:
    rows: list[View] = []
    refused = 0
    for job_id in job_ids:
        try:
            rows.append(do(job_id))
        except UnreachableError:
            raise
        except ForebayError as error:
            refused += 1
            complain(f"{job_id}: {error}")
            rows.append({"job_id": job_id, "error": {"code": error.code, "message": str(error)}})
    if json_:
        print_json(rows)
    else:
        for row in rows:
            if "status" in row:
                say(f"{clean(row['job_id'])} {clean(row['status'])}")
    return 1 if refused else 0


def amend(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB_ID...")],
    priority: Annotated[
        str | None, typer.Option(metavar="PRIORITY", help="high, normal, low or 0 (most urgent) to 9.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TASK", help="Move to this task; it must take the payload.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Give jobs that wait another priority, or move them to another task."""
    if priority is None and to is None:
        raise Stop("say what to change: --priority or --to", 2)
    chosen = priority_of(priority)
    with connect(url, api_key) as client:
        return _each(job_ids, lambda job_id: client.amend(job_id, priority=chosen, task=to).view, json_)


def watch(
    job_id: JobId,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to watch.")] = "24h",
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Follow one job to its end. Exit code 0 when it completed, 1 when it ended otherwise or not in time."""
    seconds = seconds_of("--timeout", timeout)
    view: View = {}
    with connect(url, api_key, retry_for="60s") as client:
        for view in changes(client, job_id, seconds):
            if not json_:
                print(_line(view), flush=True)
    if json_:
        print_json(view)
    if view.get("status") not in ENDED:
        raise Stop(f"{job_id} has not ended after {timeout}", 1)
    return 0 if view.get("status") == "COMPLETED" else 1


def explain(job_id: JobId, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Say in one sentence why a job is where it is."""
    from forebay.cli.explain import sentence

    with connect(url, api_key) as client:
        view = client.get(job_id).view
        queue: View = {}
        workers: list[View] | None = None
        if view.get("status") not in ENDED:
            queue = client.queue(str(view.get("task", "")))
            with contextlib.suppress(ForbiddenError):  # a tenant's key: the sentence has no workers
                workers = client.workers()
    text = sentence(view, queue, workers)
    if json_:
        print_json({"job_id": job_id, "status": view.get("status"), "explanation": text})
    else:
        say(clean(text))


def deliveries(
    job_id: JobId,
    replay: Annotated[bool, typer.Option("--replay", help="Tell the callback once more, now.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Show what became of a job's callback, try by try."""
    with connect(url, api_key) as client:
        rows = client.replay_deliveries(job_id) if replay else client.deliveries(job_id)
    if json_:
        print_json(rows)
        return
    if not rows:
        say("none")
    for row in rows:
        hidden = ("tries",)
        facts([(name, value) for name, value in row.items() if name not in hidden])
        for tried in objects_of(row.get("tries")):
            told = [f"try {tried.get('number')}", tried.get("at"), tried.get("status"), tried.get("detail")]
            say("  " + clean("  ".join(str(part) for part in told if part not in {None, ""})))


def print_job(view: View, json_: bool) -> None:
    """Print one job."""
    if json_:
        print_json(view)
        return
    hidden = ("links", "eta", "timeline")
    rows = {name: value for name, value in view.items() if name not in hidden}
    rows["error"] = error_of(view.get("error"))
    rows["progress"] = None if view.get("progress") is None else progress_of(view["progress"])
    facts([*rows.items(), ("done in", estimate(view.get("eta")))])
    events = objects_of(view.get("timeline"))
    if events:
        say("timeline")
    for event in events:
        say(f"  {clean(_event(event))}")


def progress_of(progress: object) -> str:
    """Return a report of progress for people: "10% step 2"."""
    known = object_of(progress) or {}
    share = known.get("share")
    if isinstance(share, bool) or not isinstance(share, int | float):
        return f"progress {readable(progress)}"
    return f"{share:.0%} {known.get('message') or ''}".rstrip()


def error_of(error: object) -> str | None:
    """Return the error of a job on one line, None when there is none."""
    known = object_of(error)
    return None if known is None else f"{known.get('code')}: {said_of(known) or known.get('message')}"


def _event(event: View) -> str:
    """Return one event of a timeline: when, what, and what else is known of it."""
    parts = [str(event.get("at") or "-"), str(event.get("event"))]
    if event.get("attempt") is not None:
        parts.append(f"attempt {event['attempt']}")
    if event.get("worker") is not None:
        parts.append(f"on {event['worker']}")
    for name, word in _SPANS.items():
        span = event.get(name)
        if isinstance(span, int | float) and not isinstance(span, bool):
            parts.append(f"{word} {about(span)}")
    for name, word in (("until", "until"), ("next_at", "again at"), ("count", "attempts before:")):
        if event.get(name) is not None:
            parts.append(f"{word} {event[name]}")
    error = error_of(event.get("error"))
    return "  ".join([*parts, *([error] if error is not None else [])])


_SPANS = {"waited_s": "waited", "ran_s": "ran", "took_s": "took"}


def _line(view: View) -> str:
    parts = [str(view.get("status")), str(view.get("state"))]
    if view.get("position") is not None:
        parts.append(f"place {view['position']}")
    progress = view.get("progress")
    if progress is not None:
        parts.append(progress_of(progress))
    error = error_of(view.get("error"))
    if error is not None:
        parts.append(error)
    return clean("  ".join(parts))


COMMANDS: dict[str, Callable[..., Any]] = {
    "ls": ls,
    "show": show,
    "watch": watch,
    "cancel": cancel,
    "amend": amend,
    "explain": explain,
    "deliveries": deliveries,
    "link": links.of_job,
}
