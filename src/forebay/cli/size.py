"""`forebay size`: how large the queue, how many replicas: from flags, from arrivals, or of a server."""

from typing import Annotated

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import Json
from forebay.cli.show import Stop, clean, facts, print_json, say

Text = str | None


def size(
    peak: Annotated[Text, typer.Option(metavar="RATE", help='Arrivals at the peak, like "60/s".')] = None,
    arrivals: Annotated[
        Text,
        typer.Option(metavar="FILE_OR_URL", help="Times or counts as CSV or NDJSON; the peak is their p99."),
    ] = None,
    url: Annotated[Text, typer.Option(metavar="URL", help="Size the tasks of a running server.")] = None,
    api_key: Annotated[Text, typer.Option(metavar="KEY", help="The key to send. [FOREBAY_API_KEY]")] = None,
    task: Annotated[Text, typer.Option(metavar="TASK", help="Only this task of the server.")] = None,
    service: Annotated[
        Text, typer.Option(metavar="TIME", help='Time of one item, or "20ms+2ms": of a run and of each item.')
    ] = None,
    per_replica: Annotated[
        Text, typer.Option(metavar="RATE", help="What one replica does, instead of --service.")
    ] = None,
    batch_max: Annotated[Text, typer.Option(metavar="N", help="Items of one run. [1]")] = None,
    batch_wait: Annotated[Text, typer.Option(metavar="TIME", help="Wait for company. [0]")] = None,
    wait_max: Annotated[Text, typer.Option(metavar="TIME", help="Longest wait in line.")] = None,
    quantile: Annotated[
        Text, typer.Option(metavar="SHARE", help="Share that may not wait longer. [0.99]")
    ] = None,
    item_size: Annotated[Text, typer.Option(metavar="SIZE", help="Bytes of one item. [1KB]")] = None,
    replicas: Annotated[Text, typer.Option(metavar="N", help="Replicas there are: are they enough?")] = None,
    cpus: Annotated[Text, typer.Option(metavar="N", help="CPUs there are.")] = None,
    in_: Annotated[Text, typer.Option("--in", metavar="RATE", help="Growth: what comes.")] = None,
    out: Annotated[Text, typer.Option("--out", metavar="RATE", help="Growth: what is served.")] = None,
    for_: Annotated[Text, typer.Option("--for", metavar="TIME", help="Growth: how long.")] = None,
    queue_max: Annotated[Text, typer.Option(metavar="N", help="Jobs the queue may hold.")] = None,
    queue_bytes_max: Annotated[Text, typer.Option(metavar="SIZE", help="Bytes it may hold.")] = None,
    memory: Annotated[Text, typer.Option(metavar="SIZE", help="Memory the queue may use.")] = None,
    hpa_target: Annotated[
        Text, typer.Option(metavar="N", help="Waiting items for each replica that an autoscaler keeps.")
    ] = None,
    budget: Annotated[Text, typer.Option(metavar="RATE", help="What producers may send together.")] = None,
    lease: Annotated[Text, typer.Option(metavar="TIME", help="Lease of a job.")] = None,
    heartbeat: Annotated[
        Text, typer.Option(metavar="TIME", help="Time between its renewals. [it is not renewed]")
    ] = None,
    timeout: Annotated[Text, typer.Option(metavar="TIME", help="Timeout of one run.")] = None,
    p999: Annotated[Text, typer.Option(metavar="TIME", help="p99.9 of the runs.")] = None,
    ttl: Annotated[Text, typer.Option(metavar="TIME", help="How long a job may wait.")] = None,
    grace: Annotated[Text, typer.Option(metavar="TIME", help="What runs may take at a stop.")] = None,
    attempts: Annotated[Text, typer.Option(metavar="N", help="Attempts at most.")] = None,
    backoff: Annotated[Text, typer.Option(metavar="TIMES", help='Pauses: "1s,2s,4s".')] = None,
    health_check: Annotated[
        Text, typer.Option(metavar="TIME", help="Time between a load balancer's checks.")
    ] = None,
    unhealthy_after: Annotated[
        Text, typer.Option(metavar="N", help="Failed checks until it sends nothing more.")
    ] = None,
    drain: Annotated[
        Text, typer.Option(metavar="TIME", help="Until it cuts what a leaving replica has not answered.")
    ] = None,
    cooldown: Annotated[
        Text, typer.Option(metavar="TIME", help="Between two steps of an autoscaler.")
    ] = None,
    start: Annotated[Text, typer.Option(metavar="TIME", help="From its order to a replica's answer.")] = None,
    replicas_max: Annotated[Text, typer.Option(metavar="N", help="Replicas there can be.")] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print settings to paste.")] = False,
    json_: Json = False,
) -> int:
    """Size a queue and its replicas by Little's law and Erlang C, and find limits that contradict each other.

    Answers 1 when what there is does not do, or limits contradict each other.
    """
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    if toml and json_:
        raise Stop("--toml and --json cannot both be", 2)
    if url is None:
        from forebay.cli.sizing import answers
    else:  # it needs the client, which takes longer to import than everything else together
        from forebay.cli.sizing_live import live_answers as answers

    found = answers(Asked(given))
    if json_:
        print_json({"tasks": [one.document for one in found]} if url is not None else found[0].document)
    elif toml:
        from forebay.cli.sizing_text import toml_of

        for line in toml_of(found):
            say(clean(line))
    else:
        for number, one in enumerate(found):
            if number:
                say()
            facts(one.rows)
    return 0 if all(one.good for one in found) else 1
