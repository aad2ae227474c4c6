"""The commands in their groups, as typer sees them."""

from collections.abc import Callable
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from forebay.cli import (
    apart,
    blobs,
    chaos,
    conform,
    crons,
    dead_letters,
    deploy,
    doctor,
    erase,
    jobs,
    keys,
    lint,
    load,
    migrate,
    queues,
    serve,
    simulate,
    size,
    stream,
    submit,
    top,
    verify,
    wait,
)
from forebay.cli.help import write_help
from forebay.cli.options import Json
from forebay.cli.show import print_json, say

RUN, WORK, LOOK, PLAN = GROUPS = ("Serve", "Send work", "Look and steer", "Plan")


class _Plain:
    """Reads texts and whole numbers. Newer releases of typer import a validation library for that, which
    costs every command a quarter of a second."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command wants it. Raises BadParameter naming the range."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if "int" not in str(param.type_descriptor.annotation) or isinstance(value, int):
            return value
        low, high = param.min, param.max
        number = (
            int(value) if value.isascii() and value.removeprefix("-").isdigit() and len(value) < 20 else None
        )
        if number is None or not low <= number <= high:
            raise typer.BadParameter(f"{value!r} is not a whole number from {low} to {high}.", ctx, param)
        return number


class _Once:
    """A command that refuses an option given twice, because one of the two would be lost."""

    get_params: Callable[[Any], list[Any]]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help into `formatter`."""
        write_help(self, ctx, formatter, GROUPS)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line. Newer releases of typer put what is required into braces."""
        pieces = cast("list[str]", super().collect_usage_pieces(ctx))  # type: ignore[misc]
        return [piece.removeprefix("{").removesuffix("}") if piece[:1] == "{" else piece for piece in pieces]

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)  # type: ignore[misc]
        parse = cast("Callable[..., Any]", parser.parse_args)
        for param in self.get_params(ctx):  # --help too
            if getattr(param, "_runtime_param", self) is None:
                param._runtime_param = _Plain()  # noqa: SLF001 - the one seam it has

        def parse_args(args: list[str]) -> Any:
            parsed = cast("tuple[Any, list[str], list[Any]]", parse(args=args))
            for param in parsed[2]:
                is_option = getattr(param, "param_type_name", "") == "option"
                if is_option and not param.multiple and parsed[2].count(param) > 1:
                    ctx.fail(f"{param.opts[0]} is given twice.")
            return parsed

        parser.parse_args = parse_args
        return cast("object", parser)


class Command(_Once, TyperCommand):
    """A typer command with options at most once."""


class Group(_Once, TyperGroup):
    """A typer group with options at most once."""


def _group(help_text: str | None) -> typer.Typer:
    """Return a group; without a text of its own its callback's is shown."""
    said: dict[str, Any] = {} if help_text is None else {"help": help_text}
    return typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, **said)


def version(json_: Json = False) -> None:
    """Print the version."""
    from forebay import __version__

    if json_:
        print_json({"version": __version__})
    else:
        say(f"forebay {__version__}")


def _version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def _root(
    version_: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The basin in front of your models: takes bursts as they come, feeds inference at the rate it can use.

    Exit codes: 0 good, 1 the answer is no, 2 usage, 3 cannot reach or start, 130 interrupted.
    """


def _build() -> typer.Typer:
    root = _group(None)
    root.callback()(_root)
    root.command("serve", cls=Command, rich_help_panel=RUN)(serve.serve)
    root.command("api", cls=Command, rich_help_panel=RUN)(apart.api)
    root.command("work", cls=Command, rich_help_panel=RUN)(apart.work)
    root.command("stream", cls=Command, rich_help_panel=RUN)(stream.stream)
    root.command("migrate", cls=Command, rich_help_panel=RUN)(migrate.migrate)
    root.command("conform", cls=Command, rich_help_panel=PLAN)(conform.conform)
    root.command("submit", cls=Command, rich_help_panel=WORK)(submit.submit)
    root.command("wait", cls=Command, rich_help_panel=WORK)(wait.wait)
    for name, module, help_text, panel in (
        ("jobs", jobs, "Jobs: list, show, watch, cancel, explain.", LOOK),
        ("blobs", blobs, "Large payloads and results: put, get, rm.", WORK),
        (
            "dead-letters",
            dead_letters,
            "Jobs that failed for good: list, show, redrive, purge; what is in quarantine.",
            LOOK,
        ),
        ("queues", queues, "Queues: list, pause, resume, drain.", LOOK),
        ("crons", crons, "Cron entries: list, pause, resume.", LOOK),
        ("keys", keys, "Keys: make one that lets in, or one that encrypts.", RUN),
        ("deploy", deploy, "Files to run it: compose, Kubernetes, AWS, systemd.", PLAN),
    ):
        group = _group(help_text)
        for command_name, function in module.COMMANDS.items():
            group.command(command_name, cls=Command)(function)
        root.add_typer(group, name=name, rich_help_panel=panel)
    root.command("erase", cls=Command, rich_help_panel=LOOK)(erase.erase)
    root.command("workers", cls=Command, rich_help_panel=LOOK)(queues.workers)
    root.command("nodes", cls=Command, rich_help_panel=LOOK)(queues.nodes)
    root.command("tasks", cls=Command, rich_help_panel=LOOK)(queues.tasks)
    root.command("top", cls=Command, rich_help_panel=LOOK)(top.top)
    root.command("doctor", cls=Command, rich_help_panel=LOOK)(doctor.doctor)
    root.command("verify", cls=Command, rich_help_panel=PLAN)(verify.verify)
    root.command("load", cls=Command, rich_help_panel=PLAN)(load.load)
    root.command("simulate", cls=Command, rich_help_panel=PLAN)(simulate.simulate)
    root.command("chaos", cls=Command, rich_help_panel=PLAN)(chaos.chaos)
    root.command("lint", cls=Command, rich_help_panel=PLAN)(lint.lint_command)
    root.command("size", cls=Command, rich_help_panel=PLAN)(size.size)
    root.command("version", cls=Command, rich_help_panel=LOOK)(version)
    return root


app = _build()
