"""LineReader: the lines of a bulk become slots of a group, and those become jobs. Nothing is stored here."""

from functools import partial
from typing import Any, NamedTuple

from forebay.core.blobs import SIGN, BlobInfo
from forebay.core.job import Job, Receipt
from forebay.core.task import TaskSpec
from forebay.errors import (
    ForebayError,
)
from forebay.server.answer import too_large
from forebay.server.caller import caller
from forebay.server.deciding import Decider, Refusal
from forebay.server.front import Front
from forebay.server.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_LINES_MAX,
    LINES_MAX,
)
from forebay.server.plain import Plain, PlainJobs, decode_plain
from forebay.server.references import ESCAPED, Reference, digests, is_whole
from forebay.server.schema import refusal
from forebay.server.wire import Submission, body_hash, decode, job_from, with_fingerprint


class Checked(NamedTuple):
    """A good line."""

    submission: Submission
    spec: TaskSpec
    body_hash: bytes
    references: tuple[Reference, ...] = ()
    payload: Any = None  # kept where there are references

    @property
    def task(self) -> str:
        """Whose it is."""
        return self.spec.name


Refusals = list[tuple[int, Job, Refusal]]  # of lines, by their place
Slot = Checked | Plain | Job | Refusal | Receipt | ForebayError  # what has become of one line so far


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


class LineReader:
    """What lines are, and the jobs that they ask for."""

    def __init__(self, front: Front, decider: Decider) -> None:
        self._front = front
        self._decider = decider

    def take(self, lines: list[bytes | None], first: int, group: Group) -> None:
        """Decode lines into the group. Empty lines count as lines and have no verdict."""
        put, plainly, size_b = group.put, True, 0
        task: str | None = (
            None  # of the last plain line; "" is the name of none, which must be asked for, too
        )
        check = None
        for number, line in enumerate(lines, first):
            if number > LINES_MAX:
                break
            if line is None:
                put(number, too_large(self._front.settings.body_bytes_max))
                continue
            if not line or line.isspace():
                continue
            try:
                read = None
                if plainly and SIGN not in line and (b"\\" not in line or ESCAPED not in line):
                    read = decode_plain(line)
                    plainly = read is not None  # its neighbours are like it: they are not tried in vain
                if read is None:
                    put(number, self._read(line))
                    continue
                plain, payload = read
                if plain.task != task:
                    check = self._decider.check_of(plain.task)
                    task = plain.task
                if check is not None and not check.is_valid(payload):
                    raise refusal(check, payload)
                group.lines.append(number)
                group.slots.append(plain)
                size_b += len(plain.payload)
            except ForebayError as error:
                put(number, error)
        group.size_b += size_b

    def _read(self, line: bytes) -> Checked:
        """Return a line that may have options and references. Raises what is wrong with it."""
        submission, payload = decode(line)
        found = self._decider.references.found(line, payload)
        spec = self._decider.checked(submission, payload, whole=is_whole(found))
        hashed = b"" if submission.idempotency_key is None else body_hash(submission, payload)
        return Checked(submission, spec, hashed, found, payload if found else None)

    async def claim(self, slots: list[Slot]) -> list[BlobInfo]:
        """Claim what the lines name; one that names no blob is refused in its place."""
        claimed: list[BlobInfo] = []
        for at, slot in enumerate(slots):
            if type(slot) is Checked and slot.references:
                try:
                    infos = await self._decider.references.claim(slot.references, slot.spec)
                    claimed += infos
                    if slot.body_hash:
                        slots[at] = slot._replace(body_hash=_content_hash(slot, infos))
                except ForebayError as error:
                    slots[at] = error
        return claimed

    def make_jobs(self, slots: list[Slot], *, now: float) -> dict[str, list[int]]:
        """Turn checked lines into jobs, in place; return where the jobs of each task are."""
        new_id, tenant = self._front.broker.new_id, caller().tenant
        make_plain = PlainJobs(self._front.tasks, now=now, tenant=tenant).make
        make = partial(job_from, now=now, tenant=tenant, rules=self._front.callbacks)
        by_task: dict[str, list[int]] = {}
        for at, slot in enumerate(slots):
            try:
                if type(slot) is Plain:
                    job = make_plain(slot, new_id(now))
                elif type(slot) is Checked:
                    job = make(slot.submission, slot.spec, job_id=new_id(now), body_hash=slot.body_hash)
                else:
                    continue
            except ForebayError as error:
                slots[at] = error
                continue
            slots[at] = job
            places = by_task.get(job.task)
            if places is None:
                places = by_task[job.task] = []
            places.append(at)
        for task, places in by_task.items():
            spec = self._front.tasks[task]
            if spec.coalesce:
                for at in places:
                    alone = slots[at]
                    assert type(alone) is Job
                    slots[at] = with_fingerprint(alone, spec)
        return by_task
