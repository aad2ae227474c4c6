"""FastAPI and uvicorn with the batcher that people write by hand: a bounded queue, a task, a thread.

`queue` is how many may wait; `expire_s` how long one may have waited when its batch is made.
"""

import asyncio
import contextlib
import time

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from slept import BATCH, PORT, SETTINGS, predict

WAIT_S = 0.005
EXPIRE_S = SETTINGS.get("expire_s")
waiting = asyncio.Queue(SETTINGS.get("queue", 100))


async def collect():
    """Return the next batch of (item, future, since)."""
    batch = [await waiting.get()]
    late_s = time.monotonic() + WAIT_S
    while len(batch) < BATCH:
        with contextlib.suppress(asyncio.QueueEmpty):
            batch.append(waiting.get_nowait())
            continue
        left_s = late_s - time.monotonic()
        if left_s <= 0:
            break
        with contextlib.suppress(TimeoutError):
            batch.append(await asyncio.wait_for(waiting.get(), left_s))
    return batch


async def work():
    """Call the model, one batch after another."""
    while True:
        batch = await collect()
        if EXPIRE_S is not None:
            now = time.monotonic()
            for _, answer, since in batch:
                if now - since > EXPIRE_S and not answer.done():
                    answer.set_result(None)
        batch = [one for one in batch if not one[1].done()]
        if not batch:
            continue
        try:
            outputs = await asyncio.to_thread(predict, [item for item, _, _ in batch])
        except Exception as error:
            for _, answer, _ in batch:
                if not answer.done():
                    answer.set_exception(error)
            continue
        for (_, answer, _), output in zip(batch, outputs, strict=True):
            if not answer.done():
                answer.set_result(output)


@contextlib.asynccontextmanager
async def life(_):
    task = asyncio.create_task(work())
    yield
    task.cancel()


app = FastAPI(lifespan=life)
BUSY = {"status_code": 503, "content": {"detail": "busy"}, "headers": {"Retry-After": "1"}}


@app.post("/predict")
async def answer(item: dict):
    future = asyncio.get_running_loop().create_future()
    try:
        waiting.put_nowait((item, future, time.monotonic()))
    except asyncio.QueueFull:
        return JSONResponse(**BUSY)
    output = await future
    return JSONResponse(**BUSY) if output is None else output


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, access_log=False, log_level="warning")
