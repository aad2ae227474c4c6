"""What each verb does, step by step, without touching the network: a plan yields a Call or a Pause,
is sent the reply, and returns the answer. The blocking and the awaiting client both drive these.
"""

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from forebay.client import wire
from forebay.client.faults import JobFailedError, RemoteError, fault_of
from forebay.client.policy import RETRY_FOR_S, STANDARD, Backoff, Known, Patience, may_repeat
from forebay.client.records import FINAL
from forebay.client.wire import Answer, Call, Lost, Pause, View, object_of, objects_of
from forebay.errors import ForebayError, NoResultError, NotFinishedError

T = TypeVar("T")
Plan = Generator[Call | Pause, Answer | Lost | None, T]

WAIT_MAX_S = 20.0  # of one long poll
CANCEL_IDS_MAX = 10_000  # named in one request
SPIN_S = 0.1  # a server that does not hold a poll back is asked at most this often, then more rarely
SPIN_MAX_S = 1.0


class Terms(NamedTuple):
    """How long a verb tries, and where it takes time and chance from."""

    now: Callable[[], float]
    draw: Callable[[], float]
    retry_for_s: float = RETRY_FOR_S
    unreachable_for_s: float | None = None
    url: str = ""
    known: Known | None = None  # None: every verb finds out anew
    backoff: Backoff = STANDARD
    away: Callable[[ForebayError, float], object] | None = (
        None  # hears of outages, and how long they may take
    )

    def patience(self) -> Patience:
        """Return a fresh patience that begins now."""
        return Patience(
            now=self.now(),
            retry_for_s=self.retry_for_s,
            unreachable_for_s=self.unreachable_for_s,
            known=self.known,
            backoff=self.backoff,
            away=self.away,
        )


def send(call: Call, terms: Terms, patience: Patience | None = None) -> Plan[Answer]:
    """Send one call until it is answered with less than 400.

    Raises the ForebayError of the last answer when trying again is unsafe, useless or too long.
    """
    patience = patience or terms.patience()
    while (wait_s := patience.hold_s(call.kind, now=terms.now(), draw=terms.draw())) > 0:
        yield Pause(wait_s)
    may_be_done = False
    while True:
        reply = yield call
        assert reply is not None
        patience.holding.heard(call, reply, now=terms.now())
        if isinstance(reply, Answer) and reply.status < 300:
            patience.success(terms.now())
            return reply
        if may_be_done and isinstance(reply, Answer) and reply.status == 404:
            return Answer(200, {}, b"")  # the try whose answer was lost has removed it
        may_be_done |= call.method == "DELETE" and isinstance(reply, Lost) and reply.sent
        again_s = None
        if may_repeat(call, reply):
            again_s = patience.refused(reply, now=terms.now(), draw=terms.draw())
        if again_s is None:
            raise fault_of(reply, terms.url)
        yield Pause(again_s)


def ask(call: Call, terms: Terms, patience: Patience | None = None) -> Plan[View]:
    """Send one call and return the JSON object it is answered with, {} for an empty answer."""
    answer = yield from send(call, terms, patience)
    if not answer.body.strip():
        return {}
    found = object_of(read_json(answer))
    if found is None:
        raise RemoteError(f"{call.path} answered JSON that is not an object: is this a Forebay server?")
    return found


def read_json(answer: Answer) -> Any:
    """Return the value in a JSON answer. Raises RemoteError when it is not JSON."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise RemoteError("the answer is not JSON: is this a Forebay server?") from None


def rows_of(page: View) -> list[View]:
    """Return the items of a list answer."""
    return objects_of(page.get("items"))


def whole(path: str, terms: Terms) -> Plan[list[View]]:
    """Return all items of a list that has one page."""
    return rows_of((yield from ask(Call("GET", path), terms)))


def rows(path: str, filters: Mapping[str, str | None], limit: int, terms: Terms) -> Plan[list[View]]:
    """Return up to `limit` items of a list, newest first, over as many pages as that takes."""
    found: list[View] = []
    cursor: str | None = None
    while len(found) < limit:
        page = yield from ask(wire.page_call(path, filters, min(limit - len(found), 100), cursor), terms)
        found += rows_of(page)
        cursor = str(page["next_cursor"]) if page.get("next_cursor") else None
        if cursor is None:
            break
    return found[:limit]


def cancelled(asked: View, terms: Terms) -> Plan[dict[str, int]]:
    """Return how many jobs met each verdict, over as many requests as that takes."""
    counts: dict[str, int] = {"cancelled": 0, "requested": 0, "already": 0, "final": 0, "unknown": 0}
    ids: list[str] | None = asked.pop("ids", None)
    while True:
        part = asked if ids is None else {"ids": ids[:CANCEL_IDS_MAX]}
        view = yield from ask(wire.cancel_call(part), terms)
        for name in counts:
            counts[name] += int(view.get(name) or 0)
        if ids is not None:
            ids = ids[CANCEL_IDS_MAX:]
        elif view.get("next_cursor"):
            asked["cursor"] = view["next_cursor"]
        if not (ids or (ids is None and view.get("next_cursor"))):
            return counts


def ended(job_id: str, timeout_s: float, terms: Terms) -> Plan[View]:
    """Return the job once it has ended.

    Raises NotFinishedError when `timeout_s` passed first. Survives a server that is away for less than
    `retry_for_s` at a time.
    """
    end = terms.now() + timeout_s
    spin_s, seen = SPIN_S, ""
    while True:
        asked_at = terms.now()
        wait_s = min(WAIT_MAX_S, max(0.0, end - asked_at))
        view = yield from ask(wire.show_call(job_id, wait_s), terms)
        if view.get("status") in FINAL:
            return view
        now = terms.now()
        if now >= end:
            raise NotFinishedError(f"{job_id} is {view.get('status')} after {timeout_s:g} s of waiting")
        changed = f"{view.get('state')} {view.get('progress')}"
        spin_s = SPIN_S if changed != seen else min(SPIN_MAX_S, spin_s * 2)
        seen = changed
        if now - asked_at < min(spin_s, wait_s):
            yield Pause(min(spin_s, end - now))


def headroom(task: str, jobs: int, timeout_s: float, terms: Terms) -> Plan[bool]:
    """Return whether a queue has room for so many jobs, as soon as it has, or False after `timeout_s`."""
    end = terms.now() + timeout_s
    while True:
        asked_at = terms.now()
        wait_s = min(WAIT_MAX_S, max(0.0, end - asked_at))
        view = yield from ask(wire.headroom_call(task, jobs, wait_s), terms)
        if view.get("has_room") is True:
            return True
        now = terms.now()
        if now >= end:
            return False
        if now - asked_at < min(SPIN_MAX_S, wait_s):  # it holds nobody back now
            yield Pause(min(SPIN_MAX_S, end - now))


def outcome(view: View, terms: Terms) -> Plan[Any]:
    """Return the result of a job that has ended: JSON, or bytes for a binary result.

    Raises JobFailedError when it ended without one.
    """
    if view.get("status") != "COMPLETED":
        raise JobFailedError(view)
    result = view.get("result")
    by_reference = set(object_of(result) or ()) == {"$blob"}
    if result is not None and not by_reference:
        return result
    try:  # null, binary, or too large to travel inside the job
        answer = yield from send(Call("GET", wire.job_path(str(view.get("job_id")), "/result")), terms)
    except NoResultError:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return read_json(answer) if kind == "application/json" else answer.body


def result(job_id: str, timeout_s: float, terms: Terms) -> Plan[Any]:
    """Return the result of a job, waiting for its end. Raises as `ended` and `outcome` do."""
    view = yield from ended(job_id, timeout_s, terms)
    return (yield from outcome(view, terms))
