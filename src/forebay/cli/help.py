"""write_help: a command's help in groups, in plain text: it starts fast and shows on every terminal."""

import inspect
from collections.abc import Sequence
from typing import Any

OTHER = "Commands"


def write_help(command: Any, ctx: Any, formatter: Any, order: Sequence[str] = ()) -> None:
    """Write usage, what the command does, its arguments, its options, and its commands by group,
    in this order."""
    command.format_usage(ctx, formatter)
    if command.help:
        for paragraph in inspect.cleandoc(command.help).split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(" ".join(paragraph.split()))
    arguments: list[Any] = []
    options: list[Any] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            record = (record[0].removesuffix(" <str>"), record[1])  # newer releases of typer say the kind
            (options if param.param_type_name == "option" else arguments).append(record)
    for group, rows in (("Arguments", arguments), *_commands(command, ctx, order), ("Options", options)):
        if rows:
            with formatter.section(group):
                formatter.write_dl(rows)


def _commands(command: Any, ctx: Any, order: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    groups: dict[str, list[tuple[str, str]]] = {name: [] for name in order}
    names: list[str] = command.list_commands(ctx) if hasattr(command, "list_commands") else []
    for name in names:
        found = command.get_command(ctx, name)
        named = getattr(found, "rich_help_panel", None)
        group: str = named if isinstance(named, str) else OTHER
        groups.setdefault(group, []).append((name, found.get_short_help_str(120)))
    return list(groups.items())
