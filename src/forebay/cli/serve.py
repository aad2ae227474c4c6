"""`forebay serve`: parse, check, hand over."""

from typing import Annotated

import typer

from forebay.cli.options import JsonLines

Text = str | None


def serve(
    target: Annotated[str, typer.Argument(metavar="FILE_OR_MODULE[:app]", help="Where the App is.")],
    host: Annotated[Text, typer.Option(metavar="ADDRESS", help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[
        Text, typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one. [8080]")
    ] = None,
    workers: Annotated[
        Text,
        typer.Option(
            metavar="N",
            help="Replicas of each class task, and size of the pool of functions. [GPUs, else CPUs]",
        ),
    ] = None,
    broker: Annotated[Text, typer.Option(metavar="URL", help="Engine. [embedded store under --data]")] = None,
    store: Annotated[
        Text, typer.Option(metavar="URL", help="What keeps the jobs behind a broker that only delivers.")
    ] = None,
    data: Annotated[
        Text, typer.Option(metavar="DIR", help="Directory of the embedded store. [.forebay]")
    ] = None,
    queue_max: Annotated[Text, typer.Option(metavar="N", help="Jobs one task may hold. [100000]")] = None,
    queue_bytes_max: Annotated[
        Text, typer.Option(metavar="SIZE", help="Bytes one task may hold. [1GiB]")
    ] = None,
    grace: Annotated[
        Text, typer.Option(metavar="TIME", help="What running jobs get when the server stops. [30s]")
    ] = None,
    retention: Annotated[
        Text, typer.Option(metavar="TIME", help="How long a job is kept after its end. [24h]")
    ] = None,
    retention_failed: Annotated[
        Text, typer.Option(metavar="TIME", help="How long a dead letter is kept. [7d]")
    ] = None,
    log_level: Annotated[
        Text, typer.Option(metavar="LEVEL", help="debug, info, warning or error. [info]")
    ] = None,
    json_: JsonLines = False,
) -> int:
    """Serve an App: API, embedded store and workers in one command."""
    from forebay.config import load_settings

    settings = load_settings(
        {
            "host": host,
            "port": port,
            "workers": workers,
            "broker": broker,
            "store": store,
            "data": data,
            "queue_max": queue_max,
            "queue_bytes_max": queue_bytes_max,
            "grace": grace,
            "retention": retention,
            "retention_failed": retention_failed,
            "log_level": log_level,
            "log_format": "json" if json_ else None,
        }
    )
    from forebay import running

    code: int = running.serve(target, settings)
    return code
