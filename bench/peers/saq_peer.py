"""saq over redis, with retries, without which it gives up a job whose worker died."""

import os

from payload import answered
from saq import Queue

AT_ONCE = 50  # calls of `submit` in flight

queue = Queue.from_url(os.environ["PEER_REDIS"])


async def echo(ctx, *, body):
    return answered(body)


settings = {"queue": queue, "functions": [echo], "concurrency": int(os.environ.get("PEER_AT_ONCE", "50"))}


async def submit(body):
    return (await queue.enqueue("echo", body=body, retries=3)).key


async def result(job_id):
    job = await queue.job(job_id)
    return job.result if job is not None and job.status == "complete" else None
