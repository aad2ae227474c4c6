"""`forebay jobs link`, `forebay blobs link`: an address that opens one thing for a time, without a key."""

from typing import Annotated, Any

import typer

from forebay.cli.options import ApiKey, Json, Url, connect
from forebay.cli.show import clean, print_json, say

Ttl = Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it opens, at most 7d.")]


def of_job(
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", help="Whose result.")],
    ttl: Ttl = "1h",
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Print a signed link to the result of a job: whoever has it needs no key."""
    with connect(url, api_key) as client:
        _told(client.link_result(job_id, ttl=ttl), json_)


def of_blob(
    blob: Annotated[str, typer.Argument(metavar="ID", help="The blob's id.")],
    ttl: Ttl = "1h",
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Print a signed link to a blob: whoever has it needs no key."""
    with connect(url, api_key) as client:
        _told(client.link_blob(blob, ttl=ttl), json_)


def _told(view: dict[str, Any], json_: bool) -> None:
    if json_:
        print_json(view)
    else:
        say(clean(str(view.get("url"))))
