"""`forebay verify`: watch a server and say which stated targets hold, beside an earlier report."""

import json
import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from forebay.cli.options import ApiKey, Json, connect, seconds_of
from forebay.cli.scrape import Sample, scrape
from forebay.cli.show import Stop, clean, print_json, say, table
from forebay.cli.targets import Targets, targets_of
from forebay.core.verifying import QUANTILES, Look, Target, Verdict, judge, judge_times
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.client import Client

REPORT_MAX_B = 16 * 1024 * 1024
ANSWERS_MAX_S = 10.0  # after the last look, for the answers that are still to come


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server.")],
    targets: Annotated[str, typer.Option("--targets", metavar="FILE", help="TOML: what must hold.")],
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long to watch. [as the file says; 60s]")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="FILE", help="An earlier report, to print beside this one."),
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Keep the report there, for --before.")
    ] = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Watch a server and say which stated targets hold: bounds on its metrics, and on requests sent to it.

    Answers 1 when one does not hold, or nothing was seen of what it speaks of.
    """
    wanted = targets_of(targets)
    if for_ is not None:
        wanted = wanted._replace(for_s=seconds_of("--for", for_))
    earlier = _earlier(before)
    report = Watch(wanted, url, api_key).report(earlier)
    if save is not None:
        try:
            Path(save).write_text(json.dumps(report, indent=2) + "\n")
        except OSError as error:
            raise Stop(f"--save {clean(save, 200)}: {error.strerror}", 2) from None
    if json_:
        print_json(report)
    else:
        _print(report, earlier is not None)
    return 0 if report["good"] else 1


class Watch:
    """One watch over a server: `report` looks until the time is over."""

    def __init__(self, wanted: Targets, url: str, api_key: str | None) -> None:
        self._wanted, self._url, self._key = wanted, url, api_key
        self._looks: dict[str, list[Look]] = {target.name: [] for target in wanted.targets}
        self._times: dict[str, list[Future[float]]] = {name: [] for name in wanted.payloads}
        self._asked = self._missed = 0

    def report(self, earlier: dict[str, Any] | None) -> dict[str, Any]:
        """Watch, and return the verdicts as a document. Raises ForebayError when the first look fails."""
        began = time.time()
        with ExitStack() as stack:
            client = stack.enter_context(connect(self._url, self._key, "0s"))
            self._look(client)
            probes = self._probes(stack)
            ticks = max(1, math.floor(self._wanted.for_s / self._wanted.every_s))
            start = time.monotonic()
            for tick in range(1, ticks + 1):
                due = start + tick * self._wanted.every_s
                for target, pool, prober in probes:
                    payload = self._wanted.payloads[target.name]
                    self._times[target.name].append(pool.submit(_probe, prober, target, payload, due))
                time.sleep(max(0.0, due - time.monotonic()))
                self._again(client)
            ends_at = time.monotonic() + ANSWERS_MAX_S
            verdicts = [self._verdict(target, ends_at) for target in self._wanted.targets]
        good = not self._missed and all(one.met for one in verdicts)
        return {
            "good": good,
            "url": self._url,
            "at": datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
            "for_s": self._wanted.for_s,
            "looks": self._asked,
            "missed": self._missed,
            "targets": [_row(one, earlier) for one in verdicts],
        }

    def _probes(self, stack: ExitStack) -> "list[tuple[Target, ThreadPoolExecutor, Client]]":
        """Return what sends each probe, one at a time: the wait for its turn is in its time."""
        found: list[tuple[Target, ThreadPoolExecutor, Client]] = []
        for target in self._wanted.targets:
            if target.probe:
                client = stack.enter_context(connect(self._url, self._key, "0s"))
                pool = ThreadPoolExecutor(1, thread_name_prefix="forebay-probe")
                stack.callback(pool.shutdown, wait=False, cancel_futures=True)
                found.append((target, pool, client))
        return found

    def _again(self, client: "Client") -> None:
        try:
            self._look(client)
        except ForebayError:
            self._missed += 1

    def _look(self, client: "Client") -> None:
        self._asked += 1
        samples = scrape(client).samples
        now = time.monotonic()
        for target in self._wanted.targets:
            if target.metric:
                self._looks[target.name].append(_look(target, samples, now))

    def _verdict(self, target: Target, ends_at: float) -> Verdict:
        if not target.probe:
            return judge(target, self._looks[target.name])
        return judge_times(target, [_time(one, ends_at) for one in self._times[target.name]])


def _look(target: Target, samples: list[Sample], now: float) -> Look:
    name = f"{target.metric}_bucket" if target.take in QUANTILES else target.metric
    return Look(now, _series(samples, name, target), _series(samples, target.of, target) if target.of else {})


def _series(samples: list[Sample], name: str, target: Target) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(one.labels.items())): one.value
        for one in samples
        if one.name == name and all(one.labels.get(key) == value for key, value in target.labels)
    }


def _probe(client: "Client", target: Target, payload: object, due: float) -> float:
    """Return the seconds from when a request was due to its answer, infinity when that was not good."""
    time.sleep(max(0.0, due - time.monotonic()))
    try:
        client.predict(target.probe, payload)
    except ForebayError:
        return math.inf
    return time.monotonic() - due


def _time(answer: Future[float], ends_at: float) -> float:
    """Return the time of an answer, infinity when it is not there by then."""
    try:
        return answer.result(max(0.0, ends_at - time.monotonic()))
    except TimeoutError:
        return math.inf


def _row(verdict: Verdict, earlier: dict[str, Any] | None) -> dict[str, Any]:
    target = verdict.target
    row: dict[str, Any] = {
        "name": target.name,
        "of": target.metric or f"requests to {target.probe}",
        "take": target.take,
        "wanted": target.wanted,
        "value": _finite(verdict.value),
        "met": verdict.met,
        "worst": verdict.worst or None,
    }
    return row if earlier is None else {**row, "before": earlier.get(target.name)}


def _finite(value: float | None) -> float | str | None:
    """Return a value as JSON can say it: an answer that never was good is a text."""
    return value if value is None or math.isfinite(value) else "never"


def _earlier(name: str | None) -> dict[str, Any] | None:
    """Return the values of an earlier report by the names of their targets."""
    if name is None:
        return None
    try:
        with Path(name).open("rb") as file:
            document: object = json.loads(file.read(REPORT_MAX_B))
        rows = cast("dict[str, list[dict[str, Any]]]", document)["targets"]
        return {str(row["name"]): row["value"] for row in rows}
    except OSError as error:
        raise Stop(f"--before {clean(name, 200)}: {error.strerror}", 2) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Stop(f"--before {clean(name, 200)}: not a report of forebay verify", 2) from None


def _print(report: dict[str, Any], beside: bool) -> None:
    names = ["target", "wanted", *(["before"] if beside else []), "now", "holds"]
    rows: list[list[object]] = []
    for one in report["targets"]:
        now = _shown(one["value"]) + (f" ({one['worst']})" if one["worst"] else "")
        earlier = [_shown(one.get("before"))] if beside else []
        rows.append(
            [one["name"], f"{one['take']} {one['wanted']}", *earlier, now, "yes" if one["met"] else "NO"]
        )
    table(names, rows)
    missed = f", {report['missed']} of them not answered" if report["missed"] else ""
    held = sum(one["met"] for one in report["targets"])
    say(f"{held} of {len(rows)} targets hold; {report['looks']:,} looks{missed}")


def _shown(value: object) -> str:
    if value is None:
        return "not seen"
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
