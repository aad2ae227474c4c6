"""What a running server says of itself, as readings for the doctor."""

import ipaddress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forebay.cli.asked import Asked
from forebay.cli.explain import POOLS
from forebay.cli.options import connect
from forebay.cli.scrape import Sample, scrape
from forebay.cli.show import Stop
from forebay.cli.sizing_live import contradictions
from forebay.client.faults import problem_of
from forebay.client.plans import Plan
from forebay.client.wire import Answer, Call
from forebay.core.doctor.readings import Served
from forebay.core.sizing.findings import Finding
from forebay.errors import ForebayError, UnreachableError

UNREADY = 503
REASON_MAX = 500  # characters
View = dict[str, Any]


class Told(NamedTuple):
    """One server."""

    url: str
    here: bool  # it runs on this machine, as far as its address says
    tasks: list[Served]
    contradictions: list[Finding]  # of what is set there
    clock_ahead_s: float | None
    unready: str  # why it should get no new work; empty when it should
    unseen: list[str]


def ask_server(url: str | None, api_key: str | None) -> Told:
    """Ask a server for its tasks, queues, workers and metrics; what a key may not see is told as unseen.

    Raises ForebayError when it does not answer, Stop when it is of another version.
    """
    unseen: list[str] = []
    with connect(url, api_key) as client:
        tasks, queues = client.tasks(), {str(view["task"]): view for view in client.queues()}
        workers = _allowed("workers", client.workers, unseen)
        scraped = _allowed("metrics", lambda: scrape(client), unseen)
        unready = client.run(_unready())
        place = client.terms.url
    if any(view.get("bytes") is None for view in queues.values()):
        unseen.append("who holds what in the server's queues: the key is a tenant's")
    samples: list[Sample] = [] if scraped is None else scraped.samples
    try:
        return Told(
            place,
            _here(place),
            [_task(task, queues[str(task["task"])], workers, samples) for task in tasks],
            [found for task in tasks for found in contradictions(Asked({}), task, queues[str(task["task"])])],
            None if scraped is None else scraped.clock_ahead_s,
            unready,
            unseen,
        )
    except KeyError as error:
        raise Stop(f"the server does not tell {error}: it is of another version") from None


def _unready() -> Plan[str]:
    """Ask once whether the server is ready: "no" is an answer here, not a refusal to be waited out."""
    reply = yield Call("GET", "/readyz")
    if not isinstance(reply, Answer) or reply.status != UNREADY:
        return ""
    return str(problem_of(reply).get("reason") or "it says no more")[:REASON_MAX]


def _allowed(name: str, ask: Any, unseen: list[str]) -> Any:
    try:
        return ask()
    except UnreachableError:
        raise
    except ForebayError as error:
        unseen.append(f"the server's {name}: {error}")
        return None


def _here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _task(task: View, queue: View, workers: list[View] | None, samples: list[Sample]) -> Served:
    name, rates = str(task["task"]), queue["rates"]
    service: View = task["service"] or {}
    pools = POOLS if task["kind"] == "function" else ()
    mine = [one for one in workers or () if one["task"] == name or one["task"] in pools]
    crashes = [str(one["last_crash"]) for one in mine if one["last_crash"]]
    breaker = queue["breaker"]
    return Served(
        task=name,
        waiting=queue["depth"],
        running=queue["running"] or 0,  # null, as the bytes: a tenant's key is not told
        capacity=queue["capacity"],
        size_b=queue["bytes"] or 0,
        capacity_b=queue["bytes_capacity"],
        oldest_age_s=queue["oldest_age_s"],
        arrivals_per_s=rates["arrivals_per_s"],
        served_per_s=rates["capacity_per_s"],
        replicas=task["replicas"],
        ready=None
        if workers is None or task["kind"] == "upstream"
        else sum(one["state"] == "ready" for one in mine),
        restarts=sum(one["restarts"] for one in mine),
        last_crash=crashes[-1] if crashes else "",
        paused=queue["paused"],
        breaker="" if breaker is None else breaker["state"],
        fixed_s=service.get("fixed_s"),
        each_s=service.get("each_s"),
        batch_max=task["batch_max"],
        deadline_s=task["deadline_s"],
        stale=_total(samples, "inference_stale_commits_total", name),
    )


def _total(samples: list[Sample], name: str, task: str) -> int:
    return int(sum(one.value for one in samples if one.name == name and one.labels.get("task") == task))
