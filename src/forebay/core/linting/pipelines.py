"""Rules over pipelines: GitLab CI and GitHub Actions that call an inference server."""

import math
import re
from collections.abc import Iterator
from typing import Final

from forebay.core.linting.findings import Lint
from forebay.core.linting.outline import Entry, below, yaml_documents

_SENDS: Final = re.compile(
    r"\b(curl|wget|http|httpie|hey|wrk|ab|k6|vegeta|locust|xargs|python3?|forebay\s+submit)\b.*"
    r"(/v1/(jobs|predict)|/predict|/infer|/inference|/generate|/completions|inference|forebay\s+submit)"
    r"|\bforebay\s+submit\b",
    re.IGNORECASE,
)
_PACED: Final = re.compile(r"rate[_-]?limit|--rate[ =]|--budget[ =]|forebay-budget", re.IGNORECASE)
_SHARED: Final = re.compile(r"--budget[ =]|forebay-budget", re.IGNORECASE)
_NAMED: Final = re.compile(r"infer|predict", re.IGNORECASE)
_LOOP: Final = re.compile(r"\b(for|while|seq)\b")
_SLEEP: Final = re.compile(r"\bsleep\s+[\d.]+")
_RESERVED: Final = frozenset(
    {"stages", "variables", "default", "workflow", "include", "image", "services", "cache"}
)


def pipeline_rules(text: str) -> Iterator[Lint]:
    """Yield what is wrong with the jobs of a pipeline."""
    for entries in yaml_documents(text):
        shared = [one for one in entries if one.path[:1] in {("variables",), ("env",)}]
        for root in _jobs(entries):
            yield from _job(root, below(entries, root), shared)


def _jobs(entries: list[Entry]) -> list[tuple[str, ...]]:
    """Return where the jobs are: below `jobs` of GitHub, else at the top of GitLab."""
    github = [one.path[:2] for one in entries if one.path[:1] == ("jobs",) and len(one.path) > 1]
    found = github or [one.path[:1] for one in entries if one.path and one.path[0] not in _RESERVED]
    return list(dict.fromkeys(found))


def _job(root: tuple[str, ...], entries: list[Entry], shared: list[Entry]) -> Iterator[Lint]:
    name = root[-1]
    said = [one for one in entries if _SENDS.search(one.value)]
    stage = next((one for one in entries if one.path == (*root, "stage")), None)
    named = [entries[0]] if _NAMED.search(name) or (stage is not None and _NAMED.search(stage.value)) else []
    runs = any(one.path[len(root) :][:1] in {("script",), ("steps",), ("before_script",)} for one in entries)
    if not runs or not (said or named):
        return
    at = (said or named)[0]
    everything = "\n".join(f"{one.key}: {one.value}" for one in (*entries, *shared))
    if not _PACED.search(everything):
        yield Lint(
            "ci-no-rate-limit",
            at.line,
            f"{name} sends to an inference server as fast as it can",
            "forebay submit --rate 300/s --budget ci, or a rate_limit that its script keeps",
        )
    elif (times := _at_once(root, entries)) > 1 and not _SHARED.search(everything):
        yield Lint(
            "ci-rate-times-jobs",
            at.line,
            f"{times} jobs of {name} run at once, and each keeps the rate alone",
            f"--budget ci: one rate for all of them, or a {times}th of it for each",
        )
    script = "\n".join(one.value for one in entries)
    sleeps = next((one for one in entries if _SLEEP.search(one.value)), None)
    if sleeps is not None and said and _LOOP.search(script) and not _SHARED.search(everything):
        yield Lint(
            "ci-sleep-is-no-rate",
            sleeps.line,
            f"{name} sends in a loop and sleeps now and then",
            "forebay submit --rate, which spaces the calls and waits as the server asks",
        )


def _at_once(root: tuple[str, ...], entries: list[Entry]) -> int:
    """Return how many copies of a job run at once: `parallel: 3`, or the product of a matrix."""
    times, sizes = 1, list[int]()
    for entry in entries:
        tail = entry.path[len(root) :]
        if tail == ("parallel",) and entry.value.isdecimal():
            times = int(entry.value[:6])
        if "matrix" in tail and entry.value.startswith("["):
            sizes.append(max(1, entry.value.count(",") + 1))
    lists: dict[tuple[str, ...], int] = {}
    for entry in entries:
        tail = entry.path[len(root) :]
        if "matrix" in tail and tail[-1:] and tail[-1].isdecimal() and tail[-2:-1] != ("matrix",):
            lists[tail[:-1]] = lists.get(tail[:-1], 0) + 1
    return times * math.prod([*sizes, *lists.values()])
