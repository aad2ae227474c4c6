"""Celery over redis, set to keep a job until its function has returned."""

import os

from celery import Celery
from payload import answered

app = Celery("celery_peer", broker=os.environ["PEER_REDIS"], backend=os.environ["PEER_REDIS"])
app.conf.update(
    accept_content=["json"],
    broker_connection_retry_on_startup=True,
    result_serializer="json",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_serializer="json",
    worker_prefetch_multiplier=1,
)


@app.task
def echo(body):
    return answered(body)


async def submit(body):
    return echo.delay(body).id


async def result(job_id):
    found = app.backend.get_task_meta(job_id, cache=False)
    return found["result"] if found["status"] == "SUCCESS" else None
