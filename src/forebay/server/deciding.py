"""Decider: what a submission is and whether it is let in, of one job or of many. Nothing here waits."""

from collections.abc import Sequence
from typing import Any

import msgspec

from forebay.core.admission import Accepted, Rejected
from forebay.core.blobs import BlobInfo
from forebay.core.job import Job, Receipt, Verdict
from forebay.core.lifecycle import State
from forebay.core.task import TaskSpec
from forebay.errors import DrainingError, ForebayError, QuarantinedError
from forebay.server.answer import JSON, NO_STORE, Headers
from forebay.server.asking import Heads, unknown_task
from forebay.server.caller import caller
from forebay.server.front import Front
from forebay.server.pressure import DRAINING_RETRY_S, Pressure
from forebay.server.quarantine import barred
from forebay.server.references import References, digests
from forebay.server.render import accepted_json
from forebay.server.repeats import take_key
from forebay.server.schema import Check, refusal
from forebay.server.timely import told
from forebay.server.wire import Submission, body_hash, decode, job_from, with_fingerprint

Early = Rejected | DrainingError
Refusal = Early | QuarantinedError


class Decider:
    """The same questions in the same order for whoever takes submissions in."""

    def __init__(self, front: Front, pressure: Pressure, checks: dict[str, Check | None]) -> None:
        self._front = front
        self._pressure = pressure
        self._checks = checks
        self.references = References(front)
        self._only_task = next(iter(front.tasks)) if len(front.tasks) == 1 else None

    def early(self, *, now: float) -> Early | None:
        """Return what can be said before the body is read: draining, or the only queue is full."""
        if self._front.lifecycle.draining:
            return DrainingError(retry_after_s=DRAINING_RETRY_S)
        only = self._only_task
        if only is not None and self._pressure.full(only, now=now):
            verdict = self._pressure.admit(only, jobs=1, size_b=0, now=now)
            if isinstance(verdict, Rejected):
                return verdict
        return None

    def refusal(self, refused: Refusal, task: str | None, *, now: float) -> ForebayError:
        """Return the error for a refusal, and count it. `task` None: what was said early."""
        if isinstance(refused, DrainingError):
            return refused
        task = task or self._only_task
        assert task is not None
        if isinstance(refused, Rejected):
            return self._pressure.refusal(refused, task, now=now)
        meter = self._front.meters.for_task(task)
        meter.arrived(1)
        meter.refused(refused.code, 1)
        return refused

    def checked(self, submission: Submission, payload: object, *, whole: bool = False) -> TaskSpec:
        """Return the task. Of a payload that is in a blob as a `whole` the child checks what is in it.

        Raises UnknownTaskError or InvalidError.
        """
        check = self.check_of(submission.task)
        if check is not None and not whole and not check.is_valid(payload):
            raise refusal(check, payload)
        return self._front.tasks[submission.task]

    def check_of(self, task: str) -> Check | None:
        """Return what payloads of a task are held to. Raises UnknownTaskError."""
        if task not in self._checks:
            raise unknown_task(task, self._front.tasks)
        return self._checks[task]

    def may_decide(self, *, now: float) -> bool:
        """Say whether `decided` may be asked: nothing is to be said early, and the engine knows its load."""
        if not self._pressure.live or self._front.lifecycle.draining:
            return False
        return self._only_task is None or not self._pressure.full(self._only_task, now=now)

    def decided(self, text: bytes, heads: Heads) -> tuple[Job, Accepted | Refusal] | None:
        """Return the job that came in `text` and whether it is let in; None, and nothing is counted, where
        that cannot be said without waiting. What was accepted must be stored at once.

        Raises a ForebayError for what is no submission.
        """
        submission, payload = decode(text)
        take_key(submission, heads)
        if self.references.found(text, payload):
            return None
        return self.decide(submission, self.checked(submission, payload), payload, (), None)

    def decide(
        self,
        submission: Submission,
        spec: TaskSpec,
        payload: Any,
        claimed: Sequence[BlobInfo],
        refused: Early | None,
    ) -> tuple[Job, Accepted | Refusal]:
        """Return the job of a checked submission and whether it is let in; counted.

        Nothing may wait from here to the enqueue.
        """
        front, pressure = self._front, self._pressure
        hashed = b""
        if submission.idempotency_key is not None:
            hashed = body_hash(submission, payload, digests(claimed))
        now = front.clock.now()
        job = job_from(
            submission,
            spec,
            job_id=front.broker.new_id(now),
            now=now,
            body_hash=hashed,
            tenant=caller().tenant,
            rules=front.callbacks,
        )
        if spec.coalesce:
            job = with_fingerprint(job, spec)
        verdict = (
            refused
            or barred(front, job, now=now)
            or pressure.too_late(job, now=now)
            or pressure.admit(spec.name, jobs=1, size_b=job.size, now=now)
        )
        return job, verdict

    def accepted(self, job: Job, receipt: Receipt) -> bytes | None:
        """Return the answer to a job that was stored a moment ago and may run at once; None for any other,
        which `answer_receipt` answers."""
        if receipt.verdict is not Verdict.STORED or receipt.state is not State.QUEUED:
            return None
        if job.run_at != job.created_at:
            return None
        front, now = self._front, self._front.clock.now()
        load = self._pressure.load(job.task, now=now)
        position = front.broker.place_now(job, now=now) or max(1, load.queued)
        eta = told(front, load, job, position, now=now)
        return accepted_json(job, now=now, position=position, eta=eta)


def accepted_headers(job: Job) -> Headers:
    """Return the headers of the answer to a job that was stored, but for its length."""
    return [JSON, NO_STORE, location(job.id)]


def location(job_id: str) -> tuple[bytes, bytes]:
    """Return the header that says where a job is."""
    return (b"location", b"/v1/jobs/" + job_id.encode())


def verdict_error(line: int, fields: dict[str, object]) -> bytes:
    """Return the NDJSON verdict of a refused line."""
    return msgspec.json.encode({"line": line, **fields}) + b"\n"
