"""Forebay over HTTP, asked like the others: one call submits, one call by id looks the result up."""

import json
import os

from harness import connect, post

PORT = int(os.environ["PEER_PORT"])

free = []  # idle connections


async def call(request):
    caller = free.pop() if free else (await connect(PORT, 1))[0]
    status, body = await caller.call(request)
    free.append(caller)
    return status, body


async def submit(body):
    status, answer = await call(post(json.dumps({"task": "echo", "payload": body}).encode()))
    if status != 202:
        raise SystemExit(f"submit answered {status}: {answer[:300]!r}")
    return json.loads(answer)["job_id"]


async def result(job_id):
    head = f"GET /v1/jobs/{job_id}/result HTTP/1.1\r\nHost: localhost\r\n\r\n"
    status, answer = await call(head.encode())
    if status not in (200, 409):  # 409: not finished
        raise SystemExit(f"the result answered {status}: {answer[:300]!r}")
    return json.loads(answer) if status == 200 else None
