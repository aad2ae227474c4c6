"""`forebay blobs`: store a file, fetch one, erase one."""

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay.cli import links
from forebay.cli.options import ApiKey, Json, Url, connect
from forebay.cli.show import Stop, clean, print_json, say

Blob = Annotated[str, typer.Argument(metavar="ID", help="The blob's id.")]


def put(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What to store; - is standard input.")],
    media_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="What it is, like audio/wav. Without it: by the name.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Store a file of any size, and print its id. A payload names it as {"$blob": "ID"}."""
    from forebay.errors import InvalidError

    with connect(url, api_key) as client:
        try:
            if file == "-":
                with os.fdopen(os.dup(0), "rb", buffering=0) as source:
                    ref = client.put_blob(source, media_type)
            else:
                ref = client.put_blob(file, media_type)
        except InvalidError as error:
            raise Stop(str(error), 2) from None
    if json_:
        view = {"id": ref.id, "size": ref.size, "sha256": ref.sha256, "media_type": ref.media_type}
        print_json(view)
    else:
        say(clean(ref.id))


def get(
    blob: Blob,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to; without it standard output.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Fetch a blob. The file of --out is there only when it is whole."""
    import sys

    from forebay.client import blobs
    from forebay.errors import InvalidError

    if json_ and out is None:
        raise Stop("--json: name --out, since the bytes go to standard output", 2)
    with connect(url, api_key) as client:
        try:
            if out is None:
                sys.stdout.flush()
                client.run(blobs.get(blob, sys.stdout.buffer.write, client.terms))
                sys.stdout.buffer.flush()
            else:
                client.get_blob(blob, out)
        except InvalidError as error:
            raise Stop(str(error), 2) from None
    if json_ and out is not None:
        print_json({"id": blob, "file": out, "size": os.path.getsize(out)})


def rm(
    blob: Blob,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that a job names: the job fails when it reads it.")
    ] = False,
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> None:
    """Erase a blob for good."""
    from forebay.errors import InvalidError

    with connect(url, api_key) as client:
        try:
            view = client.erase_blob(blob, force=force)
        except InvalidError as error:
            raise Stop(str(error), 2) from None
    if json_:
        print_json(view)
    else:
        say(f"{clean(blob)} is erased")


COMMANDS: dict[str, Callable[..., Any]] = {"put": put, "get": get, "rm": rm, "link": links.of_blob}
