"""SimClient: one submission by one caller, who asks again until somebody answers."""

from forebay.core.job import CancelVerdict, Job, Receipt, Verdict
from forebay.errors import StoreUnavailableError
from forebay.sim.faults import FaultKind
from forebay.sim.plan import PlannedJob
from forebay.sim.stage import Stage

RETRY_S = 0.3
TRIES_MAX = 200


class SimClient:
    """Sends its job, again with the same key when nothing or an error comes back, and cancels if planned."""

    def __init__(self, job: PlannedJob, world: Stage) -> None:
        self.job = job
        self.world = world
        self.done = False
        self.job_id: str | None = None
        self.tries = 0
        # Without a key of its own it gets one when it has to repeat itself: our client does so.
        self.key = job.key or f"own-{job.number}"
        world.engine.at(job.at, self.send)

    def send(self) -> None:
        """Submit once."""
        world, job = self.world, self.job
        self.tries += 1
        body = b"%d" % job.body if job.key else b"own"
        world.checker.sent(job.number, tenant=job.tenant, key=self.key, body=body)
        receipt = None
        if not world.struck(FaultKind.SUBMIT_LOST):
            receipt = self._submit(body)
            if receipt is not None and world.struck(FaultKind.SUBMIT_TWICE):
                self._submit(body)
            if world.struck(FaultKind.SUBMIT_UNANSWERED):
                receipt = None
        if receipt is not None:
            world.engine.after(world.latency(), self._answered, receipt)
        elif self.tries < TRIES_MAX:
            world.engine.after(RETRY_S, self.send)
        else:
            self.done = True

    def _submit(self, body: bytes) -> Receipt | None:
        world, plan, now = self.world, self.job, self.world.engine.now
        run_at = now + plan.run_in_s
        job = Job(
            id=world.store.new_id(now),
            task=plan.task,
            payload=b"{}" if plan.size_b <= 2 else b"%*d" % (plan.size_b, 0),
            created_at=now,
            run_at=run_at,
            priority=plan.priority,
            attempts_max=plan.attempts_max,
            expires_at=None if plan.ttl_s is None else run_at + plan.ttl_s,
            deadline_at=None if plan.deadline_s is None else run_at + plan.deadline_s,
            tenant=plan.tenant,
            ordering_key=plan.ordering_key,
            idempotency_key=self.key,
            body_hash=body,
        )
        try:
            world.must_write()
            (receipt,) = world.store.enqueue([job], [plan.number], now=now)
        except StoreUnavailableError:
            return None
        world.note("submit", plan.number, receipt.verdict.value, receipt.job_id)
        if receipt.verdict is Verdict.STORED:
            world.scripts[job.id] = plan
            if world.forecasts is not None:
                world.forecasts.stored(job)
            world.tell([job.id])
        return receipt

    def _answered(self, receipt: Receipt) -> None:
        if self.done:
            return
        self.done = True
        if receipt.verdict is Verdict.CONFLICT:
            self.world.checker.conflicted(self.job.number)
            return
        self.job_id = receipt.job_id
        self.world.checker.acknowledged(self.job.number, receipt.job_id)
        if self.job.cancel_after_s is not None:
            self.world.engine.after(self.job.cancel_after_s, self._cancel)

    def _cancel(self) -> None:
        assert self.job_id is not None
        verdict = self.world.store.cancel(self.job_id, now=self.world.engine.now)
        self.world.note("cancel", self.job_id, verdict.value)
        if verdict is CancelVerdict.REQUESTED:
            self.world.look_for_cancels()
