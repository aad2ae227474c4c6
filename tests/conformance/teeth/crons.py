"""Planted faults: cron entries and their marks."""

from tests.conformance.teeth.planting import fault, wrap


@fault
def a_due_instant_gets_two_jobs(book):
    @wrap(book.crons, "fire")
    def _(fire, name, due_at, job, **options):
        mark = book.crons._marks.get(name)
        if mark is not None and mark.due_at == due_at and job is not None:
            book.crons._marks[name] = mark._replace(due_at=due_at - 1)
        return fire(name, due_at, job, **options)


@fault
def a_mark_goes_with_its_job(book):
    @wrap(book, "_purge")
    def _(purge, job_id):
        for name, mark in list(book.crons._marks.items()):
            if mark.job_id == job_id:
                del book.crons._marks[name]
        return purge(job_id)


@fault
def a_skipped_instant_does_not_move_the_mark(book):
    wrap(book.crons, "fire")(
        lambda fire, name, due_at, job, **options: job and fire(name, due_at, job, **options)
    )


@fault
def a_pause_keeps_no_job_back(book):
    @wrap(book.crons, "fire")
    def _(fire, name, due_at, job, **options):
        mark = book.crons._marks.get(name)
        if mark is None or not mark.paused:
            return fire(name, due_at, job, **options)
        book.crons._marks[name] = mark._replace(paused=False)
        receipt = fire(name, due_at, job, **options)
        book.crons._marks[name] = book.crons._marks[name]._replace(paused=True)
        return receipt


@fault
def a_resume_makes_up_for_the_pause(book):
    @wrap(book.crons, "steer")
    def _(steer, name, **options):
        before = book.crons._marks.get(name)
        mark = steer(name, **options)
        if before is not None and before.paused and not mark.paused:
            mark = book.crons._marks[name] = mark._replace(due_at=before.due_at)
        return mark


@fault
def nothing_is_forgotten(book):
    wrap(book.crons, "forget")(lambda forget, names, **options: len(names) == 3)
