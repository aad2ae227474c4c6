"""Puts load on one queue, in that queue's own environment: reads one request a line, answers one line each.

    PEER=saq_peer python drive.py <<< '["latency", 500, 5000]'

A request is a list: what to do, then its arguments. It needs the standard library and the peer's adapter,
a module with `submit(body) -> id` and `result(id) -> output or None`; where it has them, `opened()`,
`submit_many(bodies) -> ids` and `AT_ONCE`, the calls of `submit` that its users would have in flight.
"""

import asyncio
import importlib
import json
import os
import sys
import time

from payload import asked

LOOK_EVERY_S = 0.001  # between looks for one result, and later a tenth of the wait so far
LOOK_EVERY_MAX_S = 0.25
START_MAX_S = 30.0  # until the first result of freshly started workers
LATE_MAX_S = 5.0  # for results that come after the last job's
THROUGH_MAX_S = 120.0  # for the last result of `through`
ANSWER_MAX_S = 15.0  # for one result under load
MISSING_MAX = 300  # results missed in a row: the rest of a cut backlog is not looked up
WARM_JOBS = 50
MANY = 500  # jobs in one call of `submit_many`

peer = importlib.import_module(os.environ["PEER"])
backlog = []  # ids, in the order they were submitted
ended = {}  # when the last result was seen, if it was


async def fill(most, most_s):
    """Submit one call after another; return how many and how long it took."""
    began = time.perf_counter()
    while len(backlog) < most and time.perf_counter() - began < most_s:
        backlog.append(await peer.submit(asked(len(backlog))))
    return {"jobs": len(backlog), "took_s": time.perf_counter() - began}


async def drain(most_s):
    """Wait until the last job's result is there, or for so long after the first job started."""
    first = await awaited(backlog[0], START_MAX_S)
    if first is None:
        raise SystemExit("the workers did not start")
    while time.time() - first["started"] < most_s:
        if await peer.result(backlog[-1]) is not None:
            ended["at"] = time.time()
            break
        await asyncio.sleep(0.01)
    return {"whole": bool(ended)}


async def count():
    """Return how many results can be looked up, and the time from the first start to the last result."""
    started, missing = [], 0
    late = time.time() + (LATE_MAX_S if ended else 0)
    for job_id in backlog:
        found = await peer.result(job_id)
        if found is None and ended and time.time() < late:
            found = await awaited(job_id, late - time.time())
            ended["at"] = time.time()
        if found is not None:
            started.append(found["started"])
        missing = missing + 1 if found is None else 0
        if missing > MISSING_MAX:
            break
    end = max([ended.get("at", 0.0), *started])
    return {"jobs": len(started), "took_s": end - min(started)}


async def awaited(job_id, most_s):
    """Return the result, or None when it does not come in time.

    Looks get rarer in the measure of the wait: at one a millisecond, whoever is late would be buried under
    the looks of those who wait, and a hiccup would never end.
    """
    began = time.perf_counter()
    while (found := await peer.result(job_id)) is None and (waited := time.perf_counter() - began) < most_s:
        await asyncio.sleep(min(max(LOOK_EVERY_S, waited / 10), LOOK_EVERY_MAX_S))
    return found


async def latency(rate, jobs, every):
    """Submit on a fixed timetable whatever the answers do; look up one result in `every`.

    Milliseconds from the call of `submit` until the result was seen. The first tenth is not counted.
    """
    await warm()
    times, unanswered = [], 0

    async def one(number):
        nonlocal unanswered
        began = time.perf_counter()
        job_id = await peer.submit(asked(number))
        if number % every == 0:
            if await awaited(job_id, ANSWER_MAX_S) is None:
                unanswered += 1
            if number >= jobs // 10:
                times.append((time.perf_counter() - began) * 1000)

    began, tasks = time.perf_counter(), []
    for number in range(jobs):
        wait = began + number / rate - time.perf_counter()
        if wait > 0 or number % 20 == 0:  # a submit that blocks must not keep the others from their turn
            await asyncio.sleep(max(0.0, wait))
        tasks.append(asyncio.ensure_future(one(number)))
    offered = jobs / (time.perf_counter() - began)
    behind = sum(not task.done() for task in tasks)
    await asyncio.gather(*tasks)
    times_ms = [round(one, 3) for one in times]
    return {"times_ms": times_ms, "offered": offered, "behind": behind, "unanswered": unanswered}


async def submitted(bodies):
    """Submit as the peer's users would when they have many; return the ids."""
    if hasattr(peer, "submit_many"):
        return list(await peer.submit_many(bodies))
    if hasattr(peer, "AT_ONCE"):
        return list(await asyncio.gather(*(peer.submit(body) for body in bodies)))
    return [await peer.submit(body) for body in bodies]


async def through(jobs):
    """Submit while the workers run; jobs, and seconds from the first submit to the last result."""
    await warm()
    each = MANY if hasattr(peer, "submit_many") else getattr(peer, "AT_ONCE", 20)
    ids, began = [], time.time()
    while len(ids) < jobs:
        ids += await submitted([asked(number) for number in range(len(ids), min(jobs, len(ids) + each))])
        await asyncio.sleep(0)
    late = began + THROUGH_MAX_S
    while await peer.result(ids[-1]) is None and time.time() < late:
        await asyncio.sleep(0.01)
    ended_at, missing = time.time(), 0
    for job_id in ids:  # the others were there by then, or the end is when they are
        if await peer.result(job_id) is None:
            missing += await awaited(job_id, max(0.0, late - time.time())) is None
            ended_at = time.time()
    return {"jobs": jobs - missing, "missing": missing, "took_s": ended_at - began}


async def warm():
    """Return when the workers work."""
    for number in range(WARM_JOBS):
        if await awaited(await peer.submit(asked(number)), START_MAX_S) is None:
            raise SystemExit("the workers did not start")


async def idle(jobs, gap_s):
    """Submit one job after another, with a pause before each; milliseconds until each result was seen."""
    await warm()
    times = []
    for number in range(jobs):
        await asyncio.sleep(gap_s)
        began = time.perf_counter()
        if await awaited(await peer.submit(asked(number)), ANSWER_MAX_S) is None:
            raise SystemExit("a job was not answered")
        times.append(round((time.perf_counter() - began) * 1000, 3))
    return {"times_ms": times}


async def ready():
    """Return when the peer can be asked: its workers may start."""
    return {}


async def hold(jobs, hold_s):
    """Submit jobs that take a while and note when they begin and end."""
    for number in range(jobs):
        await peer.submit({**asked(number), "hold_s": hold_s})
    return {"jobs": jobs}


async def serve():
    """Do what each line asks until there are no more."""
    verbs = {"fill": fill, "drain": drain, "count": count, "latency": latency}
    verbs |= {"ready": ready, "through": through, "idle": idle, "hold": hold}
    if hasattr(peer, "opened"):
        await peer.opened()
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        print(json.dumps(await verbs[verb](*arguments)), flush=True)


if __name__ == "__main__":
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    run(serve())
