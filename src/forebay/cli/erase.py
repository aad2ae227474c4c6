"""`forebay erase`: remove everything of a tenant, or of whom metadata names."""

import sys
from typing import Annotated

import typer

from forebay.cli.options import ApiKey, Json, Metadata, Url, connect, pairs
from forebay.cli.show import Stop, print_json, say

PASSES_MAX = 10_000  # bounded parts of one erasure


def erase(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="Whose jobs.")] = None,
    metadata: Metadata = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Remove all jobs of a tenant, or of whom metadata names, with their results, for good."""
    chosen = pairs(metadata)
    if tenant is None and not chosen:
        raise Stop("say whose: --tenant or --metadata NAME=VALUE", 2)
    if not yes:
        _ask()
    removed, last = 0, {}
    with connect(url, api_key) as client:
        for _ in range(PASSES_MAX):
            last = client.erase(tenant=tenant, metadata=chosen)
            removed += int(last.get("removed", 0))
            if last.get("done") or not last.get("removed"):
                break
    told = {"removed": removed, "running": last.get("running"), "done": last.get("done")}
    if json_:
        print_json(told)
    else:
        still = "" if told["done"] else f", {told['running']} still run: ask again"
        say(f"{removed} removed{still}")
    return 0 if told["done"] else 1


def _ask() -> None:
    if not (sys.stdin and sys.stdin.isatty()):
        raise Stop("this removes jobs for good: say --yes, there is no terminal to ask on", 2)
    print("Remove all of it for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline(100).strip().lower() not in ("y", "yes"):
        raise Stop("nothing was removed", 1)
