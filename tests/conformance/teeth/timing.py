"""Planted faults: what time decides."""

from forebay.core.job import Sweep
from forebay.core.lifecycle import State
from tests.conformance.teeth.planting import fault, unmet, waiting_longer, wrap


@fault
def a_job_is_granted_at_the_end_of_its_ttl(book):
    waiting_longer(book, "lease", lambda until, now: until + 0.25 if until == now else until)


@fault
def only_the_sweep_looks_at_the_ttl(book):
    waiting_longer(book, "lease", lambda until, now: None)


@fault
def the_sweep_expires_a_moment_late(book):
    @wrap(book, "sweep")
    def _(sweep, *, limit, now):
        expired = sweep(limit=limit, now=now)
        undone = [i for i in expired.expired if book._shelf.jobs[i].waits_until == now]
        for job_id in undone:
            entry = book._shelf.jobs[job_id]
            book._shelf.take(entry)
            entry.state, entry.finished_at, entry.error = State.QUEUED, None, None
            entry.queue.bytes += entry.size
            book._shelf.put(entry)
        return expired._replace(expired=tuple(i for i in expired.expired if i not in undone))


@fault
def a_deadline_does_not_end_waiting(book):
    @wrap(book, "_store")
    def _(store, job, now):
        receipt = store(job._replace(deadline_at=None), now)
        book._shelf.jobs[job.id].job = job
        return receipt


@fault
def promotion_misses_its_boundary(book):
    @wrap(book._shelf.due, "first")
    def _(first):
        moment = first()
        return None if moment is not None and moment[0] == book._now else moment


@fault
def promotion_forgets_when_it_was_due(book):
    @wrap(book._shelf, "promote")
    def _(promote, entry):
        book._shelf.take(entry)
        entry.ready_at = book._now
        book._shelf.put(entry)
        promote(entry)


@fault
def due_jobs_are_promoted_before_late_ones_expire(book):
    @wrap(book, "sweep")
    def _(sweep, *, limit, now):
        promoted = []
        while len(promoted) < limit and (m := book._shelf.due.first()) and m[0] <= now:
            book._shelf.promote(book._shelf.jobs[m[1]])
            promoted.append(m[1])
        rest = sweep(limit=limit, now=now)
        return rest._replace(promoted=tuple(promoted))


@fault
def a_lease_is_overdue_a_moment_late(book):
    wrap(book._shelf.leases, "until")(lambda until, at, limit: until(at - 0.0001, limit))


@fault
def the_sweep_ignores_its_limit(book):
    wrap(book, "sweep")(lambda sweep, *, limit, now: sweep(limit=10_000 if limit else 0, now=now))


@fault
def the_sweep_returns_a_lease_once_only(book):
    told = set()

    @wrap(book, "sweep")
    def _(sweep, **options):
        swept = sweep(**options)
        fresh = [lease for lease in swept.overdue if (lease.job.id, lease.fence) not in told]
        told.update((lease.job.id, lease.fence) for lease in swept.overdue)
        return Sweep(swept.promoted, swept.expired, tuple(fresh))


@fault
def scheduled_means_not_before_and_not_at(book):
    @wrap(book, "_store")
    def _(store, job, now):
        return store(job, now - 0.5) if job.run_at == now else store(job, now)


@unmet("the drill's time never runs backwards")
def time_may_run_backwards(book):
    def tick(original, now):
        book._now = now
        return now

    wrap(book, "_tick")(tick)
