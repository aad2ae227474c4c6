"""Planted faults: another payload for a dead letter."""

from forebay.core.lifecycle import FINAL
from tests.conformance.teeth.planting import fault, wrap


@fault
def an_edit_takes_the_place_of_the_payload(book):
    @wrap(book, "edit")
    def _(edit, job_id, payload, *, now):
        done = edit(job_id, payload, now=now)
        if done:
            entry = book._shelf.jobs[job_id]
            entry.job = entry.job._replace(payload=payload)
        return done


@fault
def the_first_edit_stays(book):
    @wrap(book, "edit")
    def _(edit, job_id, payload, *, now):
        entry = book._shelf.jobs.get(job_id)
        kept = None if entry is None else entry.edited
        return edit(job_id, payload if kept is None else kept, now=now)


@fault
def any_final_job_can_be_edited(book):
    @wrap(book, "edit")
    def _(edit, job_id, payload, *, now):
        entry = book._shelf.jobs.get(job_id)
        if entry is not None and entry.state in FINAL:
            entry.edited = payload
            return True
        return edit(job_id, payload, now=now)


@fault
def a_redrive_forgets_the_edit(book):
    @wrap(book, "redrive")
    def _(redrive, job_id, job, *, now):
        receipt = redrive(job_id, job, now=now)
        if receipt is not None:
            book._shelf.jobs[job_id].edited = None
        return receipt


@fault
def an_edit_holds_no_blobs(book):
    @wrap(book, "edit")
    def _(edit, job_id, payload, *, now):
        done = edit(job_id, payload, now=now)
        if done:
            book._shelf.unname_blobs(book._shelf.jobs[job_id])
        return done
