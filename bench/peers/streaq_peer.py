"""streaq over redis streams, with its own call for many jobs."""

import os

from payload import answered
from streaq import Worker

worker = Worker(
    redis_url=os.environ["PEER_REDIS"],
    concurrency=int(os.environ.get("PEER_AT_ONCE", "100")),
    anyio_kwargs={"use_uvloop": True},
)


@worker.task(silent=True)
async def echo(body: dict) -> dict:
    return answered(body)


async def opened():
    await worker.__aenter__()


async def submit(body):
    return (await echo.enqueue(body)).id


async def submit_many(bodies):
    tasks = [echo.enqueue(body) for body in bodies]
    await worker.enqueue_many(tasks)
    return [task.id for task in tasks]


async def result(job_id):
    """Read what `Task.result` reads, without its wait."""
    stored = await worker.redis.get(worker.results_key + job_id)
    return (await worker.deserialize(stored))["r"] if stored else None
