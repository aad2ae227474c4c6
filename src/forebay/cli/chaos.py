"""`forebay chaos URL TASK`: break something on purpose while jobs run, and prove that none was lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import uuid4

import typer

from forebay.cli.asked import Asked
from forebay.cli.options import ApiKey, Json, connect
from forebay.cli.payloads import payload_of
from forebay.cli.show import Stop, clean, facts, print_json
from forebay.core.sizing import words
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.client import Client

JOBS, JOBS_MAX = 200, 10_000
LOOK_S = 0.05
CHILD = b"forebay.child"  # in the command line of what may be hit
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "EXPIRED"})
FAULTS = ("kill", "slow", "poison", "squeeze")
Text = str | None
View = dict[str, Any]


class Hit(NamedTuple):
    """What was done, to whom, and how long until it was seen and mended; None: it never was."""

    fault: str
    what: str
    reaction_s: float | None


def chaos(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, on this machine.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="Whose jobs.")],
    payload: Annotated[
        Text, typer.Argument(metavar="PAYLOAD", help="Of each: JSON, or @FILE. [null]")
    ] = None,
    fault: Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(FAULTS)}.")] = "kill",
    jobs: Annotated[Text, typer.Option(metavar="N", help="So many. [200]")] = None,
    for_: Annotated[Text, typer.Option("--for", metavar="TIME", help="Of slow and squeeze. [3s]")] = None,
    poison: Annotated[Text, typer.Option(metavar="JSON", help="A payload that kills its worker.")] = None,
    timeout: Annotated[Text, typer.Option(metavar="TIME", help="For all jobs to end. [2m]")] = None,
    api_key: ApiKey = None,
    json_: Json = False,
) -> int:
    """Submit jobs, break something while they run, and count what became of every one of them.

    kill: SIGKILL to a worker. slow: a worker stands still for a time. poison: one payload kills what runs it.
    squeeze: every CPU is busy with something else. Not for a server that people depend on. Answers 1 when a
    job was lost, failed or did not end.
    """
    if fault not in FAULTS:
        raise Stop(f"--fault: {fault!r} is none of {', '.join(FAULTS)}", 2)
    if (fault == "poison") != (poison is not None):
        raise Stop("--fault poison and --poison go together", 2)
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    asked = Asked(given)
    count = asked.count("jobs", JOBS_MAX) or JOBS
    lasts_s, ends_s = asked.seconds("for_") or 3.0, asked.seconds("timeout") or 120.0
    value, deadly = payload_of(payload), payload_of(poison)
    with connect(url, api_key, "10s") as client:
        trial = Trial(client, task, f"chaos-{uuid4().hex[:12]}")
        trial.submit([value] * count)
        if fault == "poison":
            hit = trial.poison(deadly, ends_s)
        else:
            hit = trial.hit(fault, lasts_s, ends_s)
        report = trial.report(hit, ends_s)
    if json_:
        print_json(report)
    else:
        _print(report)
    return 0 if report["good"] else 1


class Trial:
    """One trial: jobs that are known by their ids, and what is done to them."""

    def __init__(self, client: "Client", task: str, run: str) -> None:
        self._client, self._task, self._run = client, task, run
        self._ids: list[str] = []
        self._refused = 0
        self._poison: str | None = None
        self._began = time.monotonic()

    def submit(self, payloads: list[Any]) -> None:
        """Submit all. Raises the error of the first when none was taken."""
        verdicts = self._client.submit_many(self._task, payloads, metadata={"chaos": self._run})
        self._ids = [one.job_id for one in verdicts if one.job_id is not None]
        self._refused = len(verdicts) - len(self._ids)
        first = next((one.error for one in verdicts if one.error is not None), None)
        if not self._ids and first is not None:
            raise first

    def hit(self, fault: str, lasts_s: float, within_s: float) -> Hit:
        """Do it to a worker that runs one of them, and wait until it is mended."""
        worker = self._busy(within_s)
        pid, name = int(worker["pid"]), str(worker["worker"])
        if fault == "squeeze":
            with squeezed(os.cpu_count() or 1):
                began = time.monotonic()
                moved = self._moved(began, within_s)
                time.sleep(max(0.0, began + lasts_s - time.monotonic()))
            return Hit(fault, f"every CPU for {words.span(lasts_s)}", moved)
        began = time.monotonic()
        if fault == "kill":
            os.kill(pid, signal.SIGKILL)
            return Hit(fault, f"worker {name} (pid {pid})", self._again(name, pid, began, within_s))
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(lasts_s)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        began = time.monotonic()
        return Hit(
            fault, f"worker {name} (pid {pid}) for {words.span(lasts_s)}", self._moved(began, within_s)
        )

    def poison(self, payload: Any, within_s: float) -> Hit:
        """Submit it among them, and wait until it alone is given up."""
        began = time.monotonic()
        job = self._client.submit(self._task, payload, metadata={"chaos": self._run}, priority="high")
        self._poison = job.job_id
        while time.monotonic() - began < within_s:
            if self._client.get(job.job_id, wait=1.0).status in ENDED:
                return Hit("poison", f"job {job.job_id}", time.monotonic() - began)
        return Hit("poison", f"job {job.job_id}", None)

    def report(self, hit: Hit, within_s: float) -> View:
        """Wait for the end of all, and return what became of them."""
        views = self._ends(within_s)
        by_status: dict[str, int] = {}
        for one in views.values():
            by_status[str(one.get("status"))] = by_status.get(str(one.get("status")), 0) + 1
        lost = [one for one in self._ids if one not in views]
        good = not lost and by_status.get("COMPLETED", 0) == len(self._ids)
        ended_well = self._poison is None or self._client.get(self._poison).status == "FAILED"
        return {
            "good": good and ended_well and hit.reaction_s is not None,
            "run": self._run,
            "fault": hit.fault,
            "hit": hit.what,
            "reaction_s": hit.reaction_s,
            "accepted": len(self._ids),
            "refused": self._refused,
            "by_status": by_status,
            "lost": lost,
            "again": sum(int(one.get("attempt") or 0) > 1 for one in views.values()),
            "took_s": round(time.monotonic() - self._began, 3),
        }

    def _ends(self, within_s: float) -> dict[str, View]:
        """Return the jobs by their ids as they are when all have ended, or time is over."""
        end = time.monotonic() + within_s
        found: dict[str, View] = {}
        for job_id in self._ids:
            while True:
                try:
                    job = self._client.get(job_id, wait=min(5.0, max(0.0, end - time.monotonic())))
                except ForebayError:
                    break  # it is not known any more: lost
                found[job_id] = job.view
                if job.status in ENDED or time.monotonic() >= end:
                    break
        return found

    def _busy(self, within_s: float) -> View:
        """Return a worker of this machine that runs something of the task."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            for one in self._client.workers():
                mine = one.get("task") in {self._task, None} or str(one.get("task")).startswith("(")
                if mine and one.get("batch") and one.get("pid") and is_worker(int(one["pid"])):
                    return one
            if self._done():
                raise Stop("all jobs ended before a worker was seen at work: more --jobs, or slower ones", 1)
            time.sleep(LOOK_S)
        raise Stop("no worker of this machine runs a job of it", 1)

    def _done(self) -> bool:
        return self._client.get(self._ids[-1]).status in ENDED

    def _again(self, name: str, pid: int, began: float, within_s: float) -> float | None:
        """Return how long it took until another process serves in its place."""
        while time.monotonic() - began < within_s:
            for one in self._client.workers():
                if (
                    one.get("worker") == name
                    and one.get("pid") not in {pid, None}
                    and one.get("state") == "ready"
                ):
                    return time.monotonic() - began
            time.sleep(LOOK_S)
        return None

    def _moved(self, began: float, within_s: float) -> float | None:
        """Return how long it took until another of the jobs had ended."""
        before = self._left()
        while time.monotonic() - began < within_s:
            if before == 0 or self._left() < before:
                return time.monotonic() - began
            time.sleep(LOOK_S)
        return None

    def _left(self) -> int:
        queue = self._client.queue(self._task)
        return int(queue.get("depth") or 0) + int(queue.get("running") or 0)


def is_worker(pid: int) -> bool:
    """Say whether a process of this machine is a worker of Forebay's: nothing else is ever hit."""
    try:
        return CHILD in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def squeezed(cpus: int) -> "Generator[None]":
    """Keep so many CPUs busy for as long as it lasts; what does it dies with us."""
    code = "import os, sys\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100000))"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(cpus)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
        for one in busy:
            one.wait()


def _print(report: View) -> None:
    reaction = report["reaction_s"]
    rows = [
        ("fault", f"{report['fault']}: {report['hit']}"),
        ("reaction", "none was seen in time" if reaction is None else words.span(reaction)),
        (
            "accepted",
            f"{report['accepted']:,}" + (f", {report['refused']:,} refused" if report["refused"] else ""),
        ),
        ("ended", ", ".join(f"{count:,} {status}" for status, count in sorted(report["by_status"].items()))),
        ("lost", f"{len(report['lost']):,}"),
        ("again", f"{report['again']:,} ran more than once"),
        (
            "verdict",
            "every job reached its end" if report["good"] else "NOT every job reached its end as it should",
        ),
    ]
    facts([(name, clean(value)) for name, value in rows])
