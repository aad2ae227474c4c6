"""`forebay crons`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay.cli.options import ApiKey, Json, Url, connect
from forebay.cli.show import clean, print_json, say, table

Name = Annotated[str, typer.Argument(metavar="NAME", help="The cron entry.")]
_NEW = "new"  # what every entry is until its first run: nothing was skipped
_COLUMNS = ("cron", "task", "schedule", "time_zone", "next_run_at", "last_run_at", "last_status", "skipped")


def ls(url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """List the cron entries: when each runs next, and what became of the last run."""
    with connect(url, api_key) as client:
        rows = client.crons()
    if json_:
        print_json(rows)
    elif rows:
        table(list(_COLUMNS), [[_shown(row).get(name) for name in _COLUMNS] for row in rows])
    else:
        say("none: the application has no @app.every")


def pause(name: Name, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Submit nothing of a cron entry until it is resumed."""
    with connect(url, api_key) as client:
        row = client.pause_cron(name)
    _told(row, f"{name} is paused", json_)


def resume(name: Name, url: Url = None, api_key: ApiKey = None, json_: Json = False) -> None:
    """Let a cron entry go on from now; what was due meanwhile is not made up for."""
    with connect(url, api_key) as client:
        row = client.resume_cron(name)
    _told(row, f"{name} is resumed; next run {row.get('next_run_at') or 'never'}", json_)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as people read it: that it is new is no news, and a paused one has no next run."""
    skipped = None if row.get("skipped") == _NEW else row.get("skipped")
    next_run = "paused" if row.get("paused") else row.get("next_run_at")
    return {**row, "skipped": skipped, "next_run_at": next_run}


def _told(row: dict[str, Any], words: str, json_: bool) -> None:
    if json_:
        print_json(row)
    else:
        say(clean(words))


COMMANDS: dict[str, Callable[..., Any]] = {"ls": ls, "pause": pause, "resume": resume}
