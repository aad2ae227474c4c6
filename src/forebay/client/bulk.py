"""Many submissions in one call: chunks, the verdict of every line, and what of it goes again."""

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.client import blobs, plans, wire
from forebay.client.encode import Options, submission
from forebay.client.faults import RemoteError, fault_from
from forebay.client.plans import Plan, Terms
from forebay.client.policy import Hint, hint_of, may_repeat
from forebay.client.records import Verdict
from forebay.client.wire import Answer, Call, Pause, View, object_of
from forebay.errors import ForebayError, TooLargeError, UnreachableError

CHUNK_MAX = 500  # lines of one call
CHUNK_BYTES_MAX = 512 * 1024  # well under the server's default limit of a body
NO_VERDICT = RemoteError("the server gave no verdict for this line")


class Line(NamedTuple):
    """One submission on its way. `number` counts from 1; `body` carries its own idempotency key."""

    number: int
    body: bytes


class Sorted(NamedTuple):
    """The verdicts of one call: what is settled, what was pressed back, and for how long."""

    settled: list[Verdict]
    again: list[Line]
    hint: Hint
    fault: ForebayError | None  # the last pressing refusal


def sort_verdicts(lines: Sequence[Line], answer: Answer) -> Sorted:
    """Sort a bulk answer. A line without a verdict goes again: its key makes that safe."""
    views = _verdicts(answer.body, len(lines))
    settled: list[Verdict] = []
    again: list[Line] = []
    pressing: list[ForebayError | None] = []  # one for each that goes again
    for line, view in zip(lines, views, strict=True):
        if view is None:
            again.append(line)
            pressing.append(None)
            continue
        status = view.get("status")
        code = status if isinstance(status, int) else 500
        if code < 300 and view.get("job_id"):
            settled.append(Verdict(line.number, str(view["job_id"]), None))
            continue
        refusal = fault_from(view, code)
        if _pressing(code, refusal):
            again.append(line)
            pressing.append(refusal)
        else:
            settled.append(Verdict(line.number, None, refusal))
    faults = [fault for fault in pressing if fault is not None]
    return Sorted(settled, again, _together(pressing), faults[-1] if faults else None)


def _together(pressing: Sequence[ForebayError | None]) -> Hint:
    """Return what many refusals say together: the longest of their times; exact when all of them are."""
    hints = [hint_of(fault) for fault in pressing]
    times = [hint.after_s for hint in hints if hint.after_s is not None]
    services = [hint.service_s for hint in hints if hint.service_s is not None]
    exact = bool(hints) and all(hint.exact for hint in hints)
    return Hint(max(times, default=None), max(services, default=None), exact)


def _pressing(status: int, refusal: ForebayError) -> bool:
    probe = Answer(status, {}, b'{"retry_after_s":0}' if refusal.retry_after_s is not None else b"")
    return may_repeat(Call("POST", ""), probe)


def _verdicts(body: bytes, count: int) -> list[View | None]:
    """Return the verdicts in the order of the lines; None where there is none."""
    found: list[View | None] = [None] * count
    for place, text in enumerate(body.splitlines()[: 2 * count]):
        try:
            view = object_of(json.loads(text)) or {"line": 0}
        except (ValueError, RecursionError):
            continue
        number = view.get("line", place + 1)
        if isinstance(number, int) and 1 <= number <= count:
            found[number - 1] = view
    return found


def halves(lines: list[Line]) -> list[list[Line]]:
    """Return the two halves of a chunk that a server found too large."""
    middle = len(lines) // 2
    return [lines[:middle], lines[middle:]]


class Sending:
    """A stream of lines on its way in chunks, and the verdicts so far.

    When the server goes away for good, the lines that are left get that as their verdict without being
    tried; it is raised only when nothing was settled before.
    """

    def __init__(self, terms: Terms, task: str = "") -> None:
        self.verdicts: list[Verdict] = []
        self.gone: UnreachableError | None = None
        self._terms = terms
        self._task = task
        self._chunk: list[Line] = []
        self._size_b = 0

    def add(self, line: Line) -> Plan[None]:
        """Take one more line. A chunk stays within both bounds; a line that is too large goes alone."""
        if self._chunk and (len(self._chunk) >= CHUNK_MAX or self._size_b + len(line.body) > CHUNK_BYTES_MAX):
            yield from self.flush()
        self._chunk.append(line)
        self._size_b += len(line.body) + 1

    def flush(self) -> Plan[None]:
        """Send what was not sent yet."""
        chunk, self._chunk, self._size_b = self._chunk, [], 0
        if chunk and self.gone is None:
            try:
                self.verdicts += yield from submit_chunk(chunk, self._terms, self._task)
                return
            except UnreachableError as fault:
                self.lose(fault)
        self.verdicts += [Verdict(line.number, None, self.gone) for line in chunk]

    def lose(self, fault: UnreachableError) -> None:
        """Note that the server is gone. Raises `fault` when nothing was settled before."""
        if not self.verdicts:
            raise fault
        self.gone = fault


def submit_all(lines: Iterable[Line], terms: Terms) -> Plan[list[Verdict]]:
    """Submit every line and return its verdict, in order; each line stands alone."""
    sending = Sending(terms)
    for line in lines:
        yield from sending.add(line)
    yield from sending.flush()
    return sending.verdicts


def submit_payloads(
    task: str, payloads: Iterable[object], chosen: Options, terms: Terms
) -> Plan[list[Verdict]]:
    """Submit every payload under a key of its own and return its verdict, in order; each stands alone.

    What `submit` uploads is uploaded here too, before the line that names it.
    """
    sending = Sending(terms, task)
    alone: list[Verdict] = []  # of those that never became a line
    for number, payload in enumerate(payloads, 1):
        try:
            if sending.gone is not None:
                raise sending.gone
            found = yield from blobs.settled(payload, terms)
            line = Line(number, submission(task, found, chosen, str(uuid.uuid4())))
        except UnreachableError as fault:
            yield from sending.flush()
            sending.lose(fault)
            alone.append(Verdict(number, None, fault))
        except ForebayError as fault:
            alone.append(Verdict(number, None, fault))
        else:
            yield from sending.add(line)
    yield from sending.flush()
    return sorted(sending.verdicts + alone, key=lambda verdict: verdict.line)


def submit_chunk(chunk: list[Line], terms: Terms, task: str = "") -> Plan[list[Verdict]]:
    """Submit one chunk until every line has its verdict, in order.

    A line that is still pressed back when patience ends has that refusal as its verdict. Raises
    UnreachableError when no answer came; a line may be stored then: the same key later tells.
    """
    verdicts: list[Verdict] = []
    patience = terms.patience()  # with the lines; calls as a whole have their own
    todo = [chunk]
    while (held_s := patience.hold_s(task, len(chunk), now=terms.now(), draw=terms.draw())) > 0:
        yield Pause(held_s)
    while todo:
        lines = todo.pop()
        call = wire.submit_many_call([line.body for line in lines])
        try:
            answer = yield from plans.send(call, terms)
        except UnreachableError:
            raise
        except ForebayError as fault:
            if isinstance(fault, TooLargeError) and len(lines) > 1:
                todo += reversed(halves(lines))
            else:
                verdicts += [Verdict(line.number, None, fault) for line in lines]
            continue
        done = sort_verdicts(lines, answer)
        verdicts += done.settled
        patience.counted(
            task, taken=len(done.settled), refused=len(done.again), hint=done.hint, now=terms.now()
        )
        if not done.again:
            continue
        patience.meet()
        if done.settled:
            patience.success(terms.now())
        wait_s = patience.wait_s(done.hint, now=terms.now(), draw=terms.draw())
        if wait_s is None:
            pressed = done.fault or NO_VERDICT
            verdicts += [Verdict(line.number, None, pressed) for line in done.again]
            continue
        yield Pause(wait_s)
        todo.append(done.again)
    return sorted(verdicts, key=lambda verdict: verdict.line)
