"""plan_of: the settings and this machine -> what a node is to run."""

from collections.abc import Iterable

from forebay.blobs.assembly import blob_terms
from forebay.config import Settings, process_environment
from forebay.core.requests import RequestPolicy
from forebay.core.scaling import ScalePolicy
from forebay.core.task import TaskSpec
from forebay.node.limits import cpus_allowed, default_workers, gpus_present, thread_cap
from forebay.node.node import NodePlan


def plan_of(target: str, tasks: Iterable[TaskSpec], settings: Settings) -> NodePlan:
    """Return the plan. Raises ConfigError for a WORKER_CONCURRENCY that is no number of workers."""
    env = process_environment()
    workers = settings.workers or default_workers(env)
    described = tuple(tasks)
    return NodePlan(
        app=target,
        tasks=described,
        workers=workers,
        gpus=gpus_present(env),
        threads=thread_cap(cpus_allowed(), workers),
        lease_s=settings.lease,
        result_bytes_max=settings.result_bytes_max,
        blobs=blob_terms(settings),
        env=env,
        requests=request_policy(settings),
        bounds=queue_bounds(described, settings),
        scale=ScalePolicy(wait_s=settings.replicas_wait, calm_s=settings.replicas_idle),
    )


def queue_bounds(tasks: Iterable[TaskSpec], settings: Settings) -> dict[str, tuple[int, int]]:
    """Return the bounds of the queue of each task, in jobs and in bytes."""
    return {
        task.name: (task.queue_max or settings.queue_max, task.queue_bytes_max or settings.queue_bytes_max)
        for task in tasks
    }


def request_policy(settings: Settings) -> RequestPolicy:
    """Return the bounds of the requests of each task."""
    return RequestPolicy(
        requests_max=settings.requests_max,
        bytes_max=settings.requests_bytes_max,
        jobs_share=settings.requests_jobs_share,
    )
