"""Planted faults: fences, attempts and renewals."""

from forebay.core.lifecycle import Event
from tests.conformance.teeth.planting import fault, settling, wrap


@fault
def the_fence_is_not_checked(book):
    wrap(book, "_holding")(lambda original, job_id, fence: original(job_id, fence_of(book, job_id)))


def fence_of(book, job_id):
    entry = book._shelf.jobs.get(job_id)
    return entry.fence if entry else 0


@fault
def the_fence_does_not_grow(book):
    @wrap(book._shelf, "grant")
    def _(grant, entry, *args):
        lease = grant(entry, *args)
        entry.fence = 1
        return lease._replace(fence=1)


@fault
def the_attempt_is_not_counted_when_leased(book):
    @wrap(book._shelf, "grant")
    def _(grant, entry, *args):
        lease = grant(entry, *args)
        entry.attempt -= 1
        return lease


@fault
def a_hand_back_is_not_refunded(book):
    refunds = (Event.RELEASED, Event.SUSPECTED, Event.DEFERRED)
    settling(book, lambda t: t._replace(attempt=t.attempt + 1) if t.event in refunds else t)


@fault
def a_commit_is_applied_twice(book):
    @wrap(book, "_holding")
    def _(original, job_id, fence):
        entry = book._shelf.jobs.get(job_id)
        return entry if entry is not None and entry.fence == fence else None


@fault
def a_lapsed_lease_cannot_commit(book):
    @wrap(book, "_apply")
    def _(original, transition):
        entry = book._shelf.jobs.get(transition.job_id)
        lapsed = entry is not None and entry.lease_until is not None and entry.lease_until <= book._now
        return False if lapsed else original(transition)


@fault
def a_renewal_revives_a_lapsed_lease(book):
    @wrap(book, "extend")
    def _(original, claims, *, lease_s, now):
        for entry in list(book._shelf.jobs.values()):
            if entry.lease_until is not None and entry.lease_until <= now:
                book._shelf.renew(entry, now + 0.25)
        return original(claims, lease_s=lease_s, now=now)


@fault
def a_renewal_does_not_move_the_end(book):
    wrap(book._shelf, "renew")(lambda renew, entry, until: None)


@fault
def progress_of_a_stale_holder_is_stored(book):
    @wrap(book, "_renew")
    def _(renew, claim, *args):
        entry = book._shelf.jobs.get(claim.job_id)
        if entry is not None and claim.progress is not None and entry.lease_until is not None:
            entry.progress = claim.progress
        return renew(claim, *args)


@fault
def progress_outlives_the_lease(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        progress = entry.progress
        settle(entry, transition)
        entry.progress = progress


@fault
def a_renewal_without_progress_forgets_it(book):
    @wrap(book, "_renew")
    def _(renew, claim, *args):
        hold = renew(claim, *args)
        if hold.value != "lost":
            book._shelf.jobs[claim.job_id].progress = claim.progress
        return hold


@fault
def a_checkpoint_goes_with_the_lease(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        settle(entry, transition)
        entry.checkpoint = None


@fault
def a_checkpoint_outlives_the_job(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        checkpoint = entry.checkpoint
        settle(entry, transition)
        entry.checkpoint = checkpoint


@fault
def a_checkpoint_of_a_transition_is_dropped(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        settle(entry, transition._replace(checkpoint=None))


@fault
def a_renewal_without_a_checkpoint_forgets_it(book):
    @wrap(book, "_renew")
    def _(renew, claim, *args):
        hold = renew(claim, *args)
        if hold.value != "lost":
            book._shelf.jobs[claim.job_id].checkpoint = claim.checkpoint
        return hold
