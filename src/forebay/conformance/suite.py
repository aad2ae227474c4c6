"""Check, Report, run_checks: how checks are collected, run one by one on a fresh store, and told."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forebay.ports.broker import Broker, Capabilities

CHECK_TIMEOUT_S = 60.0  # one check; a check that hangs has failed

Open = Callable[[], Awaitable[Broker]]


class Reopen(Protocol):
    """How a durable engine ends and comes back on the same store."""

    async def __call__(self, broker: Broker, *, crash: bool, now: float) -> Broker:
        """Return an engine on the same store as `broker`, which is not used any more.

        `crash` False: close it and open the store again. `crash` True: the process died where it stood,
        without `close`; everything answered before must be there. `now` is the time at the opening.

        Both ways an engine that is owned by one process makes the jobs that were running overdue at the
        opening (lease_until becomes `now` where it was later): their holders are gone with it. The first
        sweep returns them and settle.lose decides, so nobody waits for a lease to run out. Fences stay: a
        holder that did survive can still commit until the job is granted anew.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A store that can be closed and opened again: what the checks of reopening.py are given."""

    broker: Broker
    reopen: Reopen


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One sentence of the contract, and the coroutine that raises when an engine breaks it."""

    name: str
    run: Callable[[Any], Awaitable[None]]
    needs: tuple[str, ...] = ()
    reopens: bool = False

    def lacks(self, broker: Broker, reopen: Reopen | None) -> str | None:
        """Return the name of the first thing it needs and this engine has not, or None."""
        return self.lacks_of(broker.capabilities, reopens=reopen is not None)

    def lacks_of(self, can: Capabilities, *, reopens: bool) -> str | None:
        """Return the same for an engine that says this of itself."""
        has = {**_abilities(can), "reopen": reopens}
        return next((need for need in self.needs if not has[need]), None)


CHECKS: list[Check] = []


def check(run: Callable[[Broker], Awaitable[None]]) -> Callable[[Broker], Awaitable[None]]:
    """Add a check that gets a broker on an empty store."""
    CHECKS.append(_made(run, reopens=False))
    return run


def reopening_check(run: Callable[[Store], Awaitable[None]]) -> Callable[[Store], Awaitable[None]]:
    """Add a check that closes the store and opens it again."""
    CHECKS.append(_made(run, reopens=True))
    return run


def needs(*abilities: str) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[Any], Awaitable[None]]]:
    """Say what an engine must be able to do for this check: "durable", "ordered", "given_time", "owned" (by
    one process at a time).

    Stands below @check. An engine that says it cannot is skipped by that name, never in silence.
    """

    def marked(run: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        run.__dict__["needs"] = abilities
        return run

    return marked


@dataclass(slots=True)
class Report:
    """What came out: names of checks, texts of failures, and the ability that a skipped check needs."""

    passed: list[str] = field(default_factory=list[str])
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def ok(self) -> bool:
        """Nothing failed and something passed."""
        return bool(self.passed) and not self.failed

    def __str__(self) -> str:
        lines = [f"FAILED  {name}: {text}" for name, text in self.failed]
        lines += [f"skipped {name}: needs {need}" for name, need in self.skipped]
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        return "\n".join([*lines, counts])


async def run_check(check: Check, open: Open, *, reopen: Reopen | None = None) -> str | None:
    """Run one check on a fresh store and close it. Returns the name of the ability the engine lacks when
    it was skipped, else None. Raises what the check raised.
    """
    broker = await open()
    try:
        lacking = check.lacks(broker, reopen)
        if lacking is not None:
            return lacking
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            if check.reopens:
                assert reopen is not None
                await check.run(Store(broker=broker, reopen=reopen))
            else:
                await check.run(broker)
        return None
    finally:
        await broker.close()


async def run_checks(
    open: Open, *, reopen: Reopen | None = None, checks: Sequence[Check] | None = None
) -> Report:
    """Run every check, each on a store of its own, and return what came out. Raises nothing.

    `open` returns an engine on a new and empty store whose retention is fixtures.RETENTION_S; its clock,
    where it has one, stands at fixtures.T0.
    """
    report = Report()
    for each in CHECKS if checks is None else checks:
        try:
            lacking = await run_check(each, open, reopen=reopen)
        except Exception as error:  # whatever an engine raises is its failure, and the next check runs
            report.failed.append((each.name, _told(error)))
        else:
            if lacking is None:
                report.passed.append(each.name)
            else:
                report.skipped.append((each.name, lacking))
    return report


def _made(run: Callable[[Any], Awaitable[None]], *, reopens: bool) -> Check:
    name = getattr(run, "__name__", "check")
    abilities: tuple[str, ...] = run.__dict__.get("needs", ())
    return Check(name=name, run=run, needs=(*abilities, "reopen") if reopens else abilities, reopens=reopens)


def _abilities(can: Capabilities) -> dict[str, bool]:
    return {
        "durable": can.durable,
        "ordered": can.ordered,
        "given_time": not can.own_clock,
        "owned": not can.shared,
    }


def _told(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if "conformance" in frame.filename] or list(frames)
    last = here[-1]
    return f"{type(error).__name__}: {error} ({last.name}, line {last.lineno}: {last.line})"
