"""Planted faults: reading, listing, blobs and purging."""

from forebay.core.lifecycle import WAITING, Event, State
from forebay.core.tenant import Held
from tests.conformance.teeth.planting import fault, unmet, wrap


@fault
def a_purge_removes_open_jobs(book):
    @wrap(book, "_purge")
    def _(purge, job_id):
        entry = book._shelf.jobs.get(job_id)
        if entry is not None and entry.state is State.QUEUED:
            book._shelf.end_waiting(entry, Event.CANCELLED, book._now)
        return purge(job_id)


no_blobs = unmet("the drill's payloads and outputs name no blobs")


@no_blobs
def a_purge_forgets_the_other_holders_of_a_blob(book):
    @wrap(book, "_purge")
    def _(purge, job_id):
        purged = purge(job_id)
        book._shelf.blobs.clear()
        return purged


@no_blobs
def a_purge_leaves_its_blobs_held(book):
    @wrap(book._shelf, "discard")
    def _(discard, entry):
        kept = {blob: set(jobs) for blob, jobs in book._shelf.blobs.items()}
        discard(entry)
        book._shelf.blobs = kept


@no_blobs
def outputs_hold_no_blobs(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        held = {blob: set(jobs) for blob, jobs in book._shelf.blobs.items()}
        settle(entry, transition._replace(output=None))
        entry.output = transition.output
        book._shelf.blobs = held
        if transition.output is not None:
            book._shelf._unname_blobs = lambda entry: None


@no_blobs
def a_stale_output_holds_its_blob(book):
    @wrap(book, "_apply")
    def _(apply, transition):
        book._shelf.name_blobs(transition.job_id, transition.output)
        return apply(transition)


def holding_on(book, thing, verb):
    """Let what is named before a verb be named after it too."""

    @wrap(thing, verb)
    def _(original, *args):
        before = {blob: set(jobs) for blob, jobs in book._shelf.blobs.items()}
        answer = original(*args)
        for blob, jobs in before.items():
            book._shelf.blobs.setdefault(blob, set()).update(jobs)
        return answer


@no_blobs
def a_replaced_checkpoint_holds_its_blobs(book):
    holding_on(book, book, "_renew")


@no_blobs
def the_checkpoint_of_a_job_that_has_ended_holds_its_blobs(book):
    holding_on(book, book, "_apply")


@no_blobs
def the_checkpoint_of_a_job_that_was_cancelled_holds_its_blobs(book):
    holding_on(book, book._shelf, "end_waiting")


@no_blobs
def a_stale_checkpoint_holds_its_blob(book):
    @wrap(book, "_renew")
    def _(renew, claim, *times):
        book._shelf.name_blobs(claim.job_id, claim.checkpoint)
        return renew(claim, *times)


@no_blobs
def checkpoints_hold_no_blobs(book):
    @wrap(book, "_renew")
    def _(renew, claim, *times):
        before = {blob: set(jobs) for blob, jobs in book._shelf.blobs.items()}
        hold = renew(claim, *times)
        book._shelf.blobs.clear()
        book._shelf.blobs.update(before)
        return hold


@no_blobs
def a_refused_submission_holds_its_blob(book):
    @wrap(book, "_known")
    def _(known, job):
        book._shelf.name_blobs(job.id, job.payload)
        return known(job)


@no_blobs
def quoted_text_counts_as_a_reference(book):
    @wrap(book._shelf, "name_blobs")
    def _(name, job_id, text):
        name(job_id, None if text is None else text.replace(b"\\", b""))


@fault
def a_purge_takes_the_newest_first(book):
    @wrap(book._shelf.finals, "until")
    def _(until, at, limit):
        return until(at, 10_000)[::-1][:limit]


@fault
def retention_ends_a_moment_late(book):
    wrap(book, "_seen")(lambda seen, job_id, now: seen(job_id, now - 0.0001))


@fault
def a_listing_shows_what_is_past_retention(book):
    @wrap(book, "find")
    def _(find, query, *, now):
        kept = {entry: entry.gone_at for entry in book._shelf.jobs.values()}
        for entry in kept:
            entry.gone_at = float("inf")
        page = find(query, now=now)
        for entry, gone_at in kept.items():
            entry.gone_at = gone_at
        return page


@fault
def a_page_repeats_its_cursor(book):
    @wrap(book, "find")
    def _(find, query, *, now):
        after = query.after and query.after[:-1] + chr(ord(query.after[-1]) + 1)
        return find(query._replace(after=after), now=now)


@fault
def a_full_page_is_the_last(book):
    wrap(book, "find")(lambda find, query, *, now: find(query, now=now)._replace(next_after=None))


@fault
def a_listing_ignores_metadata(book):
    wrap(book, "find")(lambda find, query, *, now: find(query._replace(metadata=()), now=now))


@fault
def depth_forgets_bytes_that_went(book):
    @wrap(book._shelf, "put")
    def _(put, entry):
        before = entry.queue.bytes
        put(entry)
        entry.queue.bytes = before


@fault
def a_tenant_is_counted_for_ever(book):
    @wrap(book._shelf, "put")
    def _(put, entry):
        before = dict(book._shelf.held)
        put(entry)
        book._shelf.held = before


@fault
def what_a_tenant_holds_is_what_waits(book):
    @wrap(book, "holding")
    def _(holding, tenant, *, now):
        waiting = [e for e in book._shelf.jobs.values() if e.job.tenant == tenant and e.state in WAITING]
        return Held(len(waiting), sum(e.job.size for e in waiting))


@fault
def depth_counts_the_payload_only(book):
    @wrap(book, "_store")
    def _(store, job, now):
        receipt = store(job, now)
        entry = book._shelf.jobs[job.id]
        entry.queue.bytes -= len(job.metadata)
        entry.size -= len(job.metadata)
        return receipt


@fault
def the_oldest_is_the_first_in_line(book):
    @wrap(book, "depth")
    def _(depth, task, *, now):
        seen, queue = depth(task, now=now), book._shelf.queues.get(task)
        heads = [place.line.order.first() for place in queue.places()] if queue else []
        first = min((head for head in heads if head is not None), default=None)
        return seen if first is None else seen._replace(oldest_at=book._shelf.jobs[first[1]].ready_at)


@fault
def a_position_counts_from_zero(book):
    @wrap(book, "position")
    def _(position, job_id, *, now):
        place = position(job_id, now=now)
        return None if place is None else place - 1


@fault
def a_position_goes_by_id(book):
    @wrap(book, "position")
    def _(position, job_id, *, now):
        place = position(job_id, now=now)
        if place is None:
            return None
        mine = book._shelf.jobs[job_id]
        queued = [e for e in book._shelf.jobs.values() if e.queue is mine.queue and e.state is State.QUEUED]
        return sum(e.job.id <= job_id for e in queued)


@fault
def a_task_without_jobs_is_still_named(book):
    named = set()

    @wrap(book, "tasks")
    def _(tasks):
        named.update(tasks())
        return sorted(named)


@fault
def dead_letters_are_not_counted_after_a_redrive(book):
    @wrap(book, "depth")
    def _(depth, task, *, now):
        seen = depth(task, now=now)
        redriven = [e for e in book._shelf.jobs.values() if e.job.task == task and e.redriven_as]
        return seen._replace(dead=seen.dead - len(redriven))
