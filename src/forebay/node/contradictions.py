"""say_contradictions: what in the settings of the tasks cannot be meant, one line each, at the start."""

import shutil
from collections.abc import Callable, Iterable

from forebay.config import Settings, data_directory
from forebay.core.sizing.findings import findings
from forebay.core.sizing.measured import declared
from forebay.core.task import TaskSpec

NAMES_MAX = 10  # tasks named in one line


def say_contradictions(tasks: Iterable[TaskSpec], settings: Settings, *, warn: Callable[..., object]) -> None:
    """Warn of each once, with all tasks it is true of. Nothing was measured yet, so only what is set can
    contradict."""
    try:
        free_b = shutil.disk_usage(data_directory(settings)).free
    except OSError:
        free_b = None
    told: dict[tuple[str, str, str], list[str]] = {}
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
            told.setdefault((found.code, found.evidence, found.change), []).append(found.task)
    for (code, why, change), names in told.items():
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        warn("limits_contradict", code=code, task=", ".join(names[:NAMES_MAX]) + more, why=why, change=change)
