"""Planted faults: the checks of the contract and the drill must each find what they claim to find."""

import asyncio

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.conformance import CHECKS, run_check, run_checks
from forebay.conformance.fixtures import RETENTION_S as CHECK_RETENTION_S
from forebay.core.ledger import Ledger
from tests.conformance.drill import RETENTION_S, DisagreementError, Drill
from tests.conformance.teeth import (
    crons,
    deliveries,
    editing,
    endings,
    fences,
    joining,
    lines,
    order,
    quarantine,
    reading,
    retention,
    storing,
    timing,
)
from tests.conformance.teeth.planting import BLUNT, FAULTS
from tests.conformance.teeth.reopening import REOPENING_FAULTS, Kept, keeps_all

DRILLS_MAX = 40
PLANTED = (
    crons,
    deliveries,
    editing,
    endings,
    fences,
    joining,
    lines,
    order,
    quarantine,
    reading,
    retention,
    storing,
    timing,
)  # each of them plants its own as it is imported


def broken_broker(plant, retention_s):
    book = Ledger(retention_s=retention_s)
    plant(book)
    return MemoryBroker(ledger=book)


async def first_failing(open_one):
    """Return how many checks passed before the first that failed, or None when none failed."""
    for passed, check in enumerate(CHECKS):
        try:
            await run_check(check, open_one)
        except Exception:
            return passed
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_the_checks_find(name):
    async def open_broken():
        return broken_broker(FAULTS[name], CHECK_RETENTION_S)

    assert asyncio.run(first_failing(open_broken)) is not None, "no check failed"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_checks_find_a_fault_and_not_a_wreck(name):
    async def open_broken():
        return broken_broker(FAULTS[name], CHECK_RETENTION_S)

    report = asyncio.run(run_checks(open_broken))
    assert report.failed
    assert len(report.passed) > 10, f"the fault breaks everything: {report}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in BLUNT])
def test_the_drill_finds(name):
    found = None
    for seed in range(DRILLS_MAX):
        try:
            asyncio.run(Drill(broken_broker(FAULTS[name], RETENTION_S), seed, steps=400).run())
        except (DisagreementError, KeyError, AssertionError) as error:
            found = error
            break
    assert found is not None, f"not met in {DRILLS_MAX} drills"


def test_without_a_fault_nothing_is_found():
    async def open_sound():
        return broken_broker(lambda book: None, CHECK_RETENTION_S)

    assert asyncio.run(run_checks(open_sound)).ok


def reopened(recovery):
    async def open_one():
        return Kept(ledger=Ledger(retention_s=CHECK_RETENTION_S))

    async def reopen(broker, *, crash, now):
        recovery(broker._ledger, now)
        return Kept(ledger=broker._ledger)

    checks = [check for check in CHECKS if check.reopens]
    return asyncio.run(run_checks(open_one, reopen=reopen, checks=checks))


def test_a_store_that_keeps_all_passes_every_reopening():
    report = reopened(keeps_all)
    assert report.ok, str(report)
    assert not report.skipped


@pytest.mark.parametrize("recovery", REOPENING_FAULTS, ids=lambda recovery: recovery.__name__)
def test_the_reopening_checks_find_a_store_that(recovery):
    assert reopened(recovery).failed


def test_the_checks_find_a_bell_that_breaks_the_write():
    class Ringing(MemoryBroker):
        def _ring(self, tasks):
            for task in tasks:
                for doorbell in list(self._doorbells.values()):
                    doorbell(task)

    async def open_one():
        return Ringing()

    report = asyncio.run(run_checks(open_one))
    assert [name for name, _ in report.failed] == ["bells_and_listeners_that_fail_harm_nobody"]


def test_the_checks_find_claims_that_give_way_between_looking_and_taking():
    class Racing(MemoryBroker):
        async def lease(self, task, *, limit, lease_s, worker, now):
            queue = self._ledger._shelf.queues.get(task)
            keys = (
                sorted(key for place in queue.places() for key in place.line.order)[:limit] if queue else []
            )
            await asyncio.sleep(0)
            entries = [self._ledger._shelf.jobs[key[1]] for key in keys]
            return [
                self._ledger._shelf.grant(entry, worker, now, now + lease_s)
                for entry in entries
                if entry.waits_until is None or entry.waits_until > now
            ]

    async def open_one():
        return Racing()

    checks = [check for check in CHECKS if check.name.startswith("many_claimers")]
    assert len(asyncio.run(run_checks(open_one, checks=checks)).failed) == 2
