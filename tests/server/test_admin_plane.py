"""An admin listener of its own: what it keeps is not on the public one, keys or no keys."""

import asyncio

import httpx
import pytest

from forebay.keys import read_ring
from forebay.server.access import ACCESS, Watchman
from forebay.server.asgi import AdminDoor
from forebay.server.serve import Server
from tests.server.doors import Caller, a_front, serving
from tests.server.test_keys import KEYS, ROOT, ROUTES, bearer, filled, template

KEPT = [route for route in ROUTES if ACCESS[route[0], template(route[1])].plane]
IDS = {
    "job_id": "0190a000-0000-7000-8000-00000000dead",
    "task": "echo",
    "blob_id": "0" * 56,
    "cron": "x",
    "fingerprint": "0" * 32,
}


def apart(keys):
    front = a_front()
    front.watchman = Watchman(None if keys is None else read_ring(keys, None), apart=True)
    return front


def both(test, keys):
    async def run():
        async with asyncio.timeout(30), Caller(apart(keys)) as public:
            transport = httpx.ASGITransport(AdminDoor(public.door))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as admin:
                await test(public, admin)

    asyncio.run(run())


def test_the_taps_metrics_and_workers_are_among_what_is_kept():
    paths = {path for _, path in KEPT}
    assert {"/metrics", "/v1/workers", "/v1/queues/{task}/pause", "/v1/dead-letters/redrive"} <= paths


@pytest.mark.parametrize("keys", [None, KEYS], ids=["no keys", "keys"])
@pytest.mark.parametrize(("method", "path"), KEPT, ids=str)
def test_what_is_kept_is_no_address_of_the_public_listener(method, path, keys):
    async def tried(public, admin):
        where, heads = filled(path, IDS), bearer(ROOT) if keys else {}
        body = {"json": {}} if method in {"POST", "PATCH"} else {}
        refused = await public.request(method, where, headers=heads, **body)
        assert refused.status_code in {404, 405}, refused.text
        assert refused.json()["code"] in {"not_found", "method_not_allowed"}
        assert "no such address" in refused.text or refused.status_code == 405
        answered = await admin.request(method, where, headers=heads, **body)
        assert "no such address" not in answered.text and answered.status_code != 405

    both(tried, keys)


def test_everything_else_is_answered_on_both():
    async def tried(public, admin):
        job = await public.one()
        for client in (public, admin):
            assert (await client.get(f"/v1/jobs/{job['job_id']}")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200

    both(tried, None)


def test_two_real_listeners_stop_together():
    async def run():
        front = apart(None)
        async with serving(front) as (port, server):
            server.beside = Server(server._door, host="127.0.0.1", port=0, app=AdminDoor(server._door))
            admin_port = await server.beside.start()
            async with httpx.AsyncClient() as client:
                assert (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code == 404
                assert (await client.get(f"http://127.0.0.1:{admin_port}/metrics")).status_code == 200
        for closed in (port, admin_port):
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", closed)

    asyncio.run(run())
