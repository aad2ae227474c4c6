"""dramatiq over redis: a message is acknowledged when its function has returned and its result is stored."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultMissing, Results
from dramatiq.results.backends import RedisBackend
from payload import answered

backend = RedisBackend(url=os.environ["PEER_REDIS"])
broker = RedisBroker(url=os.environ["PEER_REDIS"])
broker.add_middleware(Results(backend=backend))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def echo(body):
    return answered(body)


async def submit(body):
    return echo.send(body)


async def result(message):
    try:
        return message.get_result(backend=backend, block=False)
    except ResultMissing:
        return None
