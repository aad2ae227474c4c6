"""What `forebay jobs watch` sees of one job: its events as they come, or looks at it where there are none."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay.client.wire import object_of
from forebay.errors import NotFinishedError

if TYPE_CHECKING:
    from forebay.client import Client

View = dict[str, Any]
EVERY_S = 0.2
POLL_S = 20.0
RUNNING_POLL_S = 1.0  # a report of progress does not end a poll: a running job is looked at this often
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
TOLD = ("status", "state", "attempt", "error", "retry_at", "cancel_requested")


def changes(client: "Client", job_id: str, seconds: float) -> Iterator[View]:
    """Yield the job as it is, then at every change, up to its end or until time has run out.

    Uses the events of the job where the server offers them.
    """
    view = client.get(job_id).view
    links = object_of(view.get("links")) or {}
    if view.get("status") not in ENDED and "events" in links:
        return _live(client, view, seconds)
    return _looks(client, job_id, seconds)


def _live(client: "Client", view: View, seconds: float) -> Iterator[View]:
    seen: object = None
    try:
        for event in client.events(str(view.get("job_id")), timeout=seconds):
            if event.kind in {"status", "done"}:
                told = event.data if event.kind == "done" else _some(event.data)
                view = {**view, **told}
                if view.get("state") != "running":
                    view["progress"] = None
                if view.get("state") != "queued":
                    view["position"] = None
            elif event.kind == "progress":
                view = {**view, "progress": event.data}
            elif event.kind == "eta":
                view = {**view, "position": event.data.get("position"), "eta": event.data.get("eta")}
            shown = [view.get(name) for name in ("state", "attempt", "progress", "position")]
            if shown != seen or event.kind == "done":
                seen = shown
                yield view
    except NotFinishedError:
        return


def _some(told: View) -> View:
    return {name: told[name] for name in TOLD if name in told}


def _looks(client: "Client", job_id: str, seconds: float) -> Iterator[View]:
    end = time.monotonic() + seconds
    seen: object = None
    wait_s = 0.0
    while True:
        view = client.get(job_id, wait=wait_s).view
        shown = (view.get("state"), view.get("attempt"), str(view.get("progress")))
        changed, seen = shown != seen, shown
        if changed:
            yield view
        left_s = end - time.monotonic()
        if view.get("status") in ENDED or left_s <= 0:
            return
        if not changed:
            time.sleep(min(EVERY_S, left_s))  # for a server that does not hold the answer back
        wait_s = min(RUNNING_POLL_S if view.get("status") == "PROCESSING" else POLL_S, left_s)
