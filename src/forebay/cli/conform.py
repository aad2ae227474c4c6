"""`forebay conform`: the contract of an engine, check by check, against the real thing at a URL."""

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.options import Json
from forebay.cli.show import Stop, clean, complain, print_json, say
from forebay.errors import ConfigError, ForebayError
from forebay.values import of_system

if TYPE_CHECKING:
    from forebay.conformance import Check, Report
    from forebay.conformance.subject import Subject
    from forebay.ports.broker import Capabilities

FAILED, CANNOT_REACH = 1, 3
PLANTED = "that is broken"  # how the errors end that conformance/contending.py raises in listeners


def conform(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="postgresql://…, redis://…, sqlite:DIRECTORY, memory:, your own."),
    ],
    engine: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FACTORY", help="An engine of yours: what makes a Subject of the URL."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="What keeps the jobs behind a URL that only delivers. [FOREBAY_STORE]"
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only the checks whose name holds this.")
    ] = None,
    json_: Json = False,
) -> int:
    """Run the contract of an engine against the one at a URL, in a place of its own that is removed again."""
    from forebay.config import load_settings
    from forebay.conformance import CHECKS
    from forebay.deliveries import DELIVERIES
    from forebay.engines import subject_for

    checks = [check for check in CHECKS if only is None or only in check.name]
    if not checks:
        raise Stop(f"--only {only!r}: no check of that name", 2)
    if store is None and url.partition(":")[0] in DELIVERIES:
        store = load_settings().store
    subject = subject_for(url, engine, store=store)
    try:
        capabilities, report = asyncio.run(_run(subject, checks, aloud=not json_))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if json_:
        print_json(_document(capabilities, report))
    else:
        say(_summary(report))
    return 0 if report.ok else FAILED


async def _run(subject: "Subject", checks: "list[Check]", *, aloud: bool) -> "tuple[Capabilities, Report]":
    """Run each check and tell of it; remove what was made, whatever happens."""
    from forebay.conformance import Report, run_checks

    this = asyncio.current_task()
    assert this is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, this.cancel)
    loop.set_exception_handler(_heard)
    report = Report()
    try:
        capabilities = await _reached(subject)
        for check in checks:
            one = await run_checks(subject.open, reopen=subject.reopen, checks=[check])
            report.passed += one.passed
            report.failed += one.failed
            report.skipped += one.skipped
            if aloud:
                say(_line(one))
                sys.stdout.flush()
    finally:
        try:
            await subject.remove()
        except ForebayError as error:
            complain(str(error))
    return capabilities, report


def _heard(_: object, told: dict[str, Any]) -> None:
    """Say what went wrong beside the checks; some plant listeners that fail, and an engine tells of those."""
    error = told.get("exception")
    if not isinstance(error, RuntimeError) or not str(error).endswith(PLANTED):
        complain(f"beside the checks: {told.get('message')}: {error!r}")


async def _reached(subject: "Subject") -> "Capabilities":
    """Return what the engine says of itself. Raises Stop with code 3 when it cannot be opened."""
    try:
        broker = await subject.open()
    except ConfigError:
        raise
    except ForebayError as error:
        raise Stop(str(error), CANNOT_REACH) from None
    except OSError as error:
        raise Stop(of_system(error), CANNOT_REACH) from None
    capabilities = broker.capabilities
    await broker.close()
    return capabilities


def _line(one: "Report") -> str:
    from forebay.conformance.subject import LACKS

    for name, text in one.failed:
        return f"FAILED  {name}: {clean(text)}"
    for name, need in one.skipped:
        return f"n/a     {name}: {LACKS.get(need, need)}"
    return f"ok      {one.passed[0]}"


def _summary(report: "Report") -> str:
    return f"{len(report.passed)} passed, {len(report.failed)} failed, {len(report.skipped)} do not apply"


def _document(capabilities: "Capabilities", report: "Report") -> dict[str, Any]:
    from forebay.conformance.subject import LACKS

    return {
        "ok": report.ok,
        "capabilities": {
            "durable": capabilities.durable,
            "ordered": capabilities.ordered,
            "own_clock": capabilities.own_clock,
            "shared": capabilities.shared,
        },
        "passed": report.passed,
        "failed": [{"check": name, "why": text} for name, text in report.failed],
        "not_applicable": [
            {"check": name, "needs": need, "why": LACKS.get(need, need)} for name, need in report.skipped
        ],
    }
