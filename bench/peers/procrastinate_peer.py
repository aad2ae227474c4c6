"""Procrastinate on PostgreSQL. It keeps no return values, so the task stores its own, as an application would."""

import json
import os

import procrastinate
from payload import answered

AT_ONCE = 50  # calls of `submit` in flight

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["PEER_POSTGRES"], min_size=2, max_size=12)
)


@app.task(pass_context=True)
async def echo(context, body):
    await context.app.connector.execute_query_async(
        "INSERT INTO peer_results VALUES (%(id)s, %(output)s)"
        " ON CONFLICT (job_id) DO UPDATE SET output = excluded.output",
        id=context.job.id,
        output=json.dumps(answered(body)),
    )


async def opened():
    await app.open_async()
    if not await app.check_connection_async():
        await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async(
            "CREATE TABLE IF NOT EXISTS peer_results (job_id bigint PRIMARY KEY, output text)"
        )


async def submit(body):
    return await echo.defer_async(body=body)


async def submit_many(bodies):
    return await echo.batch_defer_async(*({"body": body} for body in bodies))


async def result(job_id):
    rows = await app.connector.execute_query_all_async(
        "SELECT r.output FROM procrastinate_jobs j JOIN peer_results r ON r.job_id = j.id"
        " WHERE j.id = %(id)s AND j.status = 'succeeded'",
        id=job_id,
    )
    return json.loads(rows[0]["output"]) if rows else None
