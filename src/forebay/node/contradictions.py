"""say_contradictions: what in the settings of the tasks cannot be meant, one line each, at the start."""

import shutil
from collections.abc import Callable, Iterable

from forebay.config import Settings, data_directory
from forebay.core.sizing.findings import findings
from forebay.core.sizing.measured import declared
from forebay.core.task import TaskSpec


def say_contradictions(tasks: Iterable[TaskSpec], settings: Settings, *, warn: Callable[..., object]) -> None:
    """Warn of each. Nothing was measured yet, so only what is set can contradict."""
    try:
        free_b = shutil.disk_usage(data_directory(settings)).free
    except OSError:
        free_b = None
    for spec in tasks:
        limits = declared(
            spec,
            lease_s=settings.lease,
            heartbeat_s=settings.heartbeat,
            grace_s=settings.grace,
            queue_max=settings.queue_max,
            queue_bytes_max=settings.queue_bytes_max,
            disk_free_b=free_b,
        )
        for found in findings(limits):
            warn(
                "limits_contradict", code=found.code, task=found.task, why=found.evidence, change=found.change
            )
