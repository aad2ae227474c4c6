"""`forebay doctor`: what is wrong with machine, containers and server: cause, evidence, change."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import ApiKey, Json
from forebay.cli.show import Stop, clean, facts, print_json, say
from forebay.core.doctor import container_findings, host_findings, readiness_findings, served_findings
from forebay.core.doctor.readings import Container, Host
from forebay.core.sizing.findings import Finding
from forebay.host.containers import containers_of
from forebay.host.machine import read_host

WINDOW_S = 2.0
WINDOW_MAX_S = 600.0
TEXT_MAX_B = 64 * 1024 * 1024
ASK_MAX_S = 30.0  # of one call of docker


class Look(NamedTuple):
    """What was looked at, what was found, and what could not be seen and why."""

    findings: list[tuple[str, Finding]]  # of what, and what is wrong with it
    seen: list[str]
    unseen: list[str]


def doctor(
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The server. [FOREBAY_URL, else one on this machine if any]"
        ),
    ] = None,
    api_key: ApiKey = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long to watch the processors. [2s]")
    ] = None,
    pid: Annotated[
        str | None, typer.Option("--pid", metavar="PID", help="Look as this process is on the machine.")
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option("--container", metavar="NAME", help="Ask docker of it. May be repeated."),
    ] = None,
    inspect: Annotated[
        list[str] | None,
        typer.Option(
            "--inspect", metavar="FILE", help='What "docker inspect" or "docker stats --format json" printed.'
        ),
    ] = None,
    json_: Json = False,
) -> int:
    """Name what is wrong with this machine, its containers and the server, and the exact change.

    Answers 1 when something is wrong.
    """
    given = {"for": for_, "pid": pid}
    asked = Asked({name: text for name, text in given.items() if text is not None})
    window_s = asked.seconds("for") or WINDOW_S
    if window_s > WINDOW_MAX_S:
        raise Stop(f"--for: {for_!r} is more than {WINDOW_MAX_S:.0f}s", 2)
    containers = [one for text in _texts(container or [], inspect or []) for one in containers_of_text(text)]
    host = _host(window_s, asked.count("pid"))
    served = _served(url, api_key)
    look = _looked(host, containers, served)
    if json_:
        print_json(_document(look, host))
    else:
        _print(look)
    return 1 if look.findings else 0


def containers_of_text(text: str) -> list[Container]:
    """Return the containers in what docker printed. Raises Stop when it printed something else."""
    try:
        return containers_of(text)
    except ValueError as error:
        raise Stop(f"--inspect: {error}", 2) from None


def _texts(names: list[str], files: list[str]) -> list[str]:
    return [*(_file(name) for name in files), *(text for name in names for text in _docker(name))]


def _file(name: str) -> str:
    try:
        with open(0 if name == "-" else name, "rb") as file:
            found = file.read(TEXT_MAX_B + 1)
    except OSError as error:
        raise Stop(f"--inspect {clean(name, 200)}: {error.strerror}", 2) from None
    if len(found) > TEXT_MAX_B:
        raise Stop(f"--inspect {clean(name, 200)}: larger than {TEXT_MAX_B:,} bytes", 2)
    return found.decode(errors="replace")


def _docker(name: str) -> list[str]:
    """Return what docker says of one container."""
    program = shutil.which("docker")
    if program is None:
        raise Stop("--container: there is no docker here; --inspect FILE reads what it printed elsewhere", 2)
    said: list[str] = []
    for words in (["inspect", "--", name], ["stats", "--no-stream", "--format", "json", "--", name]):
        try:
            done = subprocess.run(
                [program, *words],
                capture_output=True,
                text=True,
                timeout=ASK_MAX_S,
                check=False,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Stop(f"docker {words[0]}: {clean(error, 200)}", 3) from None
        if done.returncode != 0:
            raise Stop(
                f"docker {words[0]} {clean(name, 100)}: {clean(done.stderr.strip() or 'failed', 300)}", 3
            )
        said.append(done.stdout)
    return said


def _host(window_s: float, pid: int | None) -> Host:
    from forebay.config import load_settings

    try:
        return read_host(window_s=window_s, watch=_watch, data=Path(load_settings().data), pid=pid)
    except ProcessLookupError:
        raise Stop(f"--pid: there is no process {pid}", 2) from None


def _watch(window_s: float) -> float:
    began = time.monotonic()
    time.sleep(window_s)
    return time.monotonic() - began


def _served(url: str | None, api_key: str | None) -> "Any":
    """Return what the server says; None when nobody named one and none answers here."""
    from forebay.cli.doctor_served import ask_server
    from forebay.errors import UnreachableError

    chosen = url is not None or bool(os.environ.get("FOREBAY_URL"))
    try:
        return ask_server(url, api_key)
    except UnreachableError:
        if chosen:
            raise
        return None


def _looked(host: Host, containers: list[Container], served: "Any") -> Look:
    seen, unseen = ["this machine"], []
    found: list[tuple[str, Finding]] = []
    if served is not None:
        host = host._replace(clock_ahead_s=served.clock_ahead_s)
    found += [("machine", one) for one in host_findings(host)]
    if host.cpu.quota is None:
        unseen.append("throttling: no CPU quota here")
    if not host.gpus:
        unseen.append(f"GPU: {host.gpus_unseen or 'none here'}")
    for one in containers:
        seen.append(f"container {one.name}")
        found += [("container", told) for told in container_findings(one, gpus_there=len(host.gpus))]
    if served is None:
        unseen.append("server: none named by --url, and none answers here")
    else:
        seen.append(f"server {served.url}")
        unseen += served.unseen
        gpus = host.gpus if served.here else ()
        of_tasks = [told for task in served.tasks for told in served_findings(task, gpus)]
        found += [("server", told) for told in readiness_findings(served.unready, of_tasks)]
        found += [("task", told) for told in of_tasks]
        found += [("settings", told) for told in served.contradictions]
    return Look(found, seen, unseen)


def _document(look: Look, host: Host) -> dict[str, Any]:
    return {
        "good": not look.findings,
        "findings": [
            {
                "of": of,
                "name": one.task or None,
                "cause": one.code,
                "evidence": one.evidence,
                "change": one.change,
            }
            for of, one in look.findings
        ],
        "seen": look.seen,
        "unseen": look.unseen,
        "host": _plain(host),
    }


def _plain(value: Any) -> Any:
    """Return records as objects with their names."""
    names: tuple[str, ...] | None = getattr(value, "_fields", None)
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if not isinstance(value, tuple):
        return value
    many: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
    return [_plain(one) for one in many]


def _print(look: Look) -> None:
    for number, (of, one) in enumerate(look.findings):
        if number:
            say()
        facts(
            ((of, one.task or None), ("cause", one.code), ("evidence", one.evidence), ("change", one.change))
        )
    if look.findings:
        say()
    say(clean(f"{len(look.findings) or 'nothing'} wrong; looked at: {', '.join(look.seen)}"))
    for line in look.unseen:
        say(clean(f"not seen: {line}"))
