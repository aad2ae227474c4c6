"""Drill: the same random calls on a broker and on a Ledger, every answer and every record compared.

Few ids, whole seconds, mostly live leases and now and then a stale one: boundaries and repeats are met
all the time. What the Ledger answers is checked against the records as well, so that a fault in both
engines alike does not go unseen.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from forebay.core import settle
from forebay.core.fairness import Share
from forebay.core.job import (
    AGEING_S,
    Amendment,
    AmendVerdict,
    Claim,
    Depth,
    Job,
    JobError,
    Lease,
    Line,
    Query,
)
from forebay.core.ledger import Ledger
from forebay.core.lifecycle import FINAL, WAITING, State
from forebay.core.outbox import DeliveryState, DeliveryStep, Try, endpoint_of
from forebay.core.retention import Retention
from forebay.core.retry import RetryPolicy
from forebay.core.settle import SettlePolicy
from forebay.core.tenant import Held
from forebay.core.turns import Order

T0 = 1_800_000_000.0
TASKS = ("a", "b")
RETENTION_S = 20.0
OPEN_MAX = 25  # jobs; past it the drill stops making new ones, so that old ones get their turn
POLICY = SettlePolicy(retry=RetryPolicy(base_s=4.0, factor=2.0, cap_s=8.0), deaths_max=2, releases_max=3)
DEADLY = replace(POLICY, quarantine_deaths=2)
URLS = ("https://a.example/x", "https://A.example/y?z", "http://b.example:81")
BOOM = JobError("handler_error", "boom", "ValueError", 1)
BLOB = "ddd9c40767f90000000003e800000000" + 24 * "0"
NOBODY = "00000000-0000-7000-8000-000000000000"


class DisagreementError(AssertionError):
    """The broker and the Ledger, or the Ledger and its own records, do not say the same."""


@dataclass
class Drill:
    """One run: `seed` decides everything."""

    broker: object
    seed: int
    reopen: object = None
    steps: int = 300
    now: float = T0
    ids: list = field(default_factory=list)  # every id ever stored and not purged, oldest first
    purged: list = field(default_factory=list)
    leases: list = field(default_factory=list)  # every lease ever given, newest last
    draining: set = field(default_factory=set)  # tasks, as they were told
    joined: dict = field(default_factory=dict)  # keys of submissions that joined a job: its id, their body
    done: list = field(default_factory=list)
    claims: list = field(default_factory=list)  # every claim of a delivery, newest last
    shares: dict = field(default_factory=dict)
    orders: dict = field(default_factory=dict)
    reserved: dict = field(default_factory=dict)
    kept: dict = field(default_factory=dict)

    async def run(self):
        self.chance = random.Random(self.seed)
        self.ledger = Ledger(retention_s=RETENTION_S, new_id=self.broker.new_id)
        verbs = {
            self.enqueue: 16,
            self.lease: 16,
            self.commit: 20,
            self.extend: 8,
            self.cancel: 4,
            self.sweep: 14,
            self.pause: 2,
            self.drain: 2,
            self.recall: 4,
            self.purge: 4,
            self.amend: 4,
            self.share: 1,
            self.arrange: 1,
            self.reserve: 1,
            self.keep: 1,
            self.redrive: 4,
            self.edit: 3,
            self.let_go: 3,
            self.claim: 6,
            self.deliver: 6,
            self.replay: 1,
            self.fire: 4,
            self.steer: 1,
            self.forget_marks: 1,
            self.find: 4,
            self.look: 8,
        }
        if self.reopen is not None:
            verbs[self.open_again] = 1
        try:
            for _ in range(self.steps):
                self.now += self.chance.choice((0, 0, 0, 1, 1, 2, 0.5))
                verb = self.chance.choices(list(verbs), list(verbs.values()))[0]
                await verb()
            await self.look()
        except DisagreementError as found:
            tail = "\n  ".join(self.done[-12:])
            raise DisagreementError(f"seed {self.seed}, step {len(self.done)}: {found}\n  {tail}") from None
        finally:
            await self.broker.close()

    # The verbs

    async def enqueue(self):
        jobs = [self.a_job() for _ in range(self.chance.choice((1, 1, 1, 2, 4)))]
        if self.ids and self.chance.random() < 0.2:
            known = self.ledger.get(self.chance.choice(self.ids), now=self.now)
            if known is not None:
                other = known.job._replace(body_hash=self.chance.choice((known.job.body_hash, b"z")))
                jobs.insert(self.chance.randrange(len(jobs) + 1), other)
        running = [r.job.fingerprint for r in self.records() if r.standing.state is State.RUNNING]
        if any(running) and self.chance.random() < 0.3:  # somebody wants what is being done
            jobs[0] = jobs[0]._replace(fingerprint=self.chance.choice([one for one in running if one]))
        receipts = await self.both("enqueue", jobs)
        for receipt in receipts:
            if receipt.verdict.value == "stored":
                self.ids.append(receipt.job_id)
        for job, receipt in zip(jobs, receipts, strict=True):
            if receipt.verdict.value == "joined" and job.idempotency_key is not None:
                self.joined[job.tenant, job.idempotency_key] = (receipt.job_id, job.body_hash)

    async def lease(self):
        task, limit = self.chance.choice(TASKS), self.chance.choice((0, 1, 1, 2, 5))
        before = self.grantable(task)
        leases = await self.both(
            "lease", task, limit=limit, lease_s=float(self.chance.choice((1, 3, 6))), worker="w"
        )
        self.in_order([lease.job.id for lease in leases], before, limit)
        self.leases += leases

    async def commit(self):
        chosen = self.holders(self.chance.choice((1, 1, 2, 3)))
        if chosen and self.chance.random() < 0.1:
            chosen.append(chosen[0])
        transitions = [
            self.decision(lease._replace(worker=self.chance.choice(("w", "w/1")))) for lease in chosen
        ]
        current = {}
        for job_id in {t.job_id for t in transitions}:
            record = self.ledger.get(job_id, now=self.now)
            current[job_id] = (
                record.standing.fence if record and record.standing.state is State.RUNNING else None
            )
        expected = []
        for t in transitions:
            expected.append(t.fence == current[t.job_id])
            if expected[-1]:
                current[t.job_id] = None
        self.agree(await self.both("commit", transitions), expected, "the fences by the records")

    async def extend(self):
        claims = [
            Claim(
                lease.job.id,
                lease.fence,
                self.chance.choice((None, b'"p"', b'"q"')),
                self.chance.choice((None, b"1", b"2")),
            )
            for lease in self.holders(self.chance.choice((1, 2, 3)))
        ]
        await self.both("extend", claims, lease_s=float(self.chance.choice((1, 3, 6))))

    async def cancel(self):
        await self.both("cancel", [self.some_id() for _ in range(self.chance.choice((1, 1, 2)))])

    async def sweep(self):
        limit = self.chance.choice((1, 2, 100))
        swept = await self.both("sweep", limit=limit)
        if limit == 100:
            for record in self.records():
                self.nothing_is_late(record)
        for lease in swept.overdue:
            if self.chance.random() < 0.7:
                transition = settle.lose(lease, error=BOOM, now=self.now)
                self.agree(await self.both("commit", [transition]), [True], "commit of an overdue lease")

    async def pause(self):
        await self.both("pause", self.chance.choice((*TASKS, "c")), paused=self.chance.random() < 0.4)

    async def drain(self):
        task, draining = self.chance.choice((*TASKS, "c")), self.chance.random() < 0.4
        await self.both("drain", task, draining=draining)
        (self.draining.add if draining else self.draining.discard)(task)

    async def recall(self):
        jobs = [self.a_job() for _ in range(2)]
        expected = [self.key_by_the_records(job) for job in jobs]
        found = await self.both("recall", jobs)
        self.agree(
            [one and (one.verdict.value, one.job_id) for one in found], expected, "keys by the records"
        )

    def key_by_the_records(self, job):
        joined = self.joined.get((job.tenant, job.idempotency_key))
        if joined is not None and joined[0] in self.ids:
            return ("replayed" if joined[1] == job.body_hash else "conflict", joined[0])
        for job_id in self.ids:
            entry = self.ledger._shelf.jobs[job_id].job
            if job.idempotency_key is not None and (entry.tenant, entry.idempotency_key) == (
                job.tenant,
                job.idempotency_key,
            ):
                return ("replayed" if entry.body_hash == job.body_hash else "conflict", job_id)
        return None

    async def amend(self):
        change = Amendment(
            priority=self.chance.choice((None, 0, 5, 9)), task=self.chance.choice((None, *TASKS)), version="9"
        )
        job_id = self.some_id()
        standing = next((r.standing for r in self.records() if r.job.id == job_id), None)
        verdict = await self.both("amend", job_id, change)
        waits = standing is not None and standing.state in WAITING
        self.agree(verdict is AmendVerdict.AMENDED, waits, "an amendment by the records")

    async def share(self):
        weight, running_max = self.chance.choice((1.0, 4.0)), self.chance.choice((None, None, 1, 2))
        self.shares = {"x": Share(weight, running_max)}
        self.done.append(f"+{self.now - T0:g} shares {self.shares}")
        self.ledger.set_shares(self.shares)
        self.broker.set_shares(self.shares)

    async def keep(self):
        of = lambda: Retention(float(self.chance.choice((5, 20, 40))), float(self.chance.choice((5, 20, 60))))
        self.kept = {task: of() for task in TASKS if self.chance.random() < 0.6}
        self.done.append(f"+{self.now - T0:g} retention {self.kept}")
        self.ledger.set_retention(self.kept)
        self.broker.set_retention(self.kept)

    async def reserve(self):
        self.reserved[self.chance.choice(TASKS)] = self.chance.choice((None, None, 0, 1, 3))
        for task, most in self.reserved.items():
            self.ledger.set_reserve(task, most)
            self.broker.set_reserve(task, most)

    async def arrange(self):
        self.orders[self.chance.choice(TASKS)] = self.chance.choice(list(Order))
        await self.settle_orders()

    async def settle_orders(self):
        self.done.append(f"+{self.now - T0:g} orders {self.orders}")
        for task, order in self.orders.items():
            self.ledger.set_order(task, order)
            await self.broker.set_order(task, order)

    async def purge(self):
        named = self.chance.random() < 0.3
        ids = [self.some_id() for _ in range(2)] if named else None
        before = {r.job.id for r in self.records() if r.standing.state not in FINAL}
        await self.both("purge", ids, limit=self.chance.choice((1, 100)))
        held = {job_id for job_id, _, _ in self.ledger.states(self.ids)}
        self.agree(before - held, set(), "open jobs that a purge removed")
        self.purged += [job_id for job_id in self.ids if job_id not in held]
        self.ids = [job_id for job_id in self.ids if job_id in held]

    async def redrive(self):
        letters = [r.job.id for r in self.records() if r.standing.state is State.DEAD]
        job_id = self.chance.choice(letters) if letters and self.chance.random() < 0.8 else self.some_id()
        receipt = await self.both("redrive", job_id, self.a_job())
        if receipt is not None and receipt.verdict.value == "stored":
            self.ids.append(receipt.job_id)

    async def edit(self):
        letters = [r.job.id for r in self.records() if r.standing.state is State.DEAD]
        job_id = self.chance.choice(letters) if letters and self.chance.random() < 0.8 else self.some_id()
        payload = self.chance.choice((b"1", b"2", b'{"$blob":"%b"}' % BLOB.encode()))
        found = self.ledger.get(job_id, now=self.now)
        dead = found is not None and found.standing.state is State.DEAD
        self.agree(await self.both("edit", job_id, payload), dead, "whether it is a dead letter")
        await self.both("held", [BLOB])

    async def let_go(self):
        held = self.ledger.quarantine.listed(limit=9, now=self.now)
        if not held:
            return
        if self.chance.random() < 0.5:
            row, tenant = self.chance.choice(held), self.chance.choice((None, "x", "y"))
            theirs = self.ledger.quarantine.release(row.fingerprint, tenant=tenant, now=self.now)
            ours = await self.broker.quarantine.release(row.fingerprint, tenant=tenant, now=self.now)
            self.agree(theirs, row if tenant in {None, row.tenant} else None, "who may release what")
        else:
            asked = {"tenant": self.chance.choice((None, "x")), "job_ids": [held[0].job_id]}
            theirs = self.ledger.quarantine.forget(**asked)
            ours = await self.broker.quarantine.forget(**asked)
        self.done.append(f"+{self.now - T0:g} let go")
        self.agree(ours, theirs, "what was let go")

    async def claim(self):
        limit, each_max = self.chance.choice((0, 1, 3, 100)), self.chance.choice((1, 2, 100))
        rooms = {
            endpoint_of(url): self.chance.choice((0, 1, 2)) for url in URLS if self.chance.random() < 0.2
        }
        lease_s = float(self.chance.choice((1, 3, 6)))
        asked = {"limit": limit, "each_max": each_max, "rooms": rooms, "lease_s": lease_s}
        due_at = self.broker.outbox.due_at()
        rows = await self.outbox("claim", **asked)
        self.agree(bool(rows) and (due_at is None or due_at > self.now), False, "claimed before due_at")
        self.claims += rows

    async def deliver(self):
        rows = self.chance.sample(self.claims[-8:], min(len(self.claims), self.chance.choice((1, 1, 2))))
        steps = []
        for row in rows:
            state = self.chance.choice(
                [state for state in DeliveryState if state is not DeliveryState.SENDING]
            )
            due_at = self.now + self.chance.choice((0, 2, 5)) if state is DeliveryState.WAITING else None
            tried = Try(row.tries, self.now, 0.5, self.chance.choice((None, 200, 500)), "why")
            steps.append(DeliveryStep(row.job_id, state, tried, self.now, due_at))
        await self.outbox("settle", steps)

    async def replay(self):
        await self.outbox("replay", self.some_id())

    async def fire(self):
        name, due_at = self.chance.choice("pq"), T0 + self.chance.randrange(-5, 60)
        before = next((mark for mark in self.ledger.crons.marks() if mark.name == name), None)
        job = self.chance.choice((None, self.a_job()._replace(fingerprint=None)))
        skipped = "" if job is not None else self.chance.choice(("new", "missed", "overlap"))
        asked = {"when": self.chance.choice(("w", "w", "v")), "skipped": skipped}
        receipt = await self.crons("fire", name, due_at, job, **asked)
        free = before is None or (before.due_at < due_at and not before.paused)
        self.agree(receipt is not None, job is not None and free, "a job for a due instant by the mark")
        if receipt is not None and receipt.verdict.value == "stored":
            self.ids.append(receipt.job_id)

    async def steer(self):
        mark = await self.crons("steer", self.chance.choice("pq"), paused=self.chance.random() < 0.4)
        self.agree(mark.due_at <= self.now or mark.paused, True, "an entry goes on from now")

    async def forget_marks(self):
        await self.crons("forget", self.chance.choices(("p", "q", "never"), k=2))

    async def crons(self, verb, *args, **options):
        self.done.append(f"+{self.now - T0:g} {verb} {short(args)} {options}")
        theirs = getattr(self.ledger.crons, verb)(*args, now=self.now, **options)
        ours = await getattr(self.broker.crons, verb)(*args, now=self.now, **options)
        self.agree(ours, theirs, verb)
        self.agree(await self.broker.crons.marks(), self.ledger.crons.marks(), "marks")
        return theirs

    async def outbox(self, verb, *args, **options):
        self.done.append(f"+{self.now - T0:g} {verb} {short(args)} {options}")
        theirs = getattr(self.ledger.outbox, verb)(*args, now=self.now, **options)
        ours = await getattr(self.broker.outbox, verb)(*args, now=self.now, **options)
        self.agree(ours, theirs, verb)
        return theirs

    async def find(self):
        query = Query(
            limit=self.chance.choice((1, 3, 50)),
            task=self.chance.choice((None, "a")),
            states=self.chance.choice((None, None, FINAL, frozenset({State.QUEUED, State.RUNNING}))),
            tenant=self.chance.choice((None, None, "x")),
            metadata=self.chance.choice(((), (), (("k", "1"),))),
            window_max=self.chance.choice((4, 10_000)),
        )
        ours, theirs = [await self.walk(book, query) for book in (self.broker, self.ledger)]
        self.done.append(f"+{self.now - T0:g} find {query}")
        self.agree(ours, theirs, f"what {query} finds")

    async def open_again(self):
        crash = self.chance.random() < 0.5
        self.done.append(f"+{self.now - T0:g} open again, crash={crash}")
        self.broker = await self.reopen(self.broker, crash=crash, now=self.now)
        self.ledger._new_id = self.broker.new_id
        self.ledger.recover(now=self.now)
        self.ledger.set_shares(self.shares)
        for task, most in self.reserved.items():
            self.ledger.set_reserve(task, most)
            self.broker.set_reserve(task, most)
        self.broker.set_retention(self.kept)
        self.broker.set_shares(self.shares)  # not stored: whoever opens a store says it again
        await self.settle_orders()
        await self.look()

    async def look(self):
        """Compare everything a reader can see."""
        self.done.append(f"+{self.now - T0:g} look")
        self.agree(await self.broker.tasks(), self.ledger.tasks(), "tasks")
        ours = await self.broker.quarantine.listed(limit=100, now=self.now)
        self.agree(ours, self.ledger.quarantine.listed(limit=100, now=self.now), "what is in quarantine")
        counts = dict(self.broker.quarantine.counts())
        self.agree(counts, dict(Counter(row.task for row in ours)), "how many are in quarantine")
        for job_id in (*self.ids, *self.purged[-3:], NOBODY):
            await self.same("get", job_id)
            await self.same("position", job_id)
            row = self.ledger.outbox.get(job_id, now=self.now)
            self.agree(await self.broker.outbox.get(job_id, now=self.now), row, f"the delivery of {job_id}")
            record = self.ledger.get(job_id, now=self.now)
            owed = record is not None and record.job.callback_url and record.standing.state in FINAL
            self.agree(row is not None, bool(owed), f"a delivery of {job_id} by its record")
            self.agree(await self.same("waits_for", job_id), self.held_back_by(job_id), "who waits for whom")
            if self.ledger.get(job_id, now=self.now) is not None:
                self.agree(await self.broker.was_purged(job_id, now=self.now), False, "was_purged")
            for tenant in ("x", "y"):
                ours = self.ledger.was_purged(job_id, tenant=tenant, now=self.now)
                told = await self.broker.was_purged(job_id, tenant=tenant, now=self.now)
                self.agree(told, ours, f"whether {tenant} had {job_id}")
        for task in (*TASKS, "c"):
            depth = await self.same("depth", task)
            self.agree(depth, self.counted(task, depth), "the depth by the records")
        for tenant in ("", "x", "y"):
            holding = self.broker.holding_now(tenant, now=self.now)
            self.agree(holding, self.ledger.holding(tenant, now=self.now), f"what {tenant!r} holds")
            self.agree(holding, self.held_by(tenant), "the holding by the records")
        self.agree(self.ledger.audit(), [], "the audit of the Ledger")

    # Both books

    async def both(self, verb, *args, **options):
        self.done.append(f"+{self.now - T0:g} {verb} {short(args)} {options}")
        theirs = getattr(self.ledger, verb)(*args, now=self.now, **options)
        ours = await getattr(self.broker, verb)(*args, now=self.now, **options)
        self.agree(ours, theirs, verb)
        for job_id in touched(args, theirs):
            await self.same("get", job_id)
        return theirs

    async def same(self, verb, argument):
        theirs = getattr(self.ledger, verb)(argument, now=self.now)
        self.agree(await getattr(self.broker, verb)(argument, now=self.now), theirs, f"{verb} {argument}")
        return theirs

    async def walk(self, book, query):
        found = []
        for _ in range(200):
            page = book.find(query, now=self.now)
            page = page if book is self.ledger else await page
            found += page.records
            if page.next_after is None:
                return found
            query = query._replace(after=page.next_after)
        raise DisagreementError("a listing without a last page")

    def agree(self, ours, theirs, what):
        if ours != theirs:
            raise DisagreementError(f"{what}:\n    got      {ours!r}\n    expected {theirs!r}")

    # What the records say must happen

    def records(self):
        """Every record, those past retention and not purged yet too: they still count as dead."""
        shelf = self.ledger._shelf
        return [shelf.jobs[job_id].record() for job_id in self.ids]

    def grantable(self, task):
        if self.ledger.depth(task, now=self.now).paused:
            return []
        ready = [r for r in self.records() if r.job.task == task and r.standing.state is State.QUEUED]
        ready = [r for r in ready if not any(at is not None and at <= self.now for at in ends(r.job))]
        ready = [r for r in ready if self.held_back_by(r.job.id) is None]
        ready.sort(key=self.key)
        return ready

    def key(self, record):
        job, at = record.job, record.standing.ready_at
        if self.orders.get(job.task) is Order.DEADLINE:
            at = at + 86_400 if job.deadline_at is None else job.deadline_at
        return at + job.priority * AGEING_S, job.id

    def held_back_by(self, job_id):
        """The earlier job of the same ordering key that a waiting job waits for, by the records."""
        records = {r.job.id: r for r in self.records()}
        if job_id not in records or records[job_id].standing.state not in WAITING:
            return None
        job = records[job_id].job
        if job.ordering_key is None:
            return None
        chain = [
            r
            for r in records.values()
            if r.standing.state not in FINAL
            and (r.job.task, r.job.tenant, r.job.ordering_key) == (job.task, job.tenant, job.ordering_key)
        ]
        running = [r.job.id for r in chain if r.standing.state is State.RUNNING]
        self.agree(len(running) <= 1, True, f"one at a time of {job.ordering_key}")
        first = running[0] if running else min(r.job.id for r in chain)
        return None if first == job_id else first

    def in_order(self, granted, ready, limit):
        """Each grant is the first of its tenant and priority; with one tenant the first of all."""
        room = {r.job.tenant: 10**6 for r in ready}
        for tenant, share in self.shares.items():
            if share.running_max is not None and tenant in room:
                open_now = [r for r in self.records() if r.standing.state is State.RUNNING]
                mine = sum(r.job.tenant == tenant and r.job.id not in granted for r in open_now)
                room[tenant] = max(0, share.running_max - mine)
        task = ready[0].job.task if ready else ""
        self.others = 10**6 if self.reserved.get(task) is None else self.reserved[task]
        for record in self.records():
            runs = record.standing.state is State.RUNNING and record.job.id not in granted
            self.others -= runs and record.job.task == task and record.job.priority > 2
        left = [r for r in ready if room[r.job.tenant] > 0 and self.kept_free(r)]
        for job_id in granted:
            mine = next((r for r in left if r.job.id == job_id), None)
            self.agree(mine is not None, True, f"{job_id} could be granted")
            alone = len({r.job.tenant for r in left}) == 1
            kin = [r for r in left if alone or self.kin(r) == self.kin(mine)]
            self.agree(job_id, kin[0].job.id, "the order by the records")
            room[mine.job.tenant] -= 1
            self.others -= mine.job.priority > 2
            left = [r for r in left if r is not mine and room[r.job.tenant] > 0 and self.kept_free(r)]
        self.agree(len(granted) < limit and bool(left), False, "a grant that was possible")

    def kept_free(self, record):
        return record.job.priority <= 2 or self.others > 0

    def kin(self, record):
        return record.job.tenant, record.job.priority

    def nothing_is_late(self, record):
        job, standing = record.job, record.standing
        waits = standing.state in (State.SCHEDULED, State.QUEUED, State.RETRYING)
        late = [at for at in ends(job) if waits and at is not None and at <= self.now]
        self.agree(late, [], f"{job.id} waits past its end after a sweep")
        due = standing.state in (State.SCHEDULED, State.RETRYING) and standing.ready_at <= self.now
        self.agree(due, False, f"{job.id} is due after a sweep")

    def counted(self, task, depth):
        mine = [r for r in self.records() if r.job.task == task]
        states = [r.standing.state for r in mine]
        queued = [r.standing.ready_at for r in mine if r.standing.state is State.QUEUED]
        return Depth(
            queued=len(queued),
            scheduled=states.count(State.SCHEDULED),
            retrying=states.count(State.RETRYING),
            running=states.count(State.RUNNING),
            bytes=sum(r.job.size for r in mine if r.standing.state not in FINAL),
            oldest_at=min(queued, default=None),
            paused=depth.paused,
            draining=task in self.draining,
            dead=states.count(State.DEAD),
            lines=self.lines_of(mine),
        )

    def lines_of(self, records):
        found = {}
        for r in records:
            if r.standing.state is State.QUEUED and self.held_back_by(r.job.id) is None:
                found.setdefault(r.job.priority, []).append(r.standing.ready_at)
        return tuple(Line(priority, len(at), min(at)) for priority, at in sorted(found.items()))

    def held_by(self, tenant):
        mine = [r for r in self.records() if r.job.tenant == tenant and r.standing.state not in FINAL]
        return Held(len(mine), sum(r.job.size for r in mine))

    # Chance

    def a_job(self):
        draw, now = self.chance, self.now
        run_at = now + draw.choice((0, 0, 0, 0, -1, -70, 2, 4))
        full = sum(r.standing.state not in FINAL for r in self.records()) >= OPEN_MAX
        return Job(
            id=self.broker.new_id(now),
            task=draw.choice(TASKS),
            payload=b"x" * draw.choice((0, 1, 7)),
            created_at=now,
            run_at=run_at,
            priority=draw.choice((5, 5, 4, 6, 0, 9)),
            attempts_max=draw.choice((1, 2, 3)),
            expires_at=run_at + draw.choice((1, 2, 4)) if full else maybe(draw, run_at, (3, 5, 9)),
            deadline_at=maybe(draw, now, (2, 5, 9)),
            tenant=draw.choice(("", "x")),
            idempotency_key=draw.choice((None, None, None, "k1", "k2", "k3")),
            body_hash=draw.choice((b"1", b"1", b"2")),
            ordering_key=draw.choice((None, None, "o1", "o2")),
            metadata=draw.choice((b"", b'{"k":"1"}', b'{"k":"2"}')),
            callback_url=draw.choice((None, *URLS)),
            fingerprint=draw.choice((None, None, None, b"f1", b"f2")),
            cache_s=draw.choice((0.0, 2.0, 5.0)),
        )

    def some_id(self):
        if not self.ids or self.chance.random() < 0.05:
            return self.chance.choice((NOBODY, *self.purged[-2:]))
        return self.chance.choice(self.ids)

    def holders(self, count):
        """Mostly current holders, now and then one whose lease is over."""
        chosen = []
        for _ in range(count):
            running = [r.job.id for r in self.records() if r.standing.state is State.RUNNING]
            live = [lease for lease in self.leases[-40:] if lease.job.id in running]
            newest = list({lease.job.id: lease for lease in live}.values())
            stale = self.chance.random() < 0.15 or not newest
            pool = self.leases[-60:] if stale else newest
            if pool:
                chosen.append(self.chance.choice(pool))
        return chosen

    def decision(self, lease: Lease):
        draw, now = self.chance, self.now
        decide = draw.choice(
            (
                lambda: settle.complete(lease, output=draw.choice((b"1", b"")), now=now),
                lambda: settle.complete(lease, output=b"2", now=now),
                lambda: settle.complete(lease, output=b"3", now=now)._replace(degraded=draw.choice((1, 15))),
                lambda: settle.fail(lease, error=BOOM, policy=POLICY, now=now, jitter=0.0),
                lambda: settle.fail(lease, error=BOOM, policy=POLICY, now=now, jitter=0.5, permanent=True),
                lambda: settle.die(lease, error=BOOM, policy=POLICY, now=now, jitter=0.0),
                lambda: settle.die(lease, error=BOOM, policy=DEADLY, now=now, jitter=0.0),
                lambda: settle.suspect(lease, error=BOOM, policy=POLICY, now=now),
                lambda: settle.lose(lease, error=BOOM, now=now),
                lambda: settle.release(lease, policy=POLICY, now=now),
                lambda: settle.defer(lease, until=now + draw.choice((-1, 0, 2, 4)), policy=POLICY, now=now),
                lambda: settle.expire(lease, now=now),
                lambda: settle.cancel(lease, now=now),
            )
        )
        transition = decide()
        if transition.state in FINAL:
            return transition
        return transition._replace(checkpoint=draw.choice((None, b"3")))


def maybe(draw, start, options):
    return None if draw.random() < 0.6 else start + draw.choice(options)


def ends(job):
    return (job.expires_at, job.deadline_at)


def touched(args, answer):
    """Ids that the call names or that the answer is about."""
    found = set()
    for value in args:
        for each in value if isinstance(value, list) else [value]:
            found.add(getattr(each, "job_id", None) or getattr(each, "id", None) or each)
    for each in getattr(answer, "promoted", ()) + getattr(answer, "expired", ()):
        found.add(each)
    if isinstance(answer, list):
        found |= {each.job.id for each in answer if isinstance(each, Lease)}
    return sorted(each for each in found if isinstance(each, str) and len(each) == 36)


def short(args):
    text = repr(args)
    return text if len(text) <= 600 else text[:600] + "..."
