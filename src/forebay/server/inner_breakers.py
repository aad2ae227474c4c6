"""of_tasks: the named breakers inside handlers, of all workers of a task together."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from forebay.server.breaker_views import TaskBreakerView
from forebay.server.front import Front
from forebay.server.times import stamp

_WORSE: Final = {"closed": 0, "half_open": 1, "open": 2}
Row = Mapping[str, Any]


def of_tasks(front: Front) -> dict[str, list[TaskBreakerView]]:
    """Return the breakers of each task that some worker has used for it, here or on a node that shares the
    engine: of all workers that may run the task."""
    replicas = [] if front.node is None else list(front.node.breakers_inside())
    if front.neighbours is not None:
        replicas += front.neighbours.workers()
    found: dict[tuple[str, str], list[Row]] = {}
    for replica in replicas:
        for row in cast("Iterable[Row]", replica.get("breakers") or ()):
            for task in row.get("tasks") or ():
                found.setdefault((task, row["breaker"]), []).append(row)
    views: dict[str, list[TaskBreakerView]] = {}
    for (task, name), rows in sorted(found.items()):
        views.setdefault(task, []).append(_together(name, rows))
    return views


def _together(name: str, rows: list[Row]) -> TaskBreakerView:
    worst = max(rows, key=lambda row: _WORSE.get(row["state"], 0))["state"]
    alike = [row for row in rows if row["state"] == worst]
    since = [float(row["since"]) for row in alike if row.get("since")]
    return TaskBreakerView(
        breaker=name,
        state=worst,
        since=stamp(min(since)) if since else None,
        workers=len(rows),
        open=sum(row["state"] == "open" for row in rows),
        trips=sum(row["trips"] for row in rows),
        retry_after_s=min(row["retry_after_s"] for row in rows),
        reason=min(alike, key=lambda row: row.get("since") or 0.0)["reason"],
        shared=any(row.get("shared") for row in rows),
    )
