"""say_contradictions: what in the settings of the tasks cannot be meant, one line each, at the start."""

import shutil
from collections.abc import Callable, Iterable

from forebay.config import Settings, data_directory, process_environment
from forebay.core.sizing.findings import findings
from forebay.core.sizing.measured import declared
from forebay.core.task import TaskSpec
from forebay.node.limits import gpus_present

NAMES_MAX = 10  # tasks named in one line


def say_contradictions(tasks: Iterable[TaskSpec], settings: Settings, *, warn: Callable[..., object]) -> None:
    """Warn of each once, with all tasks it is true of. Nothing was measured yet, so only what is set can
    contradict."""
    try:
        free_b = shutil.disk_usage(data_directory(settings)).free
    except OSError:
        free_b = None
    told: dict[tuple[str, str, str], list[str]] = {}
    described = list(tasks)
    say_missing_gpus(described, gpus_present(process_environment()), warn=warn)
    for spec in described:
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
        warn("limits_contradict", code=code, task=_few(names), why=why, change=change)


def say_missing_gpus(tasks: Iterable[TaskSpec], gpus: int, *, warn: Callable[..., object]) -> None:
    """Warn once of tasks whose `devices` name a GPU that this process does not see: `load` would fail."""
    wanting = [spec.name for spec in tasks if any(_beyond(device, gpus) for device in spec.devices or ())]
    if wanting:
        seen = f"this process sees {gpus} GPU{'' if gpus == 1 else 's'}"
        why = f"devices= names one that is not there: {seen}"
        change = 'leave devices= out (a GPU each, else the CPU), or say "cpu"; in a container give it the GPU'
        warn("gpu_missing", task=_few(wanting), why=why, change=change)


def _beyond(device: str, gpus: int) -> bool:
    kind, _, number = device.partition(":")
    return kind == "cuda" and int(number or 0) >= gpus


def _few(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
