"""Every check of the contract holds for every engine, and the runner tells the truth about it."""

import asyncio

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.conformance import CHECKS, Check, run_check, run_checks
from forebay.ports.broker import Broker, Capabilities
from tests.conformance.engines import ENGINES, EXPECTED_SKIPS, Memory


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_contract_holds(engine, check, tmp_path):
    way = ENGINES[engine](tmp_path)
    lacking = asyncio.run(run_check(check, way.open, reopen=way.reopen))
    if lacking is not None:
        assert lacking in EXPECTED_SKIPS[engine]
        pytest.skip(f"{engine} has not: {lacking}")


def test_every_check_has_a_name_of_its_own():
    names = [check.name for check in CHECKS]
    assert sorted(set(names)) == sorted(names)
    assert len(names) > 120


def test_a_report_names_what_passed_failed_and_was_skipped():
    async def holds(broker: Broker) -> None: ...

    async def breaks(broker: Broker) -> None:
        raise AssertionError("expected 1, got 2")

    async def explodes(broker: Broker) -> None:
        raise KeyError("x")

    checks = [
        Check(name="holds", run=holds),
        Check(name="breaks", run=breaks),
        Check(name="explodes", run=explodes),
        Check(name="survives", run=holds, needs=("durable",)),
        Check(name="reopens", run=holds, needs=("reopen",), reopens=True),
    ]
    report = asyncio.run(run_checks(Memory(None).open, checks=checks))
    assert report.passed == ["holds"]
    assert [name for name, _ in report.failed] == ["breaks", "explodes"]
    assert "expected 1, got 2" in report.failed[0][1]
    assert "KeyError" in report.failed[1][1]
    assert report.skipped == [("survives", "durable"), ("reopens", "reopen")]
    assert not report.ok
    assert "1 passed, 2 failed, 2 skipped" in str(report)


def test_nothing_passed_is_not_good():
    assert not asyncio.run(run_checks(Memory(None).open, checks=[])).ok


def test_an_engine_that_cannot_be_opened_fails_every_check():
    async def refused():
        raise OSError("no such store")

    report = asyncio.run(run_checks(refused))
    assert len(report.failed) == len(CHECKS)
    assert "no such store" in report.failed[0][1]


def test_a_check_that_hangs_has_failed(monkeypatch):
    monkeypatch.setattr("forebay.conformance.suite.CHECK_TIMEOUT_S", 0.01)

    async def hangs(broker: Broker) -> None:
        await asyncio.Event().wait()

    report = asyncio.run(run_checks(Memory(None).open, checks=[Check(name="hangs", run=hangs)]))
    assert [name for name, _ in report.failed] == ["hangs"]


def test_every_engine_under_check_is_closed():
    opened = []

    async def open_one():
        opened.append(MemoryBroker())
        return opened[-1]

    asyncio.run(run_checks(open_one, checks=CHECKS[:5]))
    assert len(opened) == 5
    for broker in opened:
        with pytest.raises(Exception, match="closed"):
            asyncio.run(broker.depth("t", now=0.0))


def test_an_engine_without_order_skips_by_that_name():
    class Loose(MemoryBroker):
        capabilities = Capabilities(durable=False, ordered=False, own_clock=True)

    async def open_one():
        return Loose()

    report = asyncio.run(run_checks(open_one))
    assert {need for _, need in report.skipped} == {"durable", "ordered", "given_time"}
    assert report.ok, str(report)
