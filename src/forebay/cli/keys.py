"""`forebay keys`: make API keys, and keys that encrypt."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay.cli.options import Json
from forebay.cli.show import Stop, complain, print_json, say


def new(
    tenant: Annotated[str, typer.Option("--tenant", metavar="TENANT", help="Whose key it is.")],
    scopes: Annotated[
        str,
        typer.Option("--scopes", metavar="SCOPES", help="submit, read, cancel, admin, worker; with commas."),
    ] = "submit,read,cancel",
    json_: Json = False,
) -> None:
    """Make a key: it is printed once and kept nowhere; its line, with its hash, goes into the keys file."""
    from forebay.keys import line_for, new_key, scopes_of, tenant_of

    try:
        name, asked = tenant_of(tenant), scopes_of(word.strip() for word in scopes.split(","))
    except ValueError as error:
        raise Stop(str(error), 2) from None
    key = new_key()
    line = line_for(key, name, asked)
    if json_:
        print_json({"key": key, "tenant": name, "line": line})
        return
    complain("the key, shown this once:")
    say(key)
    complain("its line in the keys file, below [keys]:")
    say(line)


def payload(json_: Json = False) -> None:
    """Make a key that encrypts what jobs hold, for the setting payload_keys."""
    from forebay.keys import new_payload_key

    key = new_payload_key()
    if json_:
        print_json({"key": key})
    else:
        say(key)


COMMANDS: dict[str, Callable[..., Any]] = {"new": new, "payload": payload}
