"""Rules over how processes are started: systemd units, and command lines of gunicorn wherever they stand."""

import re
from collections.abc import Iterator
from typing import Final

from forebay.core.linting.containers import seconds_of
from forebay.core.linting.findings import Known, Lint

_GUNICORN: Final = re.compile(r"\bgunicorn\b(?!\.)")
_WORKERS: Final = re.compile(r"(?:-w|--workers)[ =\",']+(\S+?)[\"',\]]*(?:\s|$)")
_CLASS: Final = re.compile(r"(?:-k|--worker-class)[ =\",']+([\w.]+)")
_DOUBLED: Final = re.compile(r"2\s*\*|\*\s*2")
_STARTS: Final = re.compile(
    r"^\s*(?:ExecStart\s*=|CMD\b|ENTRYPOINT\b|exec\b|command:|\w[\w-]*:|-\s|\[|gunicorn\b|/|\S*bin/)"
)


def command_rules(text: str) -> Iterator[Lint]:
    """Yield what is wrong with the command lines of gunicorn in a file; lines that go on count as one."""
    for number, line in _whole_lines(text):
        if _GUNICORN.search(line) and _STARTS.match(line) and not line.lstrip().startswith("#"):
            yield from _gunicorn(number, line)


def _gunicorn(number: int, line: str) -> Iterator[Lint]:
    workers, classes = _WORKERS.findall(line + " "), _CLASS.findall(line)
    if "-c " not in line and "--config" not in line and (not workers or workers[-1] == "1"):
        yield Lint(
            "gunicorn-one-worker",
            number,
            "gunicorn with one worker: the other CPUs idle",
            "-w with one for each CPU (async), 2 x CPUs + 1 (sync)",
        )
    if len(classes) > 1:
        yield Lint(
            "gunicorn-class-twice",
            number,
            f"worker classes {' and '.join(classes)}: {classes[-1]} wins",
            "name one",
        )
    is_async = any("uvicorn" in one.lower() or one in {"gevent", "eventlet"} for one in classes)
    if is_async and _DOUBLED.search(line[line.find("-w") :] if "-w" in line else line):
        yield Lint("gunicorn-async-workers", number, f"2 x CPUs + 1 workers of {classes[-1]}", "-w $(nproc)")


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, kept = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun if kept else number
        if line.endswith("\\"):
            kept += line[:-1] + " "
            continue
        yield begun, kept + line
        kept = ""
    if kept:
        yield begun, kept


def unit_rules(text: str, known: Known) -> Iterator[Lint]:
    """Yield what is wrong with a systemd unit, its gunicorn included."""
    yield from command_rules(text)
    told = {
        name.strip(): (number, value.strip())
        for number, line in _whole_lines(text)
        for name, sign, value in (line.partition("="),)
        if sign and not line.lstrip().startswith(("#", ";"))
    }
    start = told.get("ExecStart")
    if start is None or not re.search(r"\b(forebay|gunicorn|uvicorn)\b", start[1]):
        return
    if told.get("Restart", (0, "no"))[1] == "no" and told.get("Type", (0, ""))[1] != "oneshot":
        yield Lint(
            "unit-stays-down",
            start[0],
            "no Restart=: after a crash it stays down",
            "Restart=always, RestartSec=1",
        )
    stop = told.get("TimeoutStopSec")
    stop_s = None if stop is None else seconds_of(stop[1])
    if stop is not None and stop_s is not None and stop_s <= known.grace_s and "forebay" in start[1]:
        yield Lint(
            "unit-grace-too-short",
            stop[0],
            f"killed {stop_s:g} s after it was asked to end, and its work has {known.grace_s:g} s",
            f"TimeoutStopSec={known.grace_s + 15:g}",
        )
