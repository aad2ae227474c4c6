"""lanes_of: which tasks share the replicas of one lane."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from forebay.core.task import TaskSpec

CALL_MARGIN_S: Final = 10.0  # a call ends itself at its timeout; when it has not by then, the lane ends it
POOL: Final = "(functions)"  # the lane of all plain functions
# But of those that stand in for others: they must have a process when calls that hang hold all of the pool.
FALLBACKS: Final = "(fallbacks)"


def as_lane_sees(spec: TaskSpec) -> TaskSpec:
    """Return a task as its lane is told of it."""
    return spec if spec.upstream is None else replace(spec, timeout_s=spec.timeout_s + CALL_MARGIN_S)


def lanes_of(tasks: Sequence[TaskSpec]) -> dict[str, list[TaskSpec]]:
    """Return the tasks of each lane, by its name."""
    lanes: dict[str, list[TaskSpec]] = {}
    fallbacks = {task.fallback for task in tasks}
    for task in tasks:
        pool = FALLBACKS if task.name in fallbacks else POOL
        lanes.setdefault(pool if task.kind == "function" else task.name, []).append(task)
    return lanes
