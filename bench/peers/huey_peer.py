"""huey over SQLite, synced or not."""

import os

from huey import SqliteHuey
from payload import answered

SYNCED = os.environ["PEER_SYNCED"] == "yes"

huey = SqliteHuey(filename=os.path.join(os.environ["PEER_DATA"], "huey.db"), fsync=SYNCED)


@huey.task()
def echo(body):
    return answered(body)


async def submit(body):
    return echo(body).id


async def result(job_id):
    return huey.result(job_id, preserve=True)
