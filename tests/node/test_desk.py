"""Where a request goes while the breaker of its task is open: to a lane that stands in, or to a canned answer."""

import asyncio

import pytest

from forebay.core.admission import Reason, Rejected
from forebay.core.degraded import FALLBACK
from forebay.core.job import Job
from forebay.core.requests import End, Ended, Request
from forebay.node.requesting import Desk

JOB = Job("r1", "big", b"1", 0.0, 0.0, deadline_at=1.0)


class Lane:
    """Takes every request, or refuses all; `end` ends the one it has."""

    def __init__(self, *, refuses=False):
        self.requests = self
        self.refuses = refuses
        self.taken, self.gone, self.noted = [], [], []

    def offer(self, job, on_end, *, frame=False):
        if self.refuses:
            return Rejected(Reason.NO_WORKER, 1.0)
        self.on_end = on_end
        self.taken.append(Request(job, 1))
        return self.taken[-1]

    def withdraw(self, request):
        self.gone.append(request)

    def note(self, ended):
        self.noted.append(ended)

    def end(self, end, output=None):
        self.on_end(Ended(self.taken[-1], end, output))


def desk(instead):
    """Return a Desk, its lane and a list of what callers were told; `instead` answers each question."""
    lane, answers = Lane(), iter(instead)
    return Desk({"big": lane}, lambda _: next(answers)), lane, []


def test_with_its_breaker_closed_a_request_is_the_lanes_own():
    one, lane, told = desk([None])
    request = one.offer(JOB, told.append)
    lane.end(End.DONE, b"1")
    assert (lane.taken, [ended.output for ended in told]) == ([request], [b"1"])
    one.withdraw(request)
    assert lane.gone == [request]


def test_with_its_breaker_open_it_goes_to_what_stands_in_and_is_withdrawn_there():
    host = Lane()
    one, lane, told = desk([host, host])
    request = one.offer(JOB, told.append)
    assert (lane.taken, host.taken) == ([], [request])
    one.withdraw(request)
    assert (lane.gone, host.gone) == ([], [request])
    one.offer(JOB, told.append)
    host.end(End.FAILED)
    assert [ended.end for ended in told] == [End.FAILED]
    assert one._away == {}


def test_one_that_waited_when_the_breaker_opened_is_answered_by_what_stands_in():
    host = Lane()
    one, lane, told = desk([None, host])
    request = one.offer(JOB, told.append)
    lane.end(End.BARRED)
    assert (told, len(host.taken)) == ([], 1)
    one.withdraw(request)
    assert (lane.gone, host.gone) == ([], host.taken)
    host.end(End.DONE, b"2")
    assert [ended.output for ended in told] == [b"2"]


@pytest.mark.parametrize("instead", [None, Lane(refuses=True)])
def test_one_that_nothing_can_stand_in_for_is_told_why(instead):
    one, lane, told = desk([None, instead])
    one.offer(JOB, told.append)
    lane.end(End.BARRED)
    assert [ended.end for ended in told] == [End.BARRED]


def test_a_canned_answer_comes_later_once_and_is_counted():
    one, lane, told = desk([b'"later"'])

    async def main():
        request = one.offer(JOB, told.append)
        assert (told, lane.taken) == ([], []), "not before the caller has its request"
        await asyncio.sleep(0)
        return request

    request = asyncio.run(main())
    (ended,) = told
    assert (ended.request, ended.end, ended.output, request.level) == (
        request,
        End.DONE,
        b'"later"',
        FALLBACK,
    )
    assert lane.noted == [ended]
