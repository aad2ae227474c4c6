"""`forebay dead-letters`: jobs that failed for good."""

import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from forebay.cli.jobs import print_job
from forebay.cli.options import ApiKey, Json, Limit, Rate, Task, Url, connect, instant_of, rate_of, seconds_of
from forebay.cli.show import Stop, clean, complain, print_json, say, table
from forebay.errors import ForebayError, UnreachableError

if TYPE_CHECKING:
    from forebay.client import Client

View = dict[str, Any]
SWEEP_MAX = 10_000  # dead letters that one redrive or purge of many takes
JobIds = Annotated[list[str] | None, typer.Argument(metavar="JOB_ID...", help="These.")]
All = Annotated[bool, typer.Option("--all", help="All there are (that --task, --cause, --since name).")]
CauseIs = Annotated[
    str | None,
    typer.Option("--cause", metavar="CAUSE", help="transient, permanent, resource or poison only."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help='That ended since: "2h" ago, or an RFC 3339 time.'),
]


class Sieve(NamedTuple):
    """Which dead letters are meant; None takes any."""

    task: str | None
    cause: str | None
    since: float | None  # seconds since the epoch

    def takes(self, row: View) -> bool:
        """Say whether a dead letter, as the server lists it, is meant."""
        if self.cause is not None and row.get("cause") != self.cause:
            return False
        if self.since is None:
            return True
        ended = str(row.get("finished_at") or "")
        return bool(ended) and datetime.fromisoformat(ended).timestamp() >= self.since


def ls(
    task: Task = None, limit: Limit = 50, url: Url = None, api_key: ApiKey = None, json_: Json = False
) -> None:
    """List dead letters, newest first."""
    with connect(url, api_key) as client:
        rows = client.dead_letters(task=task, limit=limit)
    if json_:
        print_json(rows)
    elif rows:
        table(("job_id", "task", "attempt", "code", "message"), [_row(row) for row in rows])
    else:
        say("none")


def show(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID")],
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Show one dead letter: cause, attempts, worker."""
    with connect(url, api_key) as client:
        letter = client.dead_letter(job_id)
    if json_:
        print_json(letter)
        return
    evidence = ("attempts", "log_tail", "batch_mates")
    print_job({name: value for name, value in letter.items() if name not in evidence}, json_)
    for name, title in (("log_tail", "printed before it ended"), ("batch_mates", "ran in the same call")):
        lines = [str(line) for line in letter.get(name) or ()]
        if lines:
            say(title)
        for line in lines:
            say(f"  {clean(line)}")


def edit(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID")],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="JSON, @FILE, or - for standard input.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Have the redrive of a dead letter take another payload."""
    from forebay.cli.reading import open_input
    from forebay.client.encode import Raw

    text = open_input(payload, False).one
    if text is None:
        raise Stop("PAYLOAD: a file that is no JSON; store it with forebay blobs put and name it", 2)
    with connect(url, api_key) as client:
        letter = client.edit(job_id, Raw(text))
    if json_:
        print_json(letter)
    else:
        say(f"{clean(letter.get('job_id'))} edited: a redrive takes the new payload")


def redrive(
    job_ids: JobIds = None,
    all_: All = False,
    task: Task = None,
    cause: CauseIs = None,
    since: Since = None,
    rate: Rate = None,
    force: Annotated[bool, typer.Option("--force", help="Also inputs in quarantine (scope admin).")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Make new jobs of dead letters, one by one, or many at a set rate."""
    sieve = sieve_of(task, cause, since)
    with connect(url, api_key) as client:
        chosen = _chosen(client, job_ids, all_, sieve, fresh=True)
        act = partial(client.redrive, force=force)
        return _each(chosen, act, "redriven", rate_of(rate), json_)


def quarantine(
    task: Task = None, limit: Limit = 50, url: Url = None, api_key: ApiKey = None, json_: Json = False
) -> None:
    """List inputs that killed workers and are refused, the last to kill first."""
    with connect(url, api_key) as client:
        rows = client.quarantine(task=task, limit=limit)
    if json_:
        print_json(rows)
    elif rows:
        names = ("fingerprint", "task", "version", "deaths", "last_death_at", "job_id")
        rows.sort(key=lambda row: str(row.get("last_death_at")), reverse=True)
        table(names, [[row.get(name) for name in names] for row in rows])
    else:
        say("none")


def release(
    fingerprints: Annotated[list[str], typer.Argument(metavar="FINGERPRINT...", help="These.")],
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Take inputs out of quarantine: their copies are accepted again."""
    with connect(url, api_key) as client:
        return _each(
            list(dict.fromkeys(fingerprints)), client.release, "released", None, json_, "fingerprint"
        )


def purge(
    job_ids: JobIds = None,
    all_: All = False,
    task: Task = None,
    cause: CauseIs = None,
    since: Since = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Remove dead letters for good."""
    sieve = sieve_of(task, cause, since)
    with connect(url, api_key) as client:
        chosen = _chosen(client, job_ids, all_, sieve, fresh=False)
        if chosen and not yes:
            _ask(len(chosen))
        return _each(chosen, client.purge, "removed", None, json_)


def _told(job_id: str, answer: View) -> str | None:
    made = answer.get("redriven_as")
    if not made:
        return None
    return clean(f"{job_id} redriven {'before ' if answer.get('replayed') else ''}as {made}")


def _ask(count: int) -> None:
    what = f"{count} dead letter{'s' if count != 1 else ''}"
    if not (sys.stdin and sys.stdin.isatty()):
        raise Stop(f"this removes {what} for good: say --yes, there is no terminal to ask on", 2)
    print(f"Remove {what} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline(100).strip().lower() not in ("y", "yes"):
        raise Stop("nothing was removed", 1)


def sieve_of(task: str | None, cause: str | None, since: str | None) -> Sieve:
    """Return which dead letters are meant. Raises Stop for a cause that is none and for a wrong time."""
    from forebay.core.evidence import Cause

    causes = [one.value for one in Cause]
    if cause is not None and cause not in causes:
        raise Stop(f"--cause: {cause!r} is none of {', '.join(causes)}", 2)
    if since is None:
        return Sieve(task, cause, None)
    if "-" in since:
        instant_of("--since", since)
        return Sieve(task, cause, datetime.fromisoformat(since.upper()).timestamp())
    return Sieve(task, cause, time.time() - seconds_of("--since", since))


def _chosen(
    client: "Client", job_ids: list[str] | None, all_: bool, sieve: Sieve, *, fresh: bool
) -> list[str]:
    """Return the ids that were named, or all that the sieve lets through; `fresh` leaves out those redriven
    before."""
    filtered = any(one is not None for one in sieve)
    if job_ids and (all_ or filtered):
        raise Stop("give JOB_IDs, or --all and --task, --cause and --since, not both", 2)
    if job_ids:
        return list(dict.fromkeys(job_ids))
    if not all_ and not filtered:
        raise Stop("give JOB_IDs, or --task, --cause or --since, or --all", 2)
    rows = client.dead_letters(task=sieve.task, limit=SWEEP_MAX)
    return [
        str(row.get("job_id")) for row in rows if sieve.takes(row) and not (fresh and row.get("redriven_as"))
    ]


def _each(
    job_ids: list[str],
    act: Callable[[str], View],
    done: str,
    rate_per_s: float | None,
    json_: bool,
    name: str = "job_id",
) -> int:
    """Do it to each, say what happened to each, return 1 when one was refused."""
    results: list[View] = []
    start = time.monotonic()
    for place, job_id in enumerate(job_ids):
        if rate_per_s is not None:
            time.sleep(max(0.0, start + place / rate_per_s - time.monotonic()))
        try:
            answer = act(job_id)
            results.append({name: job_id, done: not answer.get("replayed"), "answer": answer})
            told = _told(job_id, answer)
            if told is not None and not json_:
                print(told, flush=True)
        except UnreachableError:
            raise
        except ForebayError as error:
            complain(f"{job_id}: {error}")
            results.append({name: job_id, done: False, "error": {"code": error.code, "message": str(error)}})
    good = sum(1 for row in results if row[done])
    refused = sum(1 for row in results if "error" in row)
    before = len(results) - good - refused
    if json_:
        print_json({"count": good, "before": before, "refused": refused, "items": results})
    else:
        counts = ((good, done), (before, f"{done} before"), (refused, "refused"))
        say(", ".join(f"{count} {word}" for count, word in counts if count or word == done))
    return 1 if refused else 0


def _row(row: View) -> list[object]:
    from forebay.client.faults import said_of
    from forebay.client.wire import object_of

    error = object_of(row.get("error")) or {}
    return [
        row.get("job_id"),
        row.get("task"),
        row.get("attempt"),
        error.get("code") or row.get("cause"),
        clean(said_of(error), 50),
    ]


COMMANDS: dict[str, Callable[..., Any]] = {
    "ls": ls,
    "show": show,
    "edit": edit,
    "redrive": redrive,
    "purge": purge,
    "quarantine": quarantine,
    "release": release,
}
