"""held_s: how long the jobs of a task wait for its breaker, whatever stands in line."""

from forebay.server.front import Front


def held_s(front: Front, task: str) -> float | None:
    """Return the seconds until the open breaker of a task lets a probe through, where its jobs wait for that;
    None where they go on: it is not open, or something stands in for the task."""
    spec = front.tasks[task]
    seen = (
        None if front.node is None or spec.fallback or spec.canned is not None else front.node.breaker(task)
    )
    if seen is None or seen["state"] != "open":
        return None
    return float(str(seen["retry_after_s"]))
