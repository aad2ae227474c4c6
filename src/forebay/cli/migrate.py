"""`forebay migrate`: all jobs of the embedded store to PostgreSQL."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.options import Json
from forebay.cli.show import Stop, complain, facts, print_json
from forebay.errors import ConfigError, ForebayError

if TYPE_CHECKING:
    from forebay.moving import Moved

CANNOT_REACH = 3


def migrate(
    source: Annotated[
        str, typer.Option("--from", metavar="sqlite:DIRECTORY", help="The store that is left.")
    ] = "sqlite:",
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="postgresql://…, with an empty schema. [FOREBAY_BROKER]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")] = False,
    json_: Json = False,
) -> int:
    """Move every job, and all that is known of it, to another engine. May be killed and begun again."""
    from forebay.clock import SystemClock
    from forebay.config import load_settings
    from forebay.moving import move, survey

    clock, to = SystemClock(), target or load_settings().broker
    if to is None and not dry_run:
        raise Stop("--to is needed: postgresql://user@host:port/database", 2)
    try:
        if dry_run:
            found = asyncio.run(survey(source, clock=clock))
        else:
            found = asyncio.run(move(source, to or "", clock=clock, told=_progress))
    except ConfigError:
        raise
    except ForebayError as error:
        raise Stop(str(error), CANNOT_REACH) from None
    _show(found, dry_run=dry_run, json_=json_)
    return 0


def _progress(found: "Moved") -> None:
    if sys.stderr.isatty():
        print(f"\r{found.jobs.total()} jobs", end="", file=sys.stderr, flush=True)


def _show(found: "Moved", *, dry_run: bool, json_: bool) -> None:
    counts = {
        "jobs": found.jobs.total(),
        "states": dict(sorted(found.jobs.items())),
        "deliveries": found.deliveries,
        "keys": found.keys,
        "crons": found.crons,
        "deadly_inputs": found.deadly,
        "paused_or_draining": found.taps,
    }
    if not dry_run:
        counts = {**counts, "moved": found.moved, "moved_before": found.before}
    if json_:
        print_json(counts)
        return
    if found.before:
        complain("all of it was moved before; the file is put aside now")
    facts(counts.items())
