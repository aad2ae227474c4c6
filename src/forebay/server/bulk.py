"""POST /v1/jobs with NDJSON: many jobs in, one verdict per line out, in order, in flat memory.

Lines are decoded as they come and handed to the broker in groups: at once while fewer than
CHUNKS_IN_FLIGHT_MAX are on their way to the disk, else once one is stored: a slow stream is not held back,
a fast one makes large groups. Verdicts have a task of their own: nobody need read before all is sent.
"""

from forebay.core.admission import Accepted, Rejected
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import FINAL
from forebay.core.many import size_of
from forebay.core.tenant import Held
from forebay.errors import (
    ForebayError,
    IdempotencyConflictError,
    InvalidError,
    MalformedError,
    TooLargeError,
)
from forebay.server.answer import Body, Send, too_large
from forebay.server.asking import Heads
from forebay.server.budgets import Refused, all_told_to_come
from forebay.server.deciding import Decider, Early, verdict_error
from forebay.server.front import Front
from forebay.server.limits import (
    BULK_BYTES_MAX,
    CHUNK_LINES_MAX,
    CHUNKS_IN_FLIGHT_MAX,
    LINES_MAX,
)
from forebay.server.line_reader import Checked, Group, LineReader, Refusals, Slot
from forebay.server.plain import Plain
from forebay.server.pressure import NOTHING, Pressure
from forebay.server.problems import problem_fields
from forebay.server.quarantine import unbarred
from forebay.server.repeats import KEY_FIELD, may_name_a_key
from forebay.server.storing import count_receipts, store
from forebay.server.stream import Flights, Lines, Verdicts
from forebay.server.timely import foretell, in_time


class Bulk:
    """The way in for many jobs."""

    def __init__(self, front: Front, pressure: Pressure, decider: Decider) -> None:
        self._front = front
        self._pressure = pressure
        self._decider = decider
        self._reader = LineReader(front, decider)

    async def submit(self, heads: Heads, body: Body, send: Send) -> None:
        """Answer a stream of submissions.

        Raises a ForebayError only before the first verdict; afterwards trouble is a verdict of its line.
        """
        if b"idempotency-key" in heads:
            raise InvalidError(
                "the header Idempotency-Key names one job: put idempotency_key into the lines",
                errors=(("Idempotency-Key", "not with NDJSON"),),
            )
        early = self._decider.early(now=self._front.clock.now())
        if early is not None and not may_name_a_key(heads, body):
            raise self._decider.refusal(early, None, now=self._front.clock.now())
        if body.length is not None and body.length > BULK_BYTES_MAX:
            raise too_large(BULK_BYTES_MAX)
        verdicts = Verdicts(send)
        try:
            await self._run(body, verdicts, early)
        except BaseException:
            verdicts.abandon()
            raise
        await verdicts.finish()

    async def _run(self, body: Body, verdicts: Verdicts, early: Early | None) -> None:
        lines = Lines(self._front.settings.body_bytes_max)
        flights = Flights(verdicts)
        group = Group()
        try:
            async for part in body.chunks():
                if early is not None:
                    # Lines with keys may be repeats of accepted ones. Who names keys does so from the start.
                    if KEY_FIELD not in part:
                        raise self._decider.refusal(early, None, now=self._front.clock.now())
                    early = None
                fresh = lines.feed(part)
                first = lines.count - len(fresh) + 1
                for at in range(0, len(fresh), CHUNK_LINES_MAX):
                    self._reader.take(fresh[at : at + CHUNK_LINES_MAX], first + at, group)
                    if group.full:
                        group = await self._launch(group, flights)
                if group.slots and flights.room:
                    group = await self._launch(group, flights)
                await verdicts.room()
                if lines.count > LINES_MAX or lines.size_b > BULK_BYTES_MAX:
                    verdicts.cut_short = True
                    break
            else:
                self._reader.take(lines.rest(), lines.count, group)
            if group.slots:
                await self._launch(group, flights)
            await flights.landed(0)
        finally:
            flights.abandon()
        if verdicts.cut_short:
            verdicts.put(_beyond(lines))
        if verdicts.empty:
            raise MalformedError("the body is empty")

    async def _launch(self, group: Group, flights: Flights) -> Group:
        """Send a group on its way, waiting while too many are; return an empty one."""
        await flights.landed(CHUNKS_IN_FLIGHT_MAX - 1)
        flights.start(self._store(group))
        return Group()

    async def _store(self, group: Group) -> bytes:
        """Return the verdicts of a group, once what was accepted is durable."""
        claimed = await self._reader.claim(group.slots)
        try:
            return await self._store_claimed(group)
        finally:
            self._decider.references.release(claimed)

    async def _store_claimed(self, group: Group) -> bytes:
        slots = group.slots
        if not self._pressure.live:
            tasks = {slot.task for slot in slots if type(slot) is Checked or type(slot) is Plain}
            await self._pressure.refresh(tuple(tasks), now=self._front.clock.now())
        # From here to the enqueue nothing waits: ids and times grow in the order in which the engine gets
        # them, whatever else comes in beside, and that order is the cheap one.
        now = self._front.clock.now()
        by_task = self._reader.make_jobs(slots, now=now)
        barred: Refusals = []
        refused: list[Refused] = []
        taken = NOTHING
        for task, places in by_task.items():
            free, out = unbarred(self._front, task, places, slots, now=now)
            more, taken = self._admit(task, free, slots, taken, now=now)
            barred += out
            refused += more
        kept_out: Refusals = [*barred, *all_told_to_come(refused, now=now)]
        for at, job, verdict in kept_out:
            keyed = job.idempotency_key is not None
            slots[at] = verdict if keyed else self._decider.refusal(verdict, job.task, now=now)
        jobs = [slot for slot in slots if type(slot) is Job]
        failed: ForebayError | None = None
        receipts: list[Receipt] = []
        if jobs:
            try:
                receipts = await store(self._front, jobs, now=now)
                foretell(self._front, self._pressure, jobs, receipts, now=self._front.clock.now())
            except ForebayError as error:
                failed = error
        await self._recall([one for one in kept_out if one[1].idempotency_key is not None], slots, now=now)
        return _verdicts(group, receipts, failed)

    async def _recall(self, refused: Refusals, slots: list[Slot], *, now: float) -> None:
        """Put in place of a refusal the receipt of what was accepted before under the line's key."""
        if not refused:
            return
        known = await self._front.broker.recall([job for _, job, _ in refused], now=now)
        for (at, job, verdict), receipt in zip(refused, known, strict=True):
            if receipt is None:
                slots[at] = self._decider.refusal(verdict, job.task, now=now)
            else:
                count_receipts(self._front, (job,), (receipt,), now=now)
                slots[at] = receipt

    def _admit(
        self, task: str, places: list[int], slots: list[Slot], others: Held, *, now: float
    ) -> tuple[list[Refused], Held]:
        """Admit all of one task's lines together, else as many as fit, in their order.

        Returns the others, and what was accepted in this group so far, for the tasks before (`others`) too.
        """
        places, refused = in_time(self._pressure, places, slots, now=now)
        if not places:
            return refused, others
        jobs = [slots[at] for at in places]
        size_b = size_of([job for job in jobs if type(job) is Job])
        verdict = self._pressure.admit(task, jobs=len(jobs), size_b=size_b, now=now, others=others)
        if type(verdict) is not Rejected:
            return refused, Held(others.jobs + len(jobs), others.bytes + size_b)
        taken_jobs = taken_b = 0
        for at, job in zip(places, jobs, strict=True):
            assert type(job) is Job
            again: Accepted | Rejected = verdict
            if len(jobs) > 1:
                ahead = {"ahead_jobs": taken_jobs, "ahead_b": taken_b}
                again = self._pressure.admit_again(
                    task, jobs=1, size_b=job.size, now=now, others=others, **ahead
                )
            if type(again) is Rejected:
                refused.append((at, job, again))
            else:
                taken_jobs += 1
                taken_b += job.size
        return refused, Held(others.jobs + taken_jobs, others.bytes + taken_b)


def _beyond(lines: Lines) -> bytes:
    error = TooLargeError(
        f"a request takes at most {LINES_MAX} lines and {BULK_BYTES_MAX} bytes; nothing after this was read",
        limit=LINES_MAX if lines.count > LINES_MAX else BULK_BYTES_MAX,
    )
    return verdict_error(min(lines.count, LINES_MAX + 1), problem_fields(error))


def _verdicts(group: Group, receipts: list[Receipt], failed: ForebayError | None) -> bytes:
    stored = Verdict.STORED
    if len(receipts) == len(group.slots) and not [one for one in receipts if one[0] is not stored]:
        return "".join(
            [
                f'{{"line":{line},"status":202,"job_id":"{receipt[1]}"}}\n'
                for line, receipt in zip(group.lines, receipts, strict=True)
            ]
        ).encode()
    parts: list[str] = []
    left = iter(receipts)
    for line, slot in zip(group.lines, group.slots, strict=True):
        receipt = next(left) if type(slot) is Job and failed is None else None
        if type(slot) is Receipt:
            receipt = slot
        if receipt is not None:
            verdict, job_id, state = receipt
            if verdict is stored:
                parts.append(f'{{"line":{line},"status":202,"job_id":"{job_id}"}}\n')
                continue
            if verdict is not Verdict.CONFLICT:
                status = 200 if state in FINAL else 202
                parts.append(
                    f'{{"line":{line},"status":{status},"job_id":"{job_id}","{verdict.value}":true}}\n'
                )
                continue
            error: ForebayError = IdempotencyConflictError()
        else:
            error = failed if failed is not None and type(slot) is Job else slot  # type: ignore[assignment]
        parts.append(verdict_error(line, problem_fields(error)).decode())
    return "".join(parts).encode()
