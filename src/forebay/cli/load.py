"""`forebay load URL TASK`: requests, jobs or frames that come when they are due, and what became of them."""

import asyncio
import json
import random
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import ApiKey, Json
from forebay.cli.payloads import payload_of
from forebay.cli.show import Stop, clean, facts, print_json, say
from forebay.core.loading import PROFILES, Report, Shape, Shot, report, schedule
from forebay.core.sizing import words

Text = str | None
CONNECTIONS = 256
GIVE_UP_S = 10.0
_BYTES = "application/octet-stream"


class Request(NamedTuple):
    """What is sent again and again."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


def load(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server.")],
    task: Annotated[Text, typer.Argument(metavar="TASK", help="Which task; or --stream.")] = None,
    payload: Annotated[Text, typer.Argument(metavar="PAYLOAD", help="JSON, or @FILE. [null]")] = None,
    rate: Annotated[Text, typer.Option(metavar="RATE", help='How many come, like "300/s".')] = None,
    for_: Annotated[Text, typer.Option("--for", metavar="TIME", help="How long. [10s]")] = None,
    profile: Annotated[
        Text, typer.Option(metavar="NAME", help=f"{', '.join(PROFILES)}. [poisson; burst with --burst]")
    ] = None,
    burst: Annotated[Text, typer.Option(metavar="N", help="So many at once, instead of --rate.")] = None,
    every: Annotated[Text, typer.Option(metavar="TIME", help="And again each so long, within --for.")] = None,
    deadline: Annotated[Text, typer.Option(metavar="TIME", help="A later answer is not good.")] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Submit jobs; without it requests are sent.")] = False,
    stream: Annotated[Text, typer.Option(metavar="NAME", help="Send frames to this stream.")] = None,
    size: Annotated[Text, typer.Option(metavar="SIZE", help="Bytes of one frame. [64KB]")] = None,
    connections: Annotated[Text, typer.Option(metavar="N", help="At once. [256]")] = None,
    give_up: Annotated[Text, typer.Option(metavar="TIME", help="Wait for an answer. [10s]")] = None,
    goodput_min: Annotated[
        Text, typer.Option(metavar="RATE", help="Answer 1 when less was good, like 250/s.")
    ] = None,
    seed: Annotated[Text, typer.Option(metavar="N", help="The same arrivals again.")] = None,
    save: Annotated[Text, typer.Option(metavar="FILE", help="Keep the report there.")] = None,
    locustfile: Annotated[
        Text, typer.Option(metavar="FILE", help="Write a locust file for it; send nothing.")
    ] = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Send a load that does not wait for answers: a server that is slow meets all that comes.

    Latency counts from when a request was due. Good is an answer below 300 within --deadline.
    """
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    asked = Asked(given)
    asks = _request(asked, jobs=jobs)
    if locustfile is not None:
        return _write_locust(locustfile, url, asks)
    shape = shape_of(asked)
    try:
        due = schedule(shape, random.Random(asked.count("seed")).random)
    except ValueError as error:
        raise Stop(str(error), 2) from None
    done = _sent(asked, url, asks, due)
    told = report(done, deadline_s=asked.seconds("deadline"), for_s=shape.for_s)
    document = _document(told)
    if save is not None:
        _keep(save, json.dumps(document, indent=2) + "\n")
    if json_:
        print_json(document)
    else:
        _print(told)
    least = asked.rate("goodput_min")
    return 1 if told.answered == 0 or (least is not None and told.goodput_per_s < least) else 0


def shape_of(asked: Asked) -> Shape:
    """Return the load that the flags say. Raises Stop for flags that say too little, or contradict."""
    rate, burst = asked.rate("rate"), asked.count("burst", 1_000_000)
    for_s, every_s = asked.seconds("for_"), asked.seconds("every")
    profile = asked.text("profile") or ("burst" if burst else "poisson")
    if profile not in PROFILES:
        raise Stop(f"--profile: {profile!r} is none of {', '.join(PROFILES)}", 2)
    if (profile == "burst") != (burst is not None):
        raise Stop("--profile burst and --burst go together", 2)
    if burst is not None:
        if rate is not None:
            raise Stop("--burst and --rate cannot both say how many come", 2)
        return Shape("burst", burst=burst, every_s=every_s or 0.0, for_s=(for_s or 10.0) if every_s else 0.0)
    if not rate:
        raise Stop("say --rate or --burst (see --help)", 2)
    if every_s is not None:
        raise Stop("--every needs --burst", 2)
    return Shape(profile, rate_per_s=rate, for_s=for_s or 10.0)


def _request(asked: Asked, *, jobs: bool) -> Request:
    """Return what each request is."""
    task, stream = asked.text("task"), asked.text("stream")
    if (task is None) == (stream is None):
        raise Stop("say a TASK, or --stream NAME", 2)
    if stream is not None:
        if jobs:
            raise Stop("--jobs and --stream cannot both be", 2)
        frame = bytes(asked.bytes("size") or 64_000)
        return Request("PUT", f"/v1/streams/{_part(stream)}", [("content-type", _BYTES)], frame)
    if asked.has("size"):
        raise Stop("--size needs --stream", 2)
    value = payload_of(asked.text("payload"))
    headers = [("content-type", "application/json")]
    if jobs:
        body = json.dumps({"task": task, "payload": value}).encode()
        return Request("POST", "/v1/jobs", headers, body)
    deadline_s = asked.seconds("deadline")
    if deadline_s is not None:
        headers.append(("x-request-timeout", f"{deadline_s:.6f}"))
    return Request("POST", f"/v1/predict/{_part(str(task))}", headers, json.dumps(value).encode())


def _part(name: str) -> str:
    return quote(name, safe="")


def _link(url: str, api_key: str | None) -> dict[str, str]:
    """Return the headers that let us in. Raises ConfigError for a URL or a key that cannot be one."""
    from forebay.client.transport import link
    from forebay.config import load_settings

    settings = load_settings({"api_key": api_key})
    key = settings.api_key.reveal() if settings.api_key is not None else None
    headers = link(url, key, 30.0).headers
    return {name: value for name, value in headers.items() if name in {"authorization", "user-agent"}}


def _sent(asked: Asked, url: str, asks: Request, due: list[float]) -> list[Shot]:
    import uvloop

    from forebay.client.openloop import CONNECTIONS_MAX, OpenLoop, Target

    target = Target(url, asks.path, [*asks.headers, *_link(url, asked.text("api_key")).items()])
    most = asked.count("connections", CONNECTIONS_MAX) or CONNECTIONS
    give_up_s = asked.seconds("give_up") or GIVE_UP_S

    async def run() -> list[Shot]:
        loop = OpenLoop(target, connections=most, give_up_s=give_up_s)
        return await loop.run(target.request(asks.method, asks.body), due)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _document(told: Report) -> dict[str, Any]:
    found = told._asdict()
    found["offered_per_s"] = None if told.offered_per_s == float("inf") else told.offered_per_s
    return {**found, "generator_lags": told.generator_lags}


def _print(told: Report) -> None:
    once = told.offered_per_s == float("inf")
    rows = [
        ("due", f"{told.due:,}, {'at once' if once else words.rate(told.offered_per_s)}"),
        ("answered", ", ".join(f"{count:,} x {name}" for name, count in told.by_status.items())),
        ("good", f"{told.good:,} in {words.span(told.seconds)}: {words.rate(round(told.goodput_per_s, 1))}"),
        ("latency", _quantiles(told.good_s) or "none was good"),
        ("refused", _quantiles(told.refused_s)),
    ]
    facts([row for row in rows if row[1]])
    if told.generator_lags:
        say(f"left late by {words.span(told.lag_s)} (p99): this generator, or --connections, cannot keep up")


def _quantiles(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {words.span(value)}" for name, value in found.items())


def _keep(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stop(f"{clean(name, 200)}: {error.strerror}", 2) from None


LOCUST = '''"""Load for locust: jobs or requests at {url}. locust -f THIS_FILE --host {url}

Waits as the server asks: Retry-After of a refusal is kept to, and a refusal is no failure.
"""

import os
import time

from locust import HttpUser, constant_throughput, task

BODY = {body!r}
HEADERS = {{"Content-Type": "application/json"}}
if os.environ.get("FOREBAY_API_KEY"):
    HEADERS["Authorization"] = "Bearer " + os.environ["FOREBAY_API_KEY"]


class Caller(HttpUser):
    wait_time = constant_throughput(1)

    @task
    def call(self):
        with self.client.request(
            "{method}", "{path}", data=BODY, headers=HEADERS, name="{path}", catch_response=True
        ) as answer:
            if answer.status_code in (429, 503):
                answer.success()
                time.sleep(float(answer.headers.get("retry-after-ms", 1000)) / 1000)
            elif answer.status_code >= 300:
                answer.failure(answer.text[:200])
'''


def _write_locust(name: str, url: str, asks: Request) -> int:
    if Path(name).exists():
        raise Stop(f"{clean(name, 200)} is there already", 1)
    _keep(name, LOCUST.format(url=url, method=asks.method, path=asks.path, body=asks.body))
    say(clean(name))
    return 0
