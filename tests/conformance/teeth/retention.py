"""Planted faults: how long what has ended is kept."""

from forebay.core.retention import Retention
from tests.conformance.teeth.planting import fault, wrap


@fault
def dead_letters_go_with_the_others(book):
    wrap(book, "set_retention")(
        lambda tell, by_task: tell(
            {name: Retention(kept.ended_s, kept.ended_s) for name, kept in by_task.items()}
        )
    )


@fault
def a_task_has_the_retention_of_all(book):
    wrap(book, "set_retention")(lambda tell, by_task: None)


@fault
def a_retention_holds_for_later_ends_only(book):
    wrap(book, "set_retention")(lambda tell, by_task: book._shelf.keeping.set(by_task))


@fault
def what_was_removed_is_told_to_everybody(book):
    wrap(book, "was_purged")(lambda tell, job_id, tenant=None, *, now: tell(job_id, now=now))


@fault
def nobody_remembers_whose_a_removed_job_was(book):
    wrap(book._purged_ids, "add")(lambda add, job_id, tenant: add(job_id, ""))
