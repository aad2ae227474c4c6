"""Planted faults: which inputs are known to kill."""

from tests.conformance.teeth.planting import fault, unmet, wrap

rare = unmet("few inputs of a drill get so far")


def charging(book, change):
    """Let `change` alter what every charge is counted as; None: it is not counted."""

    @wrap(book.quarantine.inputs, "charged")
    def _(charged, job, charge, *, at):
        altered = change(job, charge, at)
        return [] if altered is None else charged(*altered[:2], at=altered[2])


@fault
def deaths_are_not_counted(book):
    charging(book, lambda job, charge, at: None)


@rare
def a_success_after_a_death_proves_nothing(book):
    charging(book, lambda job, charge, at: (job, charge, at) if charge.condemns_at else None)


@rare
def a_success_frees_what_is_in_quarantine(book):
    @wrap(book.quarantine.inputs, "charged")
    def _(charged, job, charge, *, at):
        gone = [(job.task, charge.fingerprint, None)]
        return charged(job, charge, at=at) if charge.condemns_at else gone


@fault
def one_death_too_many_is_waited_for(book):
    charging(
        book,
        lambda job, charge, at: (
            (job, charge._replace(condemns_at=charge.condemns_at + 1), at)
            if charge.condemns_at
            else (job, charge, at)
        ),
    )


@fault
def inputs_are_known_by_their_task_alone(book):
    charging(book, lambda job, charge, at: (job, charge._replace(fingerprint=job.task.encode() * 16), at))
    wrap(book.quarantine.inputs, "get")(lambda get, task, fingerprint: get(task, task.encode() * 16))


@fault
def a_stale_death_counts(book):
    @wrap(book, "_apply")
    def _(apply, transition):
        entry = book._shelf.jobs.get(transition.job_id)
        if entry is not None and transition.charge is not None and entry.fence != transition.fence:
            book.quarantine.inputs.apply(
                book.quarantine.inputs.charged(entry.job, transition.charge, at=transition.at)
            )
        return apply(transition)


@rare
def a_death_under_a_cancel_is_not_counted(book):
    @wrap(book, "_apply")
    def _(apply, transition):
        entry = book._shelf.jobs.get(transition.job_id)
        cancelled = entry is not None and entry.cancel_requested
        return apply(transition._replace(charge=None) if cancelled else transition)


@rare
def anybody_may_release_anything(book):
    wrap(book.quarantine, "release")(
        lambda release, fingerprint, *, tenant, now: release(fingerprint, tenant=None, now=now)
    )


@rare
def a_release_keeps_the_deaths(book):
    @wrap(book.quarantine, "release")
    def _(release, fingerprint, *, tenant, now):
        row = release(fingerprint, tenant=tenant, now=now)
        if row is not None:
            book.quarantine.inputs.apply([(row.task, fingerprint, row._replace(condemned_at=None))])
        return row


@rare
def a_tenant_is_forgotten_by_half(book):
    wrap(book.quarantine, "forget")(
        lambda forget, *, tenant=None, job_ids=(): (
            forget(job_ids=job_ids) if job_ids else forget(tenant=tenant)
        )
    )


@unmet("nobody drills for a week")
def inputs_are_never_forgotten(book):
    wrap(book.quarantine.inputs, "aged")(lambda aged, now: [])


@unmet("nobody drills with a thousand deadly inputs")
def inputs_have_no_bound(book):
    wrap(book.quarantine.inputs, "_room")(lambda room, row: [])
