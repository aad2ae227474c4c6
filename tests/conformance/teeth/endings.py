"""Planted faults: how jobs end."""

from forebay.core.job import CancelVerdict
from forebay.core.lifecycle import FINAL, Event, State
from tests.conformance.teeth.planting import fault, settling, unmet, wrap


@fault
def a_cancel_overwrites_a_result(book):
    @wrap(book, "_cancel")
    def _(cancel, job_id, now):
        entry = book._shelf.jobs.get(job_id)
        if entry is not None and entry.state is State.SUCCEEDED:
            book._shelf.take(entry)
            entry.state, entry.output = State.CANCELLED, None
            book._shelf.queue(entry.job.task).bytes += entry.size
            book._shelf.put(entry)
            return CancelVerdict.CANCELLED
        return cancel(job_id, now)


@fault
def a_cancel_of_a_running_job_is_forgotten(book):
    @wrap(book, "_cancel")
    def _(cancel, job_id, now):
        verdict = cancel(job_id, now)
        if verdict is CancelVerdict.REQUESTED:
            book._shelf.jobs[job_id].cancel_requested = False
        return verdict


@unmet("hardly a job of a drill is cancelled twice while it runs")
def the_newest_cancel_tells_the_time(book):
    @wrap(book, "_cancel")
    def _(cancel, job_id, now):
        verdict = cancel(job_id, now)
        if verdict is CancelVerdict.REQUESTED:
            book._shelf.jobs[job_id].cancel_at = now
        return verdict


@fault
def the_time_of_a_cancel_outlives_the_run(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        at = entry.cancel_at
        settle(entry, transition)
        entry.cancel_at = at


@fault
def a_cancel_waits_out_the_backoff(book):
    @wrap(book, "_apply")
    def _(apply, transition):
        entry = book._holding(transition.job_id, transition.fence)
        asked = entry is not None and entry.cancel_requested
        if asked:
            entry.cancel_requested = False
        applied = apply(transition)
        if asked:
            entry.cancel_requested = True
        return applied


@fault
def a_cancel_that_was_asked_loses_against_a_final_end(book):
    @wrap(book, "_apply")
    def _(apply, transition):
        entry = book._holding(transition.job_id, transition.fence)
        asked = entry is not None and entry.cancel_requested and transition.state in FINAL
        if asked:
            entry.cancel_requested = False
        applied = apply(transition)
        if asked:
            entry.cancel_requested = True
        return applied


@fault
def a_cancel_of_a_final_job_says_already(book):
    @wrap(book, "_cancel")
    def _(cancel, job_id, now):
        verdict = cancel(job_id, now)
        return CancelVerdict.ALREADY if verdict is CancelVerdict.FINAL else verdict


@fault
def a_released_job_loses_its_place(book):
    settling(book, lambda t: t._replace(ready_at=t.at) if t.event is Event.RELEASED else t)


@fault
def the_replica_that_ran_it_is_not_told(book):
    settling(book, lambda t: t._replace(worker=""))


@fault
def a_suspect_is_forgotten(book):
    settling(book, lambda t: t._replace(suspect=False))


@fault
def deaths_are_forgotten(book):
    settling(book, lambda t: t._replace(deaths=0))


@fault
def hand_backs_are_not_counted(book):
    settling(book, lambda t: t._replace(releases=0))


@fault
def old_attempts_are_forgotten(book):
    settling(book, lambda t: t._replace(attempts=t.attempts[-1:]))


@fault
def an_error_outlives_success(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        error = entry.error
        settle(entry, transition)
        entry.error = entry.error or error


@fault
def a_fallbacks_result_passes_for_the_models(book):
    settling(book, lambda t: t._replace(degraded=0))


@fault
def an_output_is_lost(book):
    settling(book, lambda t: t._replace(output=None))
