"""Planted faults: how equal work is joined."""

from forebay.conformance.fixtures import T0
from forebay.core.lifecycle import State
from tests.conformance.teeth.planting import fault, wrap


@fault
def equal_work_is_done_twice(book):
    wrap(book, "_join")(lambda join, job, now: None)


@fault
def a_result_never_gets_too_old(book):
    wrap(book, "_join")(lambda join, job, now: join(job, min(now, T0)))


@fault
def the_oldest_twin_is_joined(book):
    wrap(book._shelf.twins, "newest")(
        lambda newest, fingerprint: (book._shelf.twins.snapshot().get(fingerprint) or [None])[0]
    )


@fault
def whoever_joins_loses_its_key(book):
    @wrap(book, "_join")
    def _(join, job, now):
        return join(job._replace(idempotency_key=None), now)


@fault
def a_key_that_joined_has_no_body(book):
    @wrap(book, "_join")
    def _(join, job, now):
        return join(job._replace(body_hash=b""), now)


@fault
def a_job_that_is_being_cancelled_is_joined(book):
    @wrap(book, "_join")
    def _(join, job, now):
        entries = [e for e in book._shelf.jobs.values() if e.state is State.RUNNING and e.cancel_requested]
        for entry in entries:
            entry.cancel_requested = False
        answer = join(job, now)
        for entry in entries:
            entry.cancel_requested = True
        return answer


@fault
def a_redriven_job_joins(book):
    @wrap(book, "redrive")
    def _(redrive, job_id, job, *, now):
        joined = book._join(job, now)
        return redrive(job_id, job, now=now) if joined is None else joined
