"""Planted faults: what only opening again can show. An engine in memory that is handed on stands for a durable one."""

from forebay.brokers.memory import MemoryBroker
from forebay.core.lifecycle import Event, State
from forebay.ports.broker import Capabilities
from tests.conformance.teeth.planting import ordering


class Kept(MemoryBroker):
    capabilities = Capabilities(durable=True)


def keeps_all(book, now):
    book.recover(now=now)


def leaves_leases_to_run_out(book, now):
    pass


def forgets_fences(book, now):
    book.recover(now=now)
    for entry in book._shelf.jobs.values():
        entry.fence = 0


def forgets_attempts(book, now):
    book.recover(now=now)
    for entry in book._shelf.jobs.values():
        entry.attempt = 0


def forgets_a_pause(book, now):
    book.recover(now=now)
    for queue in list(book._shelf.queues.values()):
        book.pause(queue.name, paused=False, now=now)


def forgets_a_drain(book, now):
    book.recover(now=now)
    for queue in list(book._shelf.queues.values()):
        book.drain(queue.name, draining=False, now=now)


def forgets_cron_marks(book, now):
    book.recover(now=now)
    book.crons._marks.clear()


def forgets_keys(book, now):
    book.recover(now=now)
    book._shelf.keys.clear()


def forgets_a_cancel(book, now):
    book.recover(now=now)
    for entry in book._shelf.jobs.values():
        entry.cancel_requested = False


def forgets_links(book, now):
    book.recover(now=now)
    for entry in book._shelf.jobs.values():
        entry.redriven_as = None


def hands_back_at_once(book, now):
    book.recover(now=now)
    for entry in list(book._shelf.jobs.values()):
        if entry.state is State.RUNNING:
            book._shelf.take(entry)
            entry.state, entry.lease_until = State.QUEUED, None
            book._shelf.put(entry)


def forgets_scheduled_jobs(book, now):
    book.recover(now=now)
    for entry in list(book._shelf.jobs.values()):
        if entry.state is State.SCHEDULED:
            book._shelf.end_waiting(entry, Event.CANCELLED, now)
            book._purge(entry.job.id)


def gives_ids_again(book, now):
    book.recover(now=now)
    book._new_id = type(book._new_id)()
    book._now = 0.0


def forgets_who_holds_what(book, now):
    book.recover(now=now)
    book._shelf.held.clear()


def keeps_results_short(book, now):
    book.recover(now=now)
    for entry in book._shelf.jobs.values():
        entry.output = None


def orders_by_arrival(book, now):
    book.recover(now=now)
    ordering(book, lambda entry: entry.ready_at)
    for entry in book._shelf.jobs.values():
        if entry.state is State.QUEUED:
            book._shelf.take(entry)
            book._shelf.put(entry)


def leaves_claims_to_lapse(book, now):
    rows = dict(book._shelf.tray.rows)
    book.recover(now=now)
    for row in rows.values():
        book._shelf.tray.put(row)


def forgets_deliveries(book, now):
    book.recover(now=now)
    for job_id in list(book._shelf.tray.rows):
        book._shelf.tray.drop(job_id)


def forgets_the_log_of_deliveries(book, now):
    book.recover(now=now)
    for row in list(book._shelf.tray.rows.values()):
        book._shelf.tray.put(row._replace(log=()))


def forgets_who_killed(book, now):
    book.recover(now=now)
    book.quarantine.forget(tenant="", job_ids=[])


REOPENING_FAULTS = [
    forgets_who_killed,
    leaves_claims_to_lapse,
    forgets_deliveries,
    forgets_the_log_of_deliveries,
    leaves_leases_to_run_out,
    forgets_fences,
    forgets_attempts,
    forgets_a_pause,
    forgets_a_drain,
    forgets_cron_marks,
    forgets_keys,
    forgets_a_cancel,
    forgets_links,
    hands_back_at_once,
    forgets_scheduled_jobs,
    gives_ids_again,
    forgets_who_holds_what,
    keeps_results_short,
    orders_by_arrival,
]
