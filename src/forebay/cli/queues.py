"""`forebay queues`, `workers`, `nodes`, `tasks`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.options import ApiKey, Json, Url, connect
from forebay.cli.show import clean, print_json, say, table

if TYPE_CHECKING:
    from forebay.client import Client

View = dict[str, Any]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task whose queue it is.")]


def ls(url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """List the queues."""
    with connect(url, api_key) as client:
        rows = client.queues()
    names = ("task", "depth", "running", "capacity", "bytes", "oldest_age_s", "state")
    rows = rows if json_ else [{**row, "state": _state(row)} for row in rows]
    _rows(rows, names, json_)


def pause(task: TaskName, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Stop handing out jobs of a task; it still accepts new ones."""
    _steer(url, api_key, json_, lambda client: client.pause(task), f"{task} is paused")


def resume(task: TaskName, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Hand out jobs of a task again."""
    _steer(url, api_key, json_, lambda client: client.resume(task), f"{task} is resumed")


def drain(task: TaskName, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Refuse new jobs of a task and finish those it has."""
    _steer(url, api_key, json_, lambda client: client.drain(task), f"{task} is draining")


def workers(url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """List the workers."""
    with connect(url, api_key) as client:
        rows = client.workers()
    names = ("worker", "task", "state", "device", "pid", "restarts", "memory_bytes", "last_crash")
    _rows(rows, names, json_)


def nodes(
    costs: Annotated[
        bool, typer.Option("--costs", help="Print a host and its deletion cost a line, for scripts.")
    ] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """List the nodes; the one first that should go first."""
    with connect(url, api_key) as client:
        rows = client.nodes()
    if costs and not json_:
        for row in rows:
            say(clean(f"{row['host']} {row['deletion_cost']}"))
        return
    names = ("node", "host", "state", "replicas", "ready", "in_hand", "idle_s", "deletion_cost", "unready")
    _rows(rows, names, json_)


def tasks(url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """List the tasks."""
    with connect(url, api_key) as client:
        rows = client.tasks()
    _rows(rows, ("task", "name", "version", "batch_max", "timeout_s", "attempts_max", "description"), json_)


def _state(row: View) -> str:
    """Return what a queue does now: "paused", "draining", both, or "open"."""
    return ", ".join(word for word in ("paused", "draining") if row.get(word)) or "open"


def _rows(rows: list[View], names: tuple[str, ...], json_: bool) -> None:
    """Print rows; a column that no row has is left out."""
    if json_:
        print_json(rows)
        return
    shown = [name for name in names if any(row.get(name) is not None for row in rows)]
    shown += [] if shown or not rows else list(rows[0])[:6]
    if rows:
        table(shown, [[row.get(name) for name in shown] for row in rows])
    else:
        say("none")


def _steer(
    url: str | None, api_key: str | None, json_: bool, act: "Callable[[Client], View]", done: str
) -> None:
    with connect(url, api_key) as client:
        row = act(client)
    if json_:
        print_json(row)
    else:
        say(clean(done))


COMMANDS: dict[str, Callable[..., Any]] = {"ls": ls, "pause": pause, "resume": resume, "drain": drain}
