"""taskiq over a redis stream, which keeps a message until it was acknowledged; its list keeps none."""

import os

from payload import answered
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

AT_ONCE = 50  # calls of `submit` in flight

backend = RedisAsyncResultBackend(os.environ["PEER_REDIS"], result_ex_time=3600)
broker = RedisStreamBroker(os.environ["PEER_REDIS"]).with_result_backend(backend)


@broker.task
async def echo(body: dict) -> dict:
    return answered(body)


async def opened():
    await broker.startup()


async def submit(body):
    return (await echo.kiq(body)).task_id


async def result(job_id):
    if not await backend.is_result_ready(job_id):
        return None
    return (await backend.get_result(job_id)).return_value
