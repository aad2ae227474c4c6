"""`forebay api` and `forebay work`: what `serve` does, apart, on an engine that processes share."""

from typing import Annotated

import typer

from forebay.cli.options import JsonLines

Text = str | None
Target = Annotated[str, typer.Argument(metavar="FILE_OR_MODULE[:app]", help="Where the App is.")]
Broker = Annotated[
    Text, typer.Option(metavar="URL", help="Engine that processes share, postgresql://… [FOREBAY_BROKER]")
]
Data = Annotated[
    Text, typer.Option(metavar="DIR", help="Directory of what this process keeps alone. [.forebay]")
]
Store = Annotated[
    Text, typer.Option(metavar="URL", help="What keeps the jobs behind a broker that only delivers.")
]
Grace = Annotated[
    Text, typer.Option(metavar="TIME", help="What is under way gets so long when it stops. [30s]")
]
Level = Annotated[Text, typer.Option(metavar="LEVEL", help="debug, info, warning or error. [info]")]


def api(
    target: Target,
    broker: Broker = None,
    store: Store = None,
    host: Annotated[Text, typer.Option(metavar="ADDRESS", help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[
        Text, typer.Option(metavar="PORT", help="Port to listen on; 0 takes a free one. [8080]")
    ] = None,
    data: Data = None,
    queue_max: Annotated[Text, typer.Option(metavar="N", help="Jobs one task may hold. [100000]")] = None,
    queue_bytes_max: Annotated[
        Text, typer.Option(metavar="SIZE", help="Bytes one task may hold. [1GiB]")
    ] = None,
    grace: Grace = None,
    log_level: Level = None,
    json_: JsonLines = False,
) -> int:
    """Take and answer jobs; nothing runs here: `forebay work` does that, on as many machines as needed."""
    from forebay.config import load_settings
    from forebay.node.roles import Role

    settings = load_settings(
        {
            "broker": broker,
            "store": store,
            "host": host,
            "port": port,
            "data": data,
            "queue_max": queue_max,
            "queue_bytes_max": queue_bytes_max,
            "grace": grace,
            "log_level": log_level,
            "log_format": "json" if json_ else None,
        }
    )
    from forebay import running

    return running.serve(target, settings, Role.API)


def work(
    target: Target,
    broker: Broker = None,
    store: Store = None,
    workers: Annotated[
        Text,
        typer.Option(
            metavar="N",
            help="Replicas of each class task, and size of the pool of functions. [GPUs, else CPUs]",
        ),
    ] = None,
    host: Annotated[
        Text, typer.Option(metavar="ADDRESS", help="Where health and metrics are shown. [127.0.0.1]")
    ] = None,
    port: Annotated[str, typer.Option(metavar="PORT", help="And on which port; 0 takes a free one.")] = "0",
    data: Data = None,
    grace: Grace = None,
    log_level: Level = None,
    json_: JsonLines = False,
) -> int:
    """Run the jobs that `forebay api` takes. Any number share a queue; what one held that died, others do."""
    from forebay.config import load_settings
    from forebay.node.roles import Role

    settings = load_settings(
        {
            "broker": broker,
            "store": store,
            "workers": workers,
            "host": host,
            "port": port,
            "data": data,
            "grace": grace,
            "log_level": log_level,
            "log_format": "json" if json_ else None,
        }
    )
    from forebay import running

    return running.serve(target, settings, Role.WORK)
