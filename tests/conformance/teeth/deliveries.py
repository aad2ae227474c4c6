"""Planted faults: what callbacks are owed."""

from forebay.core.lifecycle import State
from forebay.core.outbox import DeliveryState
from tests.conformance.teeth.planting import BLUNT, fault, unmet, wrap


@fault
def no_end_owes_a_callback(book):
    wrap(book._shelf.tray, "owe")(lambda owe, job, at: None)


@fault
def only_a_result_owes_a_callback(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        settle(entry, transition)
        if transition.state is not State.SUCCEEDED:
            book._shelf.tray.drop(entry.job.id)


@fault
def an_end_while_waiting_owes_no_callback(book):
    @wrap(book._shelf, "end_waiting")
    def _(end, entry, *args):
        end(entry, *args)
        book._shelf.tray.drop(entry.job.id)


@fault
def a_retry_owes_a_callback_already(book):
    @wrap(book._shelf, "settle")
    def _(settle, entry, transition):
        settle(entry, transition)
        if entry.state is State.RETRYING:
            book._shelf.tray.owe(entry.job, transition.at)


def claiming(book, change):
    """Let `change` alter every claimed delivery as it is stored and answered."""

    @wrap(book.outbox, "claim")
    def _(claim, **options):
        rows = [change(row, options["now"]) for row in claim(**options)]
        for row in rows:
            book._shelf.tray.put(row)
        return rows


@fault
def a_claim_holds_nobody_off(book):
    claiming(book, lambda row, now: row._replace(due_at=now))


@fault
def a_claim_is_not_counted(book):
    claiming(book, lambda row, now: row._replace(tries=max(1, row.tries - 1)))


@fault
def a_claim_never_lapses(book):
    claiming(book, lambda row, now: row._replace(due_at=row.due_at + 1e6))


@fault
def any_claim_may_settle(book):
    @wrap(book.outbox, "_settle")
    def _(settle, step):
        row = book._shelf.tray.rows.get(step.job_id)
        tries = step.tried.number if row is None else row.tries
        return settle(step._replace(tried=step.tried._replace(number=tries)))


@fault
def a_delivery_is_settled_twice(book):
    @wrap(book.outbox, "_settle")
    def _(settle, step):
        row = book._shelf.tray.rows.get(step.job_id)
        if row is not None and row.tries == step.tried.number and row.state is not DeliveryState.SENDING:
            return True
        return settle(step)


@fault
def a_lapsed_claim_cannot_settle(book):
    @wrap(book.outbox, "_settle")
    def _(settle, step):
        row = book._shelf.tray.rows.get(step.job_id)
        lapsed = row is not None and row.due_at is not None and row.due_at <= book._now
        return False if lapsed else settle(step)


@fault
def a_try_is_not_logged(book):
    @wrap(book.outbox, "_settle")
    def _(settle, step):
        row = book._shelf.tray.rows.get(step.job_id)
        done = settle(step)
        if done:
            book._shelf.tray.put(book._shelf.tray.rows[step.job_id]._replace(log=row.log))
        return done


@unmet("the drill asks for few tries of one delivery")
def the_log_keeps_the_oldest_tries(book):
    @wrap(book.outbox, "_settle")
    def _(settle, step):
        row = book._shelf.tray.rows.get(step.job_id)
        done = settle(step)
        if done and len(row.log) >= 20:
            book._shelf.tray.put(book._shelf.tray.rows[step.job_id]._replace(log=row.log))
        return done


@fault
def the_room_of_an_endpoint_is_not_asked(book):
    wrap(book.outbox, "claim")(lambda claim, **options: claim(**{**options, "rooms": {}}))


@fault
def one_endpoint_may_take_all(book):
    wrap(book.outbox, "claim")(lambda claim, **options: claim(**{**options, "each_max": 1_000}))


@fault
def endpoints_are_told_apart_by_capitals(book):
    @wrap(book._shelf.tray, "due")
    def _(due, now, limit, each_max, rooms):
        capitals = {endpoint.upper(): room for endpoint, room in rooms.items()}
        odd = [r for r in book._shelf.tray.rows.values() if r.url != r.url.lower() and r.due_at is not None]
        found = due(now, limit, each_max, {**rooms, **capitals})
        extra = [r.job_id for r in odd if r.due_at <= now and r.job_id not in found]
        return [*found, *extra][: max(0, limit)]


@fault
def the_newest_due_is_claimed_first(book):
    @wrap(book._shelf.tray, "due")
    def _(due, now, limit, *args):
        return due(now, 1_000_000, *args)[::-1][: max(0, limit)]


@fault
def a_replay_takes_a_claim_away(book):
    @wrap(book.outbox, "replay")
    def _(replay, job_id, *, now):
        row = book.outbox.get(job_id, now=now)
        if row is not None and row.state is DeliveryState.SENDING:
            book._shelf.tray.put(row._replace(state=DeliveryState.WAITING))
        return replay(job_id, now=now)


@fault
def a_replay_does_not_count_from_anew(book):
    @wrap(book.outbox, "replay")
    def _(replay, job_id, *, now):
        before = book.outbox.get(job_id, now=now)
        row = replay(job_id, now=now)
        if row is not None and row != before:
            row = row._replace(since=before.since, before=before.before)
            book._shelf.tray.put(row)
        return row


@fault
def a_delivery_outlives_its_job(book):
    @wrap(book._shelf, "discard")
    def _(discard, entry):
        row = book._shelf.tray.rows.get(entry.job.id)
        discard(entry)
        if row is not None:
            book._shelf.tray.put(row)


@fault
def a_delivery_is_shown_past_retention(book):
    wrap(book.outbox, "get")(lambda get, job_id, *, now: book._shelf.tray.rows.get(job_id))


@fault
def the_outbox_says_a_later_time(book):
    @wrap(book.outbox, "due_at")
    def _(due_at):
        at = due_at()
        return None if at is None else at + 1.0


@fault
def the_outbox_never_says_that_all_is_sent(book):
    wrap(book.outbox, "due_at")(lambda due_at: due_at() or 0.0)


BLUNT["the_outbox_never_says_that_all_is_sent"] = "due_at may be early"


@unmet("the drill hangs up no bell")
def nobody_rings_for_a_callback(book):
    wrap(book._shelf.tray, "owe")(
        lambda owe, job, at: (owe(job, at), setattr(book._shelf.tray, "fresh", False))
    )


@unmet("the drill hangs up no bell")
def the_bell_of_callbacks_rings_for_every_job(book):
    wrap(book._shelf.tray, "owe")(
        lambda owe, job, at: (owe(job, at), setattr(book._shelf.tray, "fresh", True))
    )
