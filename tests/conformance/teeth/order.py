"""Planted faults: who goes next, limits, pause and drain."""

from forebay.core.job import AGEING_S, Verdict
from forebay.core.lifecycle import State
from tests.conformance.teeth.planting import fault, ordering, unmet, wrap


@fault
def the_order_ignores_priority(book):
    ordering(book, lambda entry: entry.ready_at)


@fault
def the_order_ignores_waiting(book):
    ordering(book, lambda entry: entry.job.priority * 1e6 + (entry.ready_at % 1e6) / 1e3)


@fault
def a_level_is_worth_a_second_more(book):
    ordering(book, lambda entry: entry.ready_at + entry.job.priority * (AGEING_S + 1))


@fault
def ties_are_broken_by_arrival(book):
    arrivals = {}
    ordering(
        book,
        lambda entry: (
            entry.ready_at
            + entry.job.priority * AGEING_S
            + arrivals.setdefault(entry.job.id, len(arrivals)) * 1e-6
        ),
    )


def accounting(book, change):
    """Let `change` alter the accounts of every task."""

    @wrap(book._shelf, "queue")
    def _(queue_of, task):
        known = task in book._shelf.queues
        queue = queue_of(task)
        if not known:
            change(queue.fair)
        return queue


@fault
def tenants_take_no_turns(book):
    accounting(book, lambda fair: wrap(fair, "turn_on")(lambda turn_on: None))


@fault
def every_job_counts_the_same(book):
    accounting(book, lambda fair: wrap(fair, "settle")(lambda settle, *args: None))


@unmet("the jobs of the drill are too few to save up much")
def an_idle_tenant_saves_up(book):
    def change(fair):
        fair.spent = lambda tenant: fair._accounts[tenant].spent if tenant in fair._accounts else 0.0

    accounting(book, change)


@unmet("the jobs of the drill are too few to save up much")
def a_newcomer_goes_behind_everybody(book):
    def change(fair):
        first = lambda tenant: max((a.spent for a in fair._accounts.values()), default=0.0) + 1.0
        fair.spent = lambda tenant: fair._accounts[tenant].spent if tenant in fair._accounts else first(0)

    accounting(book, change)


@fault
def weights_are_ignored(book):
    wrap(book._shelf.shares, "weight")(lambda weight, tenant: 1.0)


@fault
def a_bound_is_ignored(book):
    wrap(book._shelf.shares, "room")(lambda room, tenant: 9.0)


@fault
def nothing_is_reserved(book):
    wrap(book, "set_reserve")(lambda set_reserve, task, others_max: None)


@fault
def a_reserve_forgets_who_has_ended(book):
    @wrap(book._shelf, "settle")
    def _(store, entry, transition):
        reserve = entry.queue.reserve
        before = reserve.running
        store(entry, transition)
        reserve.running = before


@fault
def a_bound_forgets_who_has_ended(book):
    wrap(book._shelf.shares, "ended")(lambda ended, tenant: False)


@unmet("the drill gives no bad shares")
def a_bad_share_is_taken_in_part(book):
    @wrap(book._shelf.shares, "set")
    def _(set_shares, shares, running):
        book._shelf.shares._shares = dict(shares)
        set_shares(shares, running)


@fault
def ordering_keys_are_ignored(book):
    @wrap(book._shelf, "put")
    def _(put, entry):
        chain, entry.chain = entry.chain, None
        put(entry)
        entry.chain = chain


@fault
def an_ordering_key_knows_no_tenant(book):
    @wrap(book, "_store")
    def _(store, job, now):
        from forebay.core import ledger_entry, ledger_shelf

        chain_of = ledger_entry.chain_of
        glued = lambda job: None if job.ordering_key is None else (job.task, "", job.ordering_key)
        ledger_entry.chain_of = ledger_shelf.chain_of = glued
        try:
            return store(job, now)
        finally:
            ledger_entry.chain_of = ledger_shelf.chain_of = chain_of


@fault
def a_retry_frees_its_ordering_key(book):
    @wrap(book._shelf, "settle")
    def _(store, entry, transition):
        store(entry, transition)
        if entry.state is State.RETRYING and entry.chain is not None:
            book._shelf.let_go(book._shelf.chains.leave(entry.chain, entry.job.id))
            entry.chain = None


@fault
def a_dead_letter_keeps_its_ordering_key(book):
    @wrap(book._shelf, "settle")
    def _(store, entry, transition):
        if transition.state is State.DEAD and entry.chain is not None:
            chain, entry.chain = entry.chain, None
            store(entry, transition)
            entry.chain = chain
        else:
            store(entry, transition)


@fault
def the_next_of_an_ordering_key_is_forgotten(book):
    wrap(book._shelf, "let_go")(lambda let_go, job_id: None)


@unmet("the drill hears no bells")
def nobody_hears_that_an_ordering_key_is_free(book):
    wrap(book, "freed")(lambda freed: set())


@fault
def deadlines_are_ignored(book):
    wrap(book, "set_order")(lambda set_order, task, order: None)


@fault
def an_order_holds_for_later_jobs_only(book):
    @wrap(book, "set_order")
    def _(set_order, task, order):
        book._shelf.orders[task] = order
        if task in book._shelf.queues:
            book._shelf.queues[task].order = order


@fault
def an_amendment_is_stored_and_not_followed(book):
    @wrap(book, "amend")
    def _(amend, job_id, change, *, now):
        entry = book._shelf.jobs.get(job_id)
        before = None if entry is None else entry.order
        verdict = amend(job_id, change, now=now)
        if entry is not None and entry.line is not None and change.task is None:
            entry.line.order.remove(entry.order)
            entry.order = before
            entry.line.order.add(before)
        return verdict


@fault
def a_moved_job_leaves_its_bytes_behind(book):
    @wrap(book, "amend")
    def _(amend, job_id, change, *, now):
        entry = book._shelf.jobs.get(job_id)
        before = None if entry is None else entry.queue
        verdict = amend(job_id, change, now=now)
        if entry is not None and entry.queue is not before:
            before.bytes += entry.size
            entry.queue.bytes -= entry.size
        return verdict


@fault
def a_moved_job_keeps_its_version(book):
    @wrap(book, "amend")
    def _(amend, job_id, change, *, now):
        entry = book._shelf.jobs.get(job_id)
        version = "" if entry is None else entry.job.version
        return amend(job_id, change._replace(version=version), now=now)


@fault
def a_moved_job_blocks_its_old_ordering_key(book):
    @wrap(book, "amend")
    def _(amend, job_id, change, *, now):
        entry = book._shelf.jobs.get(job_id)
        chain = None if entry is None else entry.chain
        verdict = amend(job_id, change, now=now)
        if chain is not None and entry.chain != chain:
            book._shelf.chains.enter(chain, "0" * 36)
        return verdict


@fault
def a_running_job_is_amended(book):
    @wrap(book, "amend")
    def _(amend, job_id, change, *, now):
        entry = book._shelf.jobs.get(job_id)
        if entry is not None and entry.state is State.RUNNING and change.priority is not None:
            entry.job = entry.job._replace(priority=change.priority)
        return amend(job_id, change, now=now)


@fault
def the_limit_is_passed_by_one(book):
    wrap(book, "lease")(lambda lease, task, *, limit, **o: lease(task, limit=limit + 1, **o))


@fault
def a_pause_is_ignored(book):
    @wrap(book, "lease")
    def _(lease, task, **options):
        queue = book._shelf.queues.get(task)
        paused, task_queue = (queue.paused, queue) if queue else (False, None)
        if task_queue:
            task_queue.paused = False
        leases = lease(task, **options)
        if task_queue:
            task_queue.paused = paused
        return leases


@fault
def a_drain_is_not_told(book):
    wrap(book, "depth")(lambda depth, task, *, now: depth(task, now=now)._replace(draining=False))


@fault
def a_drain_stops_the_leases(book):
    @wrap(book, "lease")
    def _(lease, task, **options):
        queue = book._shelf.queues.get(task)
        return [] if queue is not None and queue.draining else lease(task, **options)


@fault
def a_resume_does_not_end_a_drain(book):
    wrap(book, "drain")(lambda drain, task, *, draining, now: drain(task, draining=True, now=now))


@fault
def a_key_is_recalled_of_another_tenant(book):
    @wrap(book._shelf, "by_key")
    def _(by_key, job):
        tenants = {tenant for tenant, key in book._shelf.keys if key == job.idempotency_key}
        return by_key(job._replace(tenant=min(tenants, default="")))


@fault
def a_key_is_recalled_whatever_the_body(book):
    @wrap(book, "recall")
    def _(recall, jobs, *, now):
        found = recall(jobs, now=now)
        return [one and one._replace(verdict=Verdict.REPLAYED) for one in found]


@fault
def a_recall_stores_what_it_does_not_find(book):
    @wrap(book, "recall")
    def _(recall, jobs, *, now):
        found = recall(jobs, now=now)
        book.enqueue([job for job, known in zip(jobs, found) if known is None], now=now)
        return found


@fault
def a_pause_of_one_task_stops_all(book):
    @wrap(book, "lease")
    def _(lease, task, **options):
        return [] if any(q.paused for q in book._shelf.queues.values()) else lease(task, **options)
