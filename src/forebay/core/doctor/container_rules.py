"""Rules over what a container runtime says: limits, what is used of them, and how it ended before."""

import math
from collections.abc import Callable, Iterator

from forebay.core.doctor.host_rules import MEMORY_RATIO
from forebay.core.doctor.readings import Container
from forebay.core.sizing import words
from forebay.core.sizing.findings import Finding

FULL_RATIO = 0.95  # of a CPU quota
ONE_CPU = (0.9, 1.1)  # CPUs in use when one thread does all the work
RESTARTS_MIN = 3


def container_findings(container: Container, *, gpus_there: int = 0) -> list[Finding]:
    """Return what is wrong with one container on a machine of so many GPUs."""
    told = (rule(container, gpus_there) for rule in RULES)
    return [found._replace(task=container.name) for one in told for found in one]


def _ended(container: Container, _: int) -> Iterator[Finding]:
    if container.oom_killed:
        limit = "no limit" if container.memory_b is None else f"a limit of {words.size(container.memory_b)}"
        yield Finding(
            "out_of_memory",
            f"it was killed for its memory (OOMKilled), with {limit}",
            "a larger memory limit (docker update --memory), fewer workers, or a smaller batch_max",
        )
    elif container.restarts >= RESTARTS_MIN:
        yield Finding(
            "restarts",
            f"it was started again {container.restarts:,} times",
            f"docker logs {container.name} says why it ended",
        )


def _memory(container: Container, _: int) -> Iterator[Finding]:
    most, used = container.memory_b, container.used_b
    if most and used is not None and round(used / most, 2) >= MEMORY_RATIO:  # docker tells two digits
        wanted = words.size(math.ceil(used * 1.25))
        yield Finding(
            "memory_nearly_full",
            f"{words.size(used)} of {words.size(most)} are in use",
            f"allow {wanted} (docker update --memory), or fewer workers: at the limit the kernel kills one",
        )


def _processor(container: Container, _: int) -> Iterator[Finding]:
    used, quota = container.used, container.quota
    if used is None:
        return
    if quota is not None and used >= FULL_RATIO * quota:
        yield Finding(
            "cpu_at_its_quota",
            f"{used:.1f} CPUs in use of the {quota:g} that its quota gives",
            f"docker update --cpus {math.floor(quota) + 1} {container.name}, or fewer workers in it",
        )
    elif ONE_CPU[0] <= used <= ONE_CPU[1] and (quota is None or quota >= 2 * used * FULL_RATIO):
        yield Finding(
            "one_cpu_busy",
            f"{used:.1f} CPUs in use{'' if quota is None else f' of {quota:g}'}: one thread does the work",
            "more workers (WORKER_CONCURRENCY, --workers), so that the others are used",
        )


def _gpu(container: Container, gpus_there: int) -> Iterator[Finding]:
    if gpus_there and container.gpus == 0:
        yield Finding(
            "gpu_not_given",
            f"the machine has {gpus_there} {'GPU' if gpus_there == 1 else 'GPUs'} and it was given none",
            "docker run --gpus all, or deploy.resources.reservations.devices in compose",
        )


Rule = Callable[[Container, int], Iterator[Finding]]

RULES: tuple[Rule, ...] = (_ended, _memory, _processor, _gpu)
