"""What is in jobs stays there: not in logs, not in metrics, not in what others are told, whatever breaks."""

import asyncio
import io
import itertools
import json

import pytest

from forebay.brokers.memory import MemoryBroker
from forebay.errors import StoreUnavailableError
from forebay.observe.logs import make_log
from tests.server.doors import Caller, a_front, condemn, finish, kill, lease
from tests.server.test_keys import KEYS, ROOT, ROUTES, UNKNOWN, A, B, bearer, filled

MARK = "marker-5f1c"


class Breaking(MemoryBroker):
    """An engine that can be told to break, in words that quote what it was given."""

    broken = None

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        broken = object.__getattribute__(self, "broken")
        if broken is None or name not in {
            "enqueue",
            "get",
            "find",
            "cancel",
            "pause",
            "purge",
            "redrive",
            "depth",
            "was_purged",
        }:
            return found

        async def fails(*args, **options):
            raise broken(f"could not do it with {args!r} {options!r} {MARK}")

        return fails


def hostile(key):
    """Requests that carry the marker wherever a caller can put it."""
    good = {"task": "echo", "payload": {"secret": MARK}, "metadata": {"who": MARK}, "idempotency_key": MARK}
    bodies = [
        good, good | {"payload": MARK, "ttl": MARK}, good | {"priority": MARK}, good | {MARK: 1}, good | {"task": MARK},
        good | {"task": "Clip", "payload": {"url": MARK, "extra": MARK}}, good | {"deadline": MARK}, good | {"run_at": MARK},
        good | {"callback_url": f"http://user:{MARK}@127.0.0.1/{MARK}?token={MARK}"}, [MARK], MARK,
    ]  # fmt: skip
    for body in bodies:
        yield (
            "POST",
            "/v1/jobs",
            {"content": json.dumps(body), "headers": {"content-type": "application/json"}},
        )
        yield (
            "POST",
            "/v1/jobs",
            {"content": json.dumps(body), "headers": {"content-type": "application/x-ndjson"}},
        )
    yield (
        "POST",
        "/v1/jobs",
        {"content": f'{{"task": "{MARK}', "headers": {"content-type": "application/json"}},
    )
    for method, path in ROUTES:
        names = ("job_id", "task", "blob_id", "id", "cron", "fingerprint", "stream")
        where = filled(path, dict.fromkeys(names, MARK))
        for target in (where, f"{where}?x={MARK}", f"/{MARK}/{where}"):
            more = {
                "content": json.dumps({"task": MARK, "ids": [MARK]}),
                "headers": {"content-type": "application/json"},
            }
            yield method, target, more if method in {"POST", "PUT", "PATCH"} else {"headers": {}}
    for header in (
        "authorization",
        "forebay-tenant",
        "idempotency-key",
        "prefer",
        "if-none-match",
        "x-anything",
    ):
        yield "GET", "/v1/jobs", {"headers": {header: f"Bearer {MARK}"}, "bare": header == "authorization"}


async def everything(caller, key):
    for method, path, more in hostile(key):
        heads = more.pop("headers")
        if not more.pop("bare", False):
            heads = bearer(key) | heads
        yield await caller.request(method, path, headers=heads, **more)


@pytest.mark.parametrize("broken", [None, ValueError, StoreUnavailableError, OSError], ids=str)
def test_no_log_line_and_no_metric_ever_holds_what_is_in_a_job(broken):
    out = io.StringIO()

    async def run():
        front = a_front(keys=KEYS, broker=Breaking())
        front.log = make_log(now=front.clock.now, stream=out, form="json", level="info")
        async with asyncio.timeout(50), Caller(front) as caller:
            for payload in (MARK, {"deep": [MARK]}):
                job = await caller.one(payload=payload, metadata={"who": MARK}, headers=bearer(A))
                await finish(front, output=json.dumps(MARK).encode())
                assert MARK in (await caller.get(f"/v1/jobs/{job['job_id']}", headers=bearer(A))).text
            await caller.one(payload=MARK, headers=bearer(A))
            await kill(front, code=MARK)
            await caller.one(payload=MARK, headers=bearer(A))
            await lease(front)
            front.broker.broken = broken
            async for _ in everything(caller, A):
                pass
            front.broker.broken = None
            text = (await caller.get("/metrics", headers=bearer(ROOT))).text
            assert MARK not in text and A not in text and "inference_admission_total" in text

    asyncio.run(run())
    lines = out.getvalue().splitlines()
    assert MARK not in out.getvalue(), [line for line in lines if MARK in line][:3]
    assert A not in out.getvalue() and A[3:20] not in out.getvalue()
    events = {json.loads(line)["event"] for line in lines}
    assert (
        broken is None or broken is StoreUnavailableError or events & {"request_failed", "store_write_failed"}
    ), events


def test_no_answer_to_another_tenant_holds_what_is_in_a_job():
    async def run():
        async with asyncio.timeout(50), Caller(a_front(keys=KEYS)) as caller:
            await caller.submit(payload=[MARK], headers=bearer(A))
            deadly, ids = await condemn(caller.front), []
            for end in (finish, kill, lease):
                job = await caller.one(
                    payload=MARK,
                    metadata={"who": MARK},
                    headers=bearer(A) | {"idempotency-key": f"k{end.__name__}"},
                )
                ids.append(job["job_id"])
                await (
                    end(caller.front, output=json.dumps(MARK).encode())
                    if end is finish
                    else end(caller.front)
                )
            ids.append((await caller.one(payload=MARK, headers=bearer(A)))["job_id"])
            for (method, path), job_id in itertools.product(ROUTES, [*ids, UNKNOWN]):
                named = {"task": "echo", "cron": "x", "fingerprint": deadly}
                named |= dict.fromkeys(("blob_id", "id", "stream"), "x")
                where = filled(path, named | {"job_id": job_id})
                more = {"json": {"ids": ids}} if method in {"POST", "PUT", "PATCH"} else {}
                answer = await caller.request(method, where, headers=bearer(B), **more)
                assert MARK not in answer.text and MARK not in str(answer.headers), (method, path)

    asyncio.run(run())


def test_the_level_debug_shows_what_an_exception_said():
    for level, told in (("info", False), ("debug", True)):
        out = io.StringIO()
        log = make_log(now=lambda: 0.0, stream=out, form="json", level=level)
        try:
            raise KeyError(MARK)
        except KeyError:
            log.exception("broke")
        assert (MARK in out.getvalue()) is told
        assert "KeyError" in out.getvalue() and "test_redaction.py" in out.getvalue()
