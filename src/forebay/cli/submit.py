"""`forebay submit`: one job, or many from lines."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from forebay.cli.options import (
    ApiKey,
    Json,
    Metadata,
    Rate,
    Url,
    budget_of,
    connect,
    deadline_of,
    instant_of,
    pairs,
    priority_of,
    rate_of,
    seconds_of,
    span_of,
)
from forebay.cli.show import Stop, clean, complain, estimate, print_json, readable, say

Text = str | None


def submit(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    payload: Annotated[
        Text,
        typer.Argument(
            metavar="PAYLOAD|@file|-",
            help="JSON, a file (one that is no text goes as a blob), or standard input.",
        ),
    ] = None,
    ndjson: Annotated[
        bool | None,
        typer.Option(
            "--ndjson/--one",
            help="One job per line, or one for the whole text. Without it: by the name (.ndjson, .jsonl), "
            "else lines when the first line is a whole JSON document and more follow.",
        ),
    ] = None,
    rate: Rate = None,
    budget: Annotated[
        Text,
        typer.Option(
            metavar="NAME",
            help="Share --rate with all who name this budget, like parallel runs.",
        ),
    ] = None,
    announce: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000_000,
            metavar="N",
            help="Announce N jobs first, and keep to the rate that is told; without PAYLOAD only that.",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=200, metavar="N", help="Calls in flight, for many.")
    ] = 16,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the results.")] = False,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for one result.")] = "24h",
    out: Annotated[
        Text,
        typer.Option(
            metavar="FILE",
            help="One JSON line per item; - is standard output. The same command continues it.",
        ),
    ] = None,
    priority: Annotated[
        Text, typer.Option(metavar="PRIORITY", help="high, normal, low, or 0 (most urgent) to 9.")
    ] = None,
    ttl: Annotated[Text, typer.Option(metavar="TIME", help="How long it may wait in the queue.")] = None,
    deadline: Annotated[
        Text, typer.Option(metavar="TIME", help="When it must be done: 5m, or RFC 3339.")
    ] = None,
    run_at: Annotated[Text, typer.Option(metavar="TIME", help="Not before: RFC 3339.")] = None,
    ordering_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Jobs of one task with the same key run one at a time, in order."),
    ] = None,
    attempts_max: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="How often it is tried.")
    ] = None,
    callback_url: Annotated[
        Text, typer.Option(metavar="URL", help="Told when the job has ended, signed.")
    ] = None,
    metadata: Metadata = None,
    idempotency_key: Annotated[
        Text,
        typer.Option(metavar="KEY", help="The same key is the same job. Of many: each line's begins so."),
    ] = None,
    retry_for: Annotated[
        str, typer.Option(metavar="TIME", help="How long refusals and outages are waited out.")
    ] = "5m",
    url: Url = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Submit a job, or many.

    Many are keyed by file, line and content: interrupted and started again, the same command makes no job
    twice and goes on. Each job is one line on standard output (with --json one JSON line), or in --out; the
    counts are then on standard error, or on standard output. To submit the same lines once more as new
    jobs, name another --idempotency-key.
    """
    from forebay.cli.reading import open_input
    from forebay.client import arguments

    chosen = arguments.options(
        priority=priority_of(priority),
        ttl=span_of("--ttl", ttl),
        deadline=deadline_of(deadline),
        run_at=instant_of("--run-at", run_at),
        metadata=pairs(metadata),
        attempts_max=attempts_max,
        callback_url=callback_url,
        ordering_key=ordering_key,
    )
    rate_per_s = rate_of(rate)
    shared = budget_of(budget, rate)
    seconds_of("--retry-for", retry_for)
    timeout_s = seconds_of("--timeout", timeout)
    lines = ndjson if ndjson is not None or (rate is None and out is None) else True
    if announce is not None:
        with connect(url, api_key, retry_for, shared) as client:
            told = client.announce(task, announce)
        if payload is None:
            return _announced(told, json_)
        complain(told.message)
        rate_per_s = rate_per_s or told.rate_per_s
    found = open_input(payload, lines)
    if found.many is not None:
        from forebay.cli.many import Many

        many = Many(task, chosen, found, rate_per_s, concurrency, wait, out, idempotency_key, json_)
        return many.run(url, api_key, retry_for, shared)
    with connect(url, api_key, retry_for, shared) as client:
        text = found.one if found.blob is None else _uploaded(client, found)
        assert text is not None
        return _one(client, task, text, chosen, idempotency_key, timeout_s if wait else None, json_)


def _announced(told: Any, json_: bool) -> int:
    """Print what is to be expected; 1 where nothing can be said but no."""
    if json_:
        eta = None if told.eta is None else {"p50_s": told.eta.p50_s, "p90_s": told.eta.p90_s}
        print_json(told._asdict() | {"eta": eta})
    else:
        say(clean(told.message))
    return 0 if told.fits or told.rate_per_s is not None else 1


def _uploaded(client: Any, found: Any) -> bytes:
    """Store a file and return the payload that names it."""
    import json

    return json.dumps(client.put_blob(found.blob, found.media_type).reference()).encode()


def _one(
    client: Any, task: str, text: bytes, chosen: Any, key: str | None, timeout_s: float | None, json_: bool
) -> int:
    from forebay.client.encode import Raw
    from forebay.errors import InvalidError

    if key is not None and not (key.isascii() and key.isprintable()):
        raise Stop("--idempotency-key: must be printable ASCII without spaces", 2)
    try:
        job = client.submit(task, Raw(text), idempotency_key=key, **chosen._asdict())
    except InvalidError as error:
        raise Stop(str(error), 1) from None
    if timeout_s is None:
        _print_submitted(job, json_)
        return 0
    return _wait_for(client, job, timeout_s, json_)


def _print_submitted(job: Any, json_: bool) -> None:
    if json_:
        print_json(job.view)
        return
    say(f"{clean(job.job_id)}  {clean(job.status)}")
    eta = job.eta
    if eta is not None:
        place = f"place {eta.position} in line; " if eta.position is not None else ""
        say(f"{place}done in {estimate(job.view.get('eta'))}")


def _wait_for(client: Any, job: Any, timeout_s: float, json_: bool) -> int:
    complain_at: Callable[[], str] = lambda: (
        f"{job.job_id} goes on; `forebay jobs watch {job.job_id}` follows it"
    )
    try:
        job = client.ended(job.job_id, timeout=timeout_s)
    except KeyboardInterrupt:
        complain(complain_at())
        raise
    if json_:
        print_json(job.view)
    elif job.status == "COMPLETED":
        import sys

        result = job.result()
        if isinstance(result, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(result)
        else:
            say(readable(result))
    else:
        from forebay.cli.jobs import error_of

        why = error_of(job.view.get("error"))
        complain(f"{job.job_id} {job.status}{'' if why is None else f': {why}'}")
    return 0 if job.status == "COMPLETED" else 1
