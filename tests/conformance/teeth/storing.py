"""Planted faults: how submissions are stored."""

from forebay.core.job import Receipt, Verdict
from forebay.core.lifecycle import FINAL, State
from tests.conformance.teeth.planting import fault, unmet, wrap


@fault
def a_key_ignores_its_tenant(book):
    @wrap(book, "_known")
    def _(known, job):
        for tenant, key in list(book._shelf.keys):
            if key == job.idempotency_key:
                return known(job._replace(tenant=tenant))
        return known(job)


@fault
def a_key_ignores_the_body(book):
    @wrap(book, "_known")
    def _(known, job):
        receipt = known(job)
        return receipt and receipt._replace(verdict=Verdict.REPLAYED)


@fault
def a_key_is_forgotten_when_its_job_ends(book):
    @wrap(book, "_known")
    def _(known, job):
        receipt = known(job)
        if receipt is not None and receipt.state in FINAL and receipt.job_id != job.id:
            return known(job._replace(idempotency_key=None))
        return receipt


@fault
def a_known_id_is_overlooked(book):
    @wrap(book, "_known")
    def _(known, job):
        receipt = known(job)
        if receipt is not None and receipt.job_id == job.id and receipt.state not in FINAL:
            return Receipt(Verdict.STORED, job.id, receipt.state)
        return receipt


@fault
def a_replay_tells_the_state_at_the_start(book):
    @wrap(book, "_known")
    def _(known, job):
        receipt = known(job)
        return receipt and receipt._replace(state=State.QUEUED)


@unmet("the drill's payloads have no escapes")
def escapes_are_resolved(book):
    @wrap(book, "_store")
    def _(store, job, now):
        return store(job._replace(payload=job.payload.replace(b"\\u0000", b"\x00")), now)


@unmet("the drill's times are whole or half seconds")
def times_are_kept_in_milliseconds(book):
    @wrap(book, "_store")
    def _(store, job, now):
        return store(job._replace(run_at=round(job.run_at, 3)), now)


@fault
def a_redrive_does_not_link_the_dead_job(book):
    @wrap(book, "redrive")
    def _(redrive, job_id, job, *, now):
        receipt = redrive(job_id, job, now=now)
        if receipt is not None:
            book._shelf.jobs[job_id].redriven_as = None
        return receipt


@fault
def a_redrive_does_not_link_the_successor(book):
    @wrap(book, "_store")
    def _(store, job, now):
        return store(job._replace(redriven_from=None), now)


@fault
def a_redrive_takes_any_final_job(book):
    @wrap(book, "redrive")
    def _(redrive, job_id, job, *, now):
        entry = book._shelf.jobs.get(job_id)
        if entry is not None and entry.state in FINAL and entry.state is not State.DEAD:
            entry.redriven_as = job.id
            return book.enqueue([job._replace(redriven_from=job_id)], now=now)[0]
        return redrive(job_id, job, now=now)
