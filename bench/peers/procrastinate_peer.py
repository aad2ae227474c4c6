"""Procrastinate on PostgreSQL: defer a backlog, run one worker until it is empty, print the seconds. A program:
python procrastinate_peer.py URL JOBS CONCURRENCY
"""

import asyncio
import sys
import time

import procrastinate

TEXT = "x" * 980


async def main(url: str, jobs: int, concurrency: int) -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=40))

    @app.task(name="echo", queue="echo")
    async def echo(body: dict) -> dict:
        return body

    async with app.open_async():
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()
        await echo.batch_defer_async(*({"body": {"id": number, "text": TEXT}} for number in range(jobs)))
        began = time.perf_counter()
        await app.run_worker_async(
            queues=["echo"],
            concurrency=concurrency,
            wait=False,
            install_signal_handlers=False,
            delete_jobs="never",
        )
        print(time.perf_counter() - began)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
