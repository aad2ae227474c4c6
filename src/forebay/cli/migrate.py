"""`forebay migrate`: all jobs of one engine to another."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.options import Json
from forebay.cli.show import Stop, complain, facts, print_json, say
from forebay.errors import ConfigError, ForebayError
from forebay.values import of_system

if TYPE_CHECKING:
    from forebay.moving import Moved

CANNOT_REACH = 3


def migrate(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL",
            help="The store that is left: sqlite:DIRECTORY, postgresql://… or redis://….",
        ),
    ] = "sqlite:",
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="postgresql://… or redis://…, empty. [FOREBAY_BROKER]"),
    ] = None,
    blobs: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Copy the blobs of a directory there: another one, s3://…, gs://…, az://…. They stay, else.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")] = False,
    taken_back: Annotated[
        bool,
        typer.Option(
            "--give-up", help="Let a store be served again that a move which has not ended took away."
        ),
    ] = False,
    json_: Json = False,
) -> int:
    """Move every job, and all that is known of it, to another engine. May be killed and begun again."""
    from forebay.clock import SystemClock
    from forebay.config import load_settings
    from forebay.moving import give_up, move, survey

    clock, to = SystemClock(), target or load_settings().broker
    if to is None and not dry_run and not taken_back:
        raise Stop("--to is needed: postgresql://user@host:port/database, or redis://host:port/0", 2)
    try:
        if taken_back:
            asyncio.run(give_up(source, clock=clock))
            if json_:
                print_json({"given_up": True})
            else:
                say("it can be served again; what has arrived elsewhere by now is yours to remove")
            return 0
        if dry_run:
            found = asyncio.run(survey(source, clock=clock))
        else:
            found = asyncio.run(move(source, to or "", clock=clock, told=_progress, blobs=blobs))
    except ConfigError:
        raise
    except ForebayError as error:
        raise Stop(str(error), CANNOT_REACH) from None
    except OSError as error:
        raise Stop(of_system(error), CANNOT_REACH) from None
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
        "removed_remembered": found.removed,
        "blobs": found.blobs,
    }
    if not dry_run:
        counts = {
            **counts,
            "blobs_copied": found.blobs_copied,
            "moved": found.moved,
            "moved_before": found.before,
        }
    if found.before:
        complain("all of it was moved before; the file is put aside now")
    if found.blobs_in:
        complain(
            f"the bytes of {found.blobs} blobs stay in {found.blobs_in}: set blobs to it, or --blobs PLACE"
        )
    if json_:
        print_json(counts)
    else:
        facts(counts.items())
