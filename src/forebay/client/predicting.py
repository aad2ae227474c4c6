"""predict of both clients: one answer within a deadline, in memory; refused at once when there is no time."""

import math
from typing import Any
from urllib.parse import quote

from forebay.client import arguments, plans, wire
from forebay.client.drive import Runs, RunsLater
from forebay.client.encode import to_json
from forebay.client.faults import fault_of
from forebay.client.holding import held_back
from forebay.client.plans import Plan, Terms
from forebay.client.wire import Answer, Call

SERVER_DEADLINE_S = 60.0  # how long an answer is waited for, beside `timeout`, where no deadline is given


class Predicts:
    """The verb of the client that blocks."""

    def predict(
        self: Runs,
        task: str,
        payload: object,
        *,
        deadline: str | float | None = None,
        priority: str | int | None = None,
        retry: bool = False,
    ) -> Any:
        """Return the output of one request: a JSON value, or bytes where the task answers a Blob.

        `deadline` counts from its arrival at the server; else the task's holds. Nothing is sent twice, unless
        `retry`: then a refusal is waited out as long as the server asks, for up to `retry_for` of the client.

        Raises InfeasibleError when it cannot be done in time (`deadline_needed_s` in its `offer` would do),
        DeadlinePassedError when it was not, HeldBackError when it was not sent as the server takes few like
        it, and the ForebayError of any other refusal or failure.
        """
        return self.run(_predicted(_call(task, payload, deadline, priority), self.terms, retry))


class AsyncPredicts:
    """The verb of the client that awaits."""

    async def predict(
        self: RunsLater,
        task: str,
        payload: object,
        *,
        deadline: str | float | None = None,
        priority: str | int | None = None,
        retry: bool = False,
    ) -> Any:
        """Return the output of one request; see `Client.predict`."""
        return await self.run(_predicted(_call(task, payload, deadline, priority), self.terms, retry))


def _call(task: str, payload: object, deadline: str | float | None, priority: str | int | None) -> Call:
    headers = [wire.JSON, ("accept", "*/*")]
    wait_s = SERVER_DEADLINE_S
    if deadline is not None:
        wait_s = arguments.seconds("deadline", deadline)
        headers.append(("x-request-timeout", f"{wait_s:.6f}".rstrip("0").rstrip(".")))
    if priority is not None:
        headers.append(("forebay-priority", str(priority)))
    return Call(
        "POST",
        f"/v1/predict/{quote(task, safe='')}",
        headers=tuple(headers),
        body=to_json(payload, "payload"),
        repeatable=False,
        wait_s=wait_s,
        kind=f"{task} in {math.frexp(wait_s)[1]} at {priority}",  # deadlines within a factor of two are alike
    )


def _predicted(call: Call, terms: Terms, retry: bool) -> Plan[Any]:
    if retry:
        answer = yield from plans.send(call, terms)
    else:
        holding = terms.patience().holding
        held = holding.ask(call.kind, now=terms.now(), draw=terms.draw())
        if held is not None:
            raise held_back(held)
        reply = yield call
        assert reply is not None
        holding.heard(call, reply, now=terms.now())
        if not isinstance(reply, Answer) or reply.status >= 300:
            raise fault_of(reply, terms.url)
        answer = reply
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return plans.read_json(answer) if kind == "application/json" else answer.body
