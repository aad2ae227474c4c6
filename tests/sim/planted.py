"""Bugs on purpose, each a switch of this test tree: the simulator must find every one of them."""

from forebay.core import blame, ledger, planning, retry, serving, settle
from forebay.core.batching import Trigger
from forebay.core.hand import Hand
from forebay.core.job import Hold
from forebay.core.ledger import Ledger
from forebay.core.ledger_shelf import Shelf
from forebay.core.lifecycle import FINAL, State
from forebay.sim import clients, faults, node
from forebay.sim.faults import FaultKind

PLANTED = {}


def planted(name, *invariants, jobs=None):
    """Register a bug; `invariants` are those that may catch it. `jobs`: it takes a crowd to show."""

    def register(plant):
        PLANTED[name] = (plant, invariants, jobs)
        return plant

    return register


@planted("no fence", "L3", "R3", "T1")
def _(patch):
    def holding(self, job_id, fence):
        entry = self._shelf.jobs.get(job_id)
        return entry if entry is not None and entry.state is State.RUNNING else None

    patch.setattr(Ledger, "_holding", holding)


@planted("an older fence is good enough (a result is accepted after a takeover)", "L3", "R3", "T1")
def _(patch):
    def holding(self, job_id, fence):
        entry = self._shelf.jobs.get(job_id)
        fits = entry is not None and entry.state is State.RUNNING and fence <= entry.fence
        return entry if fits else None

    patch.setattr(Ledger, "_holding", holding)


@planted("a commit that is repeated ends the job again (lost reply taken for not stored)", "T1", "L3")
def _(patch):
    def holding(self, job_id, fence):
        entry = self._shelf.jobs.get(job_id)
        if entry is not None and entry.chain is not None and entry.state is not State.RUNNING:
            return None  # it left its chain, and cannot leave it twice
        return entry if entry is not None and entry.fence == fence else None

    patch.setattr(Ledger, "_holding", holding)


@planted("the fence stays when a job is leased again", "L2")
def _(patch):
    grant = Shelf.grant

    def same_fence(self, entry, worker, now, until):
        before = entry.fence
        lease = grant(self, entry, worker, now, until)
        entry.fence = max(1, before)
        return lease._replace(fence=entry.fence)

    patch.setattr(Shelf, "grant", same_fence)


@planted("the attempt is counted after the run", "R1")
def _(patch):
    grant, apply = Shelf.grant, Ledger._apply

    def uncounted(self, entry, worker, now, until):
        lease = grant(self, entry, worker, now, until)
        entry.attempt -= 1
        return lease

    patch.setattr(Shelf, "grant", uncounted)
    patch.setattr(Ledger, "_apply", apply)


@planted("expiry is checked in the sweep only", "X1")
def _(patch):
    def lease(self, task, *, limit, lease_s, worker, now):
        now = self._tick(now)
        queue, granted = self._shelf.queues.get(task), []
        keys = sorted(key for place in queue.places() for key in place.line.order) if queue else []
        for key in keys[:limit]:
            self._shelf.jobs[key[1]].line.order.remove(key)
            granted.append(self._shelf.grant(self._shelf.jobs[key[1]], worker, now, now + lease_s))
        return granted

    patch.setattr(Ledger, "lease", lease)


@planted("the answer goes out before the commit (a crash loses what was acknowledged)", "S1")
def _(patch):
    from tests.sim import harness

    reopen = harness.reopen

    def forgetful(book, now):
        for entry in list(book._shelf.jobs.values()):
            if entry.job.created_at > now - 1.0:
                book._shelf.discard(entry)
                book.accepted -= 1
        return reopen(book, now)

    patch.setattr(harness, "reopen", forgetful)


@planted("the idempotency key is checked, then inserted", "S3")
def _(patch):
    known = Ledger._known

    def racing(self, job):
        found = known(self, job)
        if found is not None and self._shelf.jobs[found.job_id].job.created_at > job.created_at - 0.5:
            self._shelf.keys.pop((job.tenant, job.idempotency_key), None)
            return None
        return found

    patch.setattr(Ledger, "_known", racing)


@planted("a renewal raises a lapsed lease from the dead", "L4")
def _(patch):
    def renew(self, claim, now, until):
        entry = self._holding(claim.job_id, claim.fence)
        if entry is None:
            return Hold.LOST
        self._shelf.renew(entry, until)
        return Hold.CANCEL if entry.cancel_requested else Hold.HELD

    patch.setattr(Ledger, "_renew", renew)


@planted("backoff has no cap", "R2")
def _(patch):
    full_s = lambda self, attempt: self.base_s * self.factor ** (attempt - 1)
    patch.setattr(retry.RetryPolicy, "_full_s", full_s)


@planted("backoff may be nothing at all", "R2")
def _(patch):
    patch.setattr(retry.RetryPolicy, "delay_s", lambda self, *, attempt, jitter, after_s=None: after_s or 0.0)


@planted("a jump of the wall clock ends every lease", "L1")
def _(patch):
    def now(self):
        now = self.world.engine.now
        jump = self.world.windows.strike(FaultKind.CLOCK_JUMP, now)
        return now + (0.0 if jump is None else 10.0)

    patch.setattr(node.SimNode, "now", property(now))


@planted("leases are taken before they end", "L1")
def _(patch):
    sweep = Ledger.sweep

    def eager(self, *, limit, now):
        swept = sweep(self, limit=limit, now=now)
        early = [e.lease() for e in self._shelf.jobs.values() if e.state is State.RUNNING]
        return swept._replace(overdue=tuple(one for one in early if one.until <= now + 1.0))

    patch.setattr(Ledger, "sweep", eager)


@planted("a cancel overwrites the result", "T1")
def _(patch):
    cancel = Ledger._cancel

    def overwriting(self, job_id, now):
        entry = self._shelf.jobs.get(job_id)
        if entry is not None and entry.state in FINAL:
            self._shelf.take(entry)
            entry.state, entry.output = State.CANCELLED, None
            self._shelf.put(entry)
        return cancel(self, job_id, now)

    patch.setattr(Ledger, "_cancel", overwriting)


@planted("the mates of a crash are charged", "R1")
def _(patch):
    from forebay.core import dispatcher

    def charging(item, run, spec, *, alone, **rest):
        return blame.by_death(item, run, spec, alone=True, **rest)

    patch.setattr(dispatcher, "by_death", charging)


@planted("a hand-back costs an attempt", "R1")
def _(patch):
    hand_back = settle._hand_back

    def charging(lease, event, **rest):
        transition = hand_back(lease, event, **rest)
        return transition if transition.state in FINAL else transition._replace(attempt=lease.attempt)

    patch.setattr(settle, "_hand_back", charging)


@planted("suspects run together", "Q1")
def _(patch):
    def together(hand, now):
        while hand.suspects:
            replica = planning._reserved(hand)
            if replica is None or replica.runs:
                return
            task = hand.tasks[hand.suspects[0].lease.job.task]
            items = [i for i in hand.suspects if i.lease.job.task == task.spec.name][: task.spec.batch_max]
            for item in items:
                hand.suspects.remove(item)
            planning.send(hand, task, replica, items, Trigger.ALONE, now)

    patch.setattr(serving, "start_suspects", together)


@planted("something runs beside a suspect", "Q1", jobs=30)
def _(patch):
    send = planning.send

    def not_alone(hand, task, replica, items, why, now):
        send(hand, task, replica, items, Trigger.SIZE if why is Trigger.ALONE else why, now)

    patch.setattr(planning, "send", not_alone)


@planted("a caller takes a lost answer for not stored", "S3")
def _(patch):
    send = clients.SimClient.send

    def anew(self):
        if self.tries:
            self.key = f"{self.key}-again"
        send(self)

    patch.setattr(clients.SimClient, "send", anew)


@planted("what was never started is forgotten in hand", "T3")
def _(patch):
    def forgetting(self, items):
        for item in items:
            item.run = None

    take_out = Hand.take_out

    def tolerant(self, item):
        try:
            take_out(self, item)
        except ValueError:
            pass

    patch.setattr(Hand, "wait_again", forgetting)
    patch.setattr(Hand, "take_out", tolerant)


@planted("only the doorbell brings work", "T3")
def _(patch):
    from forebay.core import dispatcher

    patch.setattr(dispatcher, "POLL_S", 1e9)


@planted("a dead letter does not say why", "D1")
def _(patch):
    final = settle._final

    def silent(lease, event, **rest):
        transition = final(lease, event, **rest)
        return transition._replace(error=None)

    patch.setattr(settle, "_final", silent)


@planted("the newest job is served first", "P1")
def _(patch):
    put = Shelf.put

    def reversed_order(self, entry):
        put(self, entry)
        if entry.line is not None:
            entry.line.order.remove(entry.order)
            entry.order = (-entry.order[0], entry.order[1])
            entry.line.order.add(entry.order)

    patch.setattr(Shelf, "put", reversed_order)


@planted("a retry lets the next of its ordering key go", "K1", "P1")
def _(patch):
    settle = Shelf.settle

    def hasty(self, entry, transition):
        settle(self, entry, transition)
        if entry.state is State.RETRYING and entry.chain is not None:
            self.let_go(self.chains.leave(entry.chain, entry.job.id))
            entry.chain = None

    patch.setattr(Shelf, "settle", hasty)


@planted("the end of a job does not let the next of its ordering key go", "P1", "T3")
def _(patch):
    patch.setattr(Shelf, "let_go", lambda self, job_id: None)


@planted("an ordering key is forgotten while its job runs", "K1", "P1")
def _(patch):
    grant = Shelf.grant

    def careless(self, entry, worker, now, until):
        lease = grant(self, entry, worker, now, until)
        if entry.chain is not None:
            self.let_go(self.chains.leave(entry.chain, entry.job.id))
            entry.chain = None
        return lease

    patch.setattr(Shelf, "grant", careless)


@planted("a node takes all it can get", "B1")
def _(patch):
    from forebay.core import dispatcher

    patch.setattr(dispatcher, "room", lambda hand, task, now: 1000 if hand.replicas else 0)


@planted("the dispatcher wakes for what is past", "B1")
def _(patch):
    from forebay.core import dispatcher

    wake = dispatcher.Dispatcher._next_wake

    def spinning(self, now):
        dry = [task.dry_at for task in self.hand.tasks.values() if task.dry_at is not None]
        past = [at + dispatcher.POLL_S for at in dry if at + dispatcher.POLL_S <= now]
        return min(past) if past else wake(self, now)

    patch.setattr(dispatcher.Dispatcher, "_next_wake", spinning)


@planted("a hang is never killed", "T3")
def _(patch):
    from forebay.core import stopping

    patch.setattr(stopping, "timeout_at", lambda hand, replica: None)


@planted("the handler's output of another try is stored", "R3")
def _(patch):
    complete = settle.complete
    seen = {}

    def stale(lease, *, output, now, **options):
        output = seen.setdefault(lease.job.id, output)
        return complete(lease, output=output + b" ", now=now, **options)

    patch.setattr(settle, "complete", stale)


@planted("purged too early", "S1", "O1")
def _(patch):
    sweep = Ledger.sweep

    def sweeping(self, *, limit, now):
        swept = sweep(self, limit=limit, now=now)
        self.purge([j for j, e in self._shelf.jobs.items() if e.state in FINAL][:1], limit=1, now=now)
        return swept

    patch.setattr(Ledger, "sweep", sweeping)


@planted("the sweep's clock runs ahead", "X1", "P1", "L1", "L4")
def _(patch):
    sweep = Ledger.sweep
    patch.setattr(Ledger, "sweep", lambda self, *, limit, now: sweep(self, limit=limit, now=now + 0.4))


__all__ = ["PLANTED", "faults", "ledger"]
