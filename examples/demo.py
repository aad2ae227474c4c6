"""The demo: a stack of invoice pages, more than two workers can take, a killed worker, two bad pages.

    ./demo                      makes the environment and runs this
    python examples/demo.py     where Forebay and examples/requirements.txt are installed

Answers 0 when everything it promised held, 1 when something did not, 3 when it could not run, 130 when
interrupted. Nothing it started is left then, unless --keep asked for it.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from demo_burst import PAGES_MIN, QUEUE_MAX, TASK, WORKERS, Burst, make_items
from demo_report import Check, Figures, checks_of, figures_of
from demo_screen import make_screen
from demo_server import DemoError, DemoServer
from demo_text import report

from forebay.errors import ForebayError

PAGES_MAX = 500
GOOD, BROKEN, AWAY, INTERRUPTED = 0, 1, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("\ndemo: interrupted; everything it started has ended", file=sys.stderr)
        return INTERRUPTED
    except (DemoError, ForebayError, httpx.HTTPError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return AWAY


def _run(options: argparse.Namespace) -> int:
    print(f"rendering {options.pages} pages (seed {options.seed}), one bomb and one poison", flush=True)
    items = make_items(options.pages, options.seed)
    print(
        f"starting: forebay serve examples/demo_app.py --workers {WORKERS} --queue-max {QUEUE_MAX}"
        "   (each worker loads its networks)",
        flush=True,
    )
    with DemoServer(workers=WORKERS, queue_max=QUEUE_MAX) as server:
        print(f"ready: {server.url}   (to look at meanwhile: {server.url}/docs and /metrics)", flush=True)
        with make_screen() as screen:
            story = Burst(server.url, items, screen).run()
        figures = figures_of(
            story,
            restarts=server.metric("inference_worker_restarts_total", task=TASK),
            refusals=server.metric("inference_admission_total", task=TASK, decision="refused"),
        )
        checks = checks_of(figures)
        if options.keep:
            server.keep()
        else:
            checks.append(_stopped(server, figures))
        print(f"\n{report(figures, checks)}\n")
        _say_where(server, kept=options.keep)
        good = all(check.good for check in checks)
        if not good and not options.keep:
            print(f"\nlast lines of the server's log:\n{server.log_tail()}")
    if options.json is not None:
        _write(options.json, figures, checks)
    print("\neverything promised held" if good else "\nNOT everything promised held: see BROKEN above")
    return GOOD if good else BROKEN


def _stopped(server: DemoServer, figures: Figures) -> Check:
    code, took_s = server.stop()
    figures["stop"] = {"exit_code": code, "took_s": round(took_s, 2), "clean": server.clean}
    return Check("the server drains on SIGTERM and leaves nothing", server.clean, str(figures["stop"]))


def _say_where(server: DemoServer, *, kept: bool) -> None:
    if kept:
        print(f"The server is up: {server.url}/docs (try it), /metrics, /v1/jobs, /v1/dead-letters")
        print(f"Stop it: kill {server.pid}   and then: rm -r {server.home}")
    else:
        print(
            f"It was at {server.url}/docs, /metrics, /v1/jobs, /v1/dead-letters; ./demo --keep leaves it up"
        )


def _write(path: Path, figures: Figures, checks: Sequence[Check]) -> None:
    told = [{"name": check.name, "good": check.good} for check in checks]
    path.write_text(json.dumps({**figures, "checks": told}, indent=2) + "\n", encoding="utf-8")


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo", description="Forebay with a real model: overload, deaths and bad pages, nothing lost."
    )
    parser.add_argument("--pages", type=int, default=18, metavar="N", help="pages to read [18]")
    parser.add_argument("--seed", type=int, default=7, help="another stack of pages [7]")
    parser.add_argument("--keep", action="store_true", help="leave the server up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    if not PAGES_MIN <= options.pages <= PAGES_MAX:
        parser.error(f"--pages: from {PAGES_MIN} to {PAGES_MAX}, or there is no overload to see")
    if options.json is not None and not options.json.resolve().parent.is_dir():
        parser.error(f"--json: no such directory: {options.json.resolve().parent}")
    return options


if __name__ == "__main__":
    sys.exit(main())
