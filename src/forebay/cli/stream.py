"""`forebay stream`: run a pipeline of frames, with a line of what it does each second."""

import sys
from typing import Annotated

import typer

from forebay.cli.options import Json
from forebay.cli.show import Stop, clean, complain, print_json, say

Text = str | None


def stream(
    target: Annotated[
        str, typer.Argument(metavar="FILE_OR_MODULE[:pipeline]", help="Where the Pipeline is.")
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]ADDRESS",
            help="A file, rtsp://…, kafka://HOST:PORT/TOPIC or push://HOST:PORT. May be repeated.",
        ),
    ] = None,
    for_: Annotated[Text, typer.Option("--for", metavar="TIME", help="How long. [until it ends]")] = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="What waits gets so long when it is stopped.")
    ] = "10s",
    port: Annotated[
        Text,
        typer.Option(metavar="PORT", help="Show /v1/streams and /metrics on loopback; 0 takes a free port."),
    ] = None,
    data: Annotated[
        Text, typer.Option(metavar="DIR", help="Where `forebay serve` looks for what runs. [.forebay]")
    ] = None,
    drop_max: Annotated[
        Text, typer.Option(metavar="SHARE", help="Exit with 1 when more was dropped, for example 0.001.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line each second.")] = False,
    json_: Json = False,
) -> int:
    """Run a pipeline on sources until they end or it is stopped; say what became of every frame."""
    from forebay.config import data_directory, load_settings
    from forebay.errors import ForebayError
    from forebay.pipeline.command import Wanted, run
    from forebay.pipeline.live import lines_of

    if not source:
        raise Stop("--source is needed: a file, rtsp://…, kafka://HOST:PORT/TOPIC or push://HOST:PORT", 2)
    most = _share(drop_max)
    settings = load_settings({"data": data})
    wanted = Wanted(
        target=target,
        sources=source,
        data=data_directory(settings),
        for_s=None if for_ is None else _seconds("--for", for_),
        grace_s=_seconds("--grace", grace),
        port=None if port is None else _port(port),
        push_token=None if settings.push_token is None else settings.push_token.reveal(),
    )
    terminal = sys.stderr.isatty()

    def live(line: str) -> None:
        if not quiet:
            start, end = ("\r\x1b[K", "") if terminal else ("", "\n")
            print(start + clean(line), end=end, file=sys.stderr, flush=True)

    try:
        report = run(wanted, say=complain, live=live)
    except (ForebayError, Stop):
        raise
    except Exception as error:
        raise Stop(f"a source failed: {type(error).__name__}: {error}", 1) from None
    finally:
        if terminal and not quiet:
            print(file=sys.stderr)
    if json_:
        print_json(report.as_json())
    else:
        for line in lines_of(report):
            say(clean(line))
    return 1 if most is not None and report.drop_ratio > most else 0


def _seconds(option: str, text: str) -> float:
    from forebay.core.units import duration_s

    try:
        return duration_s(text)
    except ValueError as error:
        raise Stop(f"{option}: {error}", 2) from None


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Stop(f"--drop-max must be a share from 0 to 1, such as 0.001, not {text!r:.60}", 2)
    return share


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:6]) <= 65_535):
        raise Stop(f"--port must be a whole number from 0 to 65535, not {text!r:.60}", 2)
    return int(text)
