"""POST /v1/jobs with NDJSON: many jobs in, one verdict per line out, in order, in flat memory.

Lines are decoded as they come and handed to the broker in groups: at once while fewer than
CHUNKS_IN_FLIGHT_MAX are on their way to the disk, else once one is stored: a slow stream is not held back,
a fast one makes large groups. Verdicts have a task of their own: nobody need read before all is sent.
"""

from functools import partial
from typing import Any, NamedTuple

from forebay.core.admission import Accepted, Rejected
from forebay.core.blobs import BlobInfo
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import FINAL
from forebay.core.task import TaskSpec
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
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.limits import (
    BULK_BYTES_MAX,
    CHUNK_BYTES_MAX,
    CHUNK_LINES_MAX,
    CHUNKS_IN_FLIGHT_MAX,
    LINES_MAX,
)
from forebay.server.pressure import NOTHING, Pressure
from forebay.server.problems import problem_fields
from forebay.server.quarantine import unbarred
from forebay.server.references import Reference, digests, is_whole
from forebay.server.repeats import KEY_FIELD, may_name_a_key
from forebay.server.storing import count_receipts, store
from forebay.server.stream import Flights, Lines, Verdicts
from forebay.server.submit import Early, Refusal, Submitter, verdict_error
from forebay.server.timely import foretell, in_time
from forebay.server.wire import Submission, body_hash, decode, job_from, with_fingerprint


class Checked(NamedTuple):
    """A good line."""

    submission: Submission
    spec: TaskSpec
    body_hash: bytes
    references: tuple[Reference, ...] = ()
    payload: Any = None  # kept where there are references


Refusals = list[tuple[int, Job, Refusal]]  # of lines, by their place
Slot = Checked | Job | Refusal | Receipt | ForebayError  # what has become of one line so far


def _content_hash(line: Checked, claimed: list[BlobInfo]) -> bytes:
    return body_hash(line.submission, line.payload, digests(claimed))


class Group:
    """Lines that go to the broker together."""

    __slots__ = ("lines", "size_b", "slots")

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.slots: list[Slot] = []
        self.size_b = 0

    def put(self, line: int, slot: Slot) -> None:
        """Add what became of one line."""
        self.lines.append(line)
        self.slots.append(slot)
        if type(slot) is Checked:
            self.size_b += len(slot.submission.payload)

    @property
    def full(self) -> bool:
        """Whether it should go to the broker now."""
        return len(self.slots) >= CHUNK_LINES_MAX or self.size_b >= CHUNK_BYTES_MAX


class Bulk:
    """The way in for many jobs."""

    def __init__(self, front: Front, pressure: Pressure, submitter: Submitter) -> None:
        self._front = front
        self._pressure = pressure
        self._submitter = submitter

    async def submit(self, heads: Heads, body: Body, send: Send) -> None:
        """Answer a stream of submissions.

        Raises a ForebayError only before the first verdict; afterwards trouble is a verdict of its line.
        """
        if b"idempotency-key" in heads:
            raise InvalidError(
                "the header Idempotency-Key names one job: put idempotency_key into the lines",
                errors=(("Idempotency-Key", "not with NDJSON"),),
            )
        early = self._submitter.early(now=self._front.clock.now())
        if early is not None and not may_name_a_key(heads, body):
            raise self._submitter.refusal(early, None, now=self._front.clock.now())
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
                        raise self._submitter.refusal(early, None, now=self._front.clock.now())
                    early = None
                fresh = lines.feed(part)
                first = lines.count - len(fresh) + 1
                for at in range(0, len(fresh), CHUNK_LINES_MAX):
                    self._take(fresh[at : at + CHUNK_LINES_MAX], first + at, group)
                    if group.full:
                        group = await self._launch(group, flights)
                if group.slots and flights.room:
                    group = await self._launch(group, flights)
                await verdicts.room()
                if lines.count > LINES_MAX or lines.size_b > BULK_BYTES_MAX:
                    verdicts.cut_short = True
                    break
            else:
                self._take(lines.rest(), lines.count, group)
            if group.slots:
                await self._launch(group, flights)
            await flights.landed(0)
        finally:
            flights.abandon()
        if verdicts.cut_short:
            verdicts.put(_beyond(lines))
        if verdicts.empty:
            raise MalformedError("the body is empty")

    def _take(self, lines: list[bytes | None], first: int, group: Group) -> None:
        """Decode lines into the group. Empty lines count as lines and have no verdict."""
        checked, put, found_in = self._submitter.checked, group.put, self._submitter.references.found
        for number, line in enumerate(lines, first):
            if number > LINES_MAX:
                return
            if line is None:
                put(number, too_large(self._front.settings.body_bytes_max))
                continue
            if not line or line.isspace():
                continue
            try:
                submission, payload = decode(line)
                found = found_in(line, payload)
                spec = checked(submission, payload, whole=is_whole(found))
                hashed = b"" if submission.idempotency_key is None else body_hash(submission, payload)
                put(number, Checked(submission, spec, hashed, found, payload if found else None))
            except ForebayError as error:
                put(number, error)

    async def _launch(self, group: Group, flights: Flights) -> Group:
        """Send a group on its way, waiting while too many are; return an empty one."""
        await flights.landed(CHUNKS_IN_FLIGHT_MAX - 1)
        flights.start(self._store(group))
        return Group()

    async def _store(self, group: Group) -> bytes:
        """Return the verdicts of a group, once what was accepted is durable."""
        claimed = await self._claim(group.slots)
        try:
            return await self._store_claimed(group)
        finally:
            self._submitter.references.release(claimed)

    async def _claim(self, slots: list[Slot]) -> list[BlobInfo]:
        """Claim what the lines name; one that names no blob is refused in its place."""
        claimed: list[BlobInfo] = []
        for at, slot in enumerate(slots):
            if type(slot) is Checked and slot.references:
                try:
                    infos = await self._submitter.references.claim(slot.references, slot.spec)
                    claimed += infos
                    if slot.body_hash:
                        slots[at] = slot._replace(body_hash=_content_hash(slot, infos))
                except ForebayError as error:
                    slots[at] = error
        return claimed

    async def _store_claimed(self, group: Group) -> bytes:
        slots = group.slots
        tasks = {slot.submission.task for slot in slots if type(slot) is Checked}
        await self._pressure.refresh(tuple(tasks), now=self._front.clock.now())
        # From here to the enqueue nothing waits: ids and times grow in the order in which the engine gets
        # them, whatever else comes in beside, and that order is the cheap one.
        now = self._front.clock.now()
        by_task = self._make_jobs(slots, now=now)
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
            slots[at] = verdict if keyed else self._submitter.refusal(verdict, job.task, now=now)
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

    def _make_jobs(self, slots: list[Slot], *, now: float) -> dict[str, list[int]]:
        """Turn checked lines into jobs, in place; return where the jobs of each task are."""
        new_id = self._front.broker.new_id
        make = partial(job_from, now=now, tenant=caller().tenant, rules=self._front.callbacks)
        by_task: dict[str, list[int]] = {}
        for at, slot in enumerate(slots):
            if type(slot) is not Checked:
                continue
            submission, spec, hashed = slot[:3]
            try:
                job = make(submission, spec, job_id=new_id(now), body_hash=hashed)
                slots[at] = with_fingerprint(job, spec) if spec.coalesce else job
            except ForebayError as error:
                slots[at] = error
            else:
                by_task.setdefault(submission.task, []).append(at)
        return by_task

    async def _recall(self, refused: Refusals, slots: list[Slot], *, now: float) -> None:
        """Put in place of a refusal the receipt of what was accepted before under the line's key."""
        if not refused:
            return
        known = await self._front.broker.recall([job for _, job, _ in refused], now=now)
        for (at, job, verdict), receipt in zip(refused, known, strict=True):
            if receipt is None:
                slots[at] = self._submitter.refusal(verdict, job.task, now=now)
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
        size_b = sum([len(job.payload) + len(job.metadata) for job in jobs if type(job) is Job])
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
    parts: list[str] = []
    stored = Verdict.STORED
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
