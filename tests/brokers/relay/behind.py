"""holds, Behind: the contract of an engine, with a store of the tests behind a message broker."""

import asyncio

from forebay.conformance import CHECKS, run_checks
from forebay.engines import subject_for
from tests.brokers.redis.engines import Redis


class Behind:
    """A store on a server of the tests, as a relay's trial asks for it."""

    def __init__(self, server):
        self.way = Redis(server, given_time=True)
        self.open = self.way.open
        self.reopen = self.way.reopen
        self.remove = self.way.close


def check_report(report):
    """Fail with what does not hold, or was skipped for another reason than that servers share the store."""
    assert report.ok, str(report)
    assert {need for _, need in report.skipped} <= {"owned"}


def holds(url, server, part, parts):
    """Run one part of all checks, and fail with what does not hold."""

    async def run():
        subject = subject_for(url, store=server.url())
        try:
            return await run_checks(subject.open, reopen=subject.reopen, checks=CHECKS[part::parts])
        finally:
            await subject.remove()

    check_report(asyncio.run(run()))
