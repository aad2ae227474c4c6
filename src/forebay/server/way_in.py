"""WayIn: what a request asks for, whether it is let in and why not, and its job. Nothing here waits."""

from collections.abc import Callable

from forebay.core.admission import Rejected
from forebay.core.basin import Asked
from forebay.core.job import Job
from forebay.core.requests import Ended, Request
from forebay.core.task import TaskSpec
from forebay.core.units import duration_s
from forebay.errors import DrainingError, ForebayError, InvalidError, NoWorkerError
from forebay.ports.requests import Requests
from forebay.server.asking import Heads
from forebay.server.front import Front
from forebay.server.predict_answers import refusal_of
from forebay.server.pressure import DRAINING_RETRY_S, Pressure
from forebay.server.quarantine import barred
from forebay.server.references import Reference, References, is_whole
from forebay.server.schema import Check, refusal
from forebay.server.wire import decode_payload, priority_of

TIMEOUT_HEADER = b"x-request-timeout"
PRIORITY_HEADER = b"forebay-priority"
DEADLINE_MAX_S = 3600.0
ATTEMPTS_MAX = 2  # of a request: the second one only after its worker died


class WayIn:
    """The same questions in the same order for whoever takes requests in."""

    def __init__(
        self, front: Front, pressure: Pressure, references: References, checks: dict[str, Check | None]
    ) -> None:
        self._front = front
        self._pressure = pressure
        self._checks = checks
        self.references = references

    def asked(
        self, spec: TaskSpec, heads: Heads, tenant: str, size_b: int, *, now: float, lain_s: float = 0.0
    ) -> Asked:
        """Return what the head asks for. Its time counts from when it came to this machine, `lain_s` before
        it was read. Raises InvalidError for a time or a class that is none."""
        told = heads.get(TIMEOUT_HEADER)
        if told is None:
            deadline_s = spec.deadline_s or self._front.settings.request_deadline
        else:
            deadline_s = _timeout_s(told)
        urgency = heads.get(PRIORITY_HEADER)
        priority = spec.priority if urgency is None else priority_told(urgency)
        came_at = now - lain_s
        return Asked(spec.name, tenant, priority, size_b, came_at, came_at + deadline_s)

    def arrived(self, task: str, *, now: float) -> None:
        """Count a request, whatever becomes of it."""
        self._pressure.arrived(task, 1, now=now)

    def is_open(self, task: str, *, now: float) -> bool:
        """Say whether `basin` would raise nothing. Counts nothing."""
        front = self._front
        if front.lifecycle.draining or front.requests is None:
            return False
        load = self._pressure.load(task, now=now)
        return not (load.paused or load.draining)

    def basin(self, asked: Asked) -> Requests:
        """Return where requests go. Raises DrainingError or NoWorkerError where they go nowhere."""
        front = self._front
        if front.lifecycle.draining:
            raise DrainingError(retry_after_s=DRAINING_RETRY_S)
        if front.requests is None:
            raise NoWorkerError(
                "no worker runs in this process; submit a job", retry_after_s=DRAINING_RETRY_S
            )
        load = self._pressure.load(asked.task, now=front.clock.now())
        if load.paused or load.draining:
            front.meters.for_task(asked.task).refused("draining", 1)
            how = "paused" if load.paused else "draining"
            raise DrainingError(
                f"the queue of {asked.task} is {how}; nothing of it runs until it is resumed",
                retry_after_s=DRAINING_RETRY_S,
            )
        return front.requests

    def look(self, requests: Requests, asked: Asked) -> Rejected | None:
        """Return why a request with this head is refused now, by its tenant's limits or its deadline."""
        now = self._front.clock.now()
        refused = self._pressure.tenant_refusal(asked.task, size_b=asked.size_b, now=now)
        return refused or requests.look(asked)

    def refusal(self, refused: Rejected, asked: Asked) -> ForebayError:
        """Return the error that tells why a request was not let in, and count it as refused."""
        self._front.meters.for_task(asked.task).refused(refused.reason.value, 1)
        return refusal_of(refused, asked)

    def references_in(self, task: str, text: bytes) -> tuple[Reference, ...]:
        """Return the blobs that a payload names. Raises what is wrong with the payload."""
        payload = decode_payload(text)
        found = self.references.found(text, payload)
        check = self._checks[task]
        if check is not None and not is_whole(found) and not check.is_valid(payload):
            raise refusal(check, payload)
        return found

    def job(self, asked: Asked, text: bytes) -> Job:
        """Return the job that a request runs as."""
        front = self._front
        return Job(
            front.broker.new_id(front.clock.now()),
            asked.task,
            text,
            asked.created_at,
            asked.created_at,
            asked.priority,
            ATTEMPTS_MAX,
            None,
            asked.deadline_at,
            asked.tenant,
            version=front.tasks[asked.task].version,
        )

    def let_in(self, requests: Requests, asked: Asked, job: Job, on_end: Callable[[Ended], None]) -> Request:
        """Return the request; `on_end` is called when it ends, unless it is withdrawn. Raises the refusal."""
        front, now = self._front, self._front.clock.now()
        deadly = barred(front, job, now=now)
        if deadly is not None:
            front.meters.for_task(asked.task).refused(deadly.code, 1)
            raise deadly
        over = self._pressure.budget_refusal(now=now)
        if over is not None:
            raise self.refusal(over, asked)
        verdict = requests.offer(job, on_end)
        if isinstance(verdict, Rejected):
            raise self.refusal(verdict, asked)
        front.meters.for_task(asked.task).admitted(1)
        self._pressure.tenant_takes(size_b=len(job.payload), now=now)
        return verdict


def _timeout_s(told: bytes) -> float:
    text = told.decode("latin-1").strip()
    rule = f"must be a time above 0 and up to {DEADLINE_MAX_S:g} s (seconds, or a text like 250ms)"
    try:
        found = duration_s(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= DEADLINE_MAX_S:
        raise InvalidError(f"X-Request-Timeout {rule}", errors=(("X-Request-Timeout", rule),))
    return found


def priority_told(told: bytes) -> int:
    """Return the class that a header names. Raises InvalidError."""
    text = told.decode("latin-1").strip()
    return priority_of(int(text) if len(text) == 1 and text.isascii() and text.isdigit() else text)
