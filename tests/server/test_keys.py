"""Keys at the door: who is let in, with which scope, and that other tenants do not exist.

Every route is taken from the OpenAPI document: one that is added later is tried here unasked.
"""

import asyncio
import json
import re
import tempfile

import pytest

from forebay.core.crons import CronEntry
from forebay.core.tenant import Scope
from forebay.server.access import ACCESS, rules_of
from forebay.server.openapi import build_document
from tests.server.doors import Caller, a_front, condemn, crons_of, finish, kill, lease

A, B, ROOT, READER, BLIND, LATE = (f"fb_{name}_0123456789abcdefghijklmnopqrstuvwxyz" for name in "abrxyz")
KEYS = json.dumps({
    A: {"tenant": "a", "scopes": ["submit", "read", "cancel"]},
    B: {"tenant": "b", "scopes": ["submit", "read", "cancel"]},
    ROOT: {"tenant": "ops", "scopes": ["admin"]},
    READER: {"tenant": "a", "scopes": ["read"]},
    BLIND: {"tenant": "a", "scopes": ["worker"]},
    LATE: {"tenant": "a", "scopes": ["admin"], "expires": "2001-01-01T00:00:00Z"},
})  # fmt: skip
UNKNOWN = "0190a000-0000-7000-8000-00000000dead"
SLOW_S = 30.0


class Still:
    """A clock that stands, so that two worlds can be compared byte by byte."""

    def __init__(self):
        self.at = 1_800_000_000.0

    def now(self):
        return self.at

    def random(self):
        return 0.5

    async def sleep(self, seconds):
        await asyncio.sleep(0)


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def every_route():
    async def read():
        async with Caller(a_front()) as caller:
            return build_document(caller.door.warm(), caller.front)

    document = asyncio.run(read())
    return sorted((method.upper(), path) for path, methods in document["paths"].items() for method in methods)


ROUTES = every_route()


def template(path):
    return re.sub(r"\{[^}]*\}", "{}", path)


def filled(path, ids):
    names = re.findall(r"\{([^}]*)\}", path)
    unknown = [name for name in names if name not in ids]
    assert not unknown, (
        f"{path}: this test cannot make a {unknown[0]}; teach `things_of` to make one as tenant b, so that"
        " the route is tried with another tenant's"
    )
    for name in names:
        path = path.replace(f"{{{name}}}", ids[name])
    return path


async def ask(caller, method, path, key=None, **more):
    kwargs = {"json": {}} if method in {"POST", "PUT", "PATCH"} else {}
    async with asyncio.timeout(SLOW_S):
        return await caller.request(method, path, headers=bearer(key) if key else {}, **(kwargs | more))


def told(answer, *ids):
    """What can be seen of an answer, without the ids that were asked for."""
    text = answer.text
    for one in ids:
        text = text.replace(one, "ID")
    kept = {name: value for name, value in answer.headers.items() if name not in {"content-length", "date"}}
    return answer.status_code, kept, text


async def deadly_of(caller, key):
    """The fingerprint of an input of one tenant that is in quarantine."""
    await caller.submit(payload="deadly", headers=bearer(key))
    return await condemn(caller.front)


async def things_of(caller, key):
    """Jobs of one tenant in every state, by state."""
    found = {}
    for name in ("done", "dead", "running", "queued", "cancelled"):
        answer = await caller.submit(
            payload=f"of {name}", headers=bearer(key) | {"idempotency-key": f"k-{name}"}, metadata={"m": "1"}
        )
        assert answer.status_code == 202, answer.text
        found[name] = answer.json()["job_id"]
        if name == "done":
            await finish(caller.front)
        elif name == "dead":
            await kill(caller.front)
        elif name == "running":
            await lease(caller.front)
        elif name == "cancelled":
            await caller.delete(f"/v1/jobs/{found[name]}", headers=bearer(key))
    return found


def world(test):
    async def run():
        with tempfile.TemporaryDirectory() as blobs:
            front = a_front(keys=KEYS, clock=Still(), blobs=blobs)
            front.crons = crons_of(front, CronEntry(name="of_b", task="echo", every_s=60, tenant="b"))
            async with asyncio.timeout(50), Caller(front) as caller:
                return await test(caller)

    return asyncio.run(run())


def test_every_route_has_its_rule_and_every_path_is_found_by_it():
    missing = [(method, path) for method, path in ROUTES if (method, template(path)) not in ACCESS]
    assert not missing, f"say in server/access.py which scope each wants: {missing}"
    for (method, path), rule in ACCESS.items():
        assert rules_of(path.replace("{}", "x"))[method] == rule


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=str)
def test_a_key_opens_what_its_scopes_name_and_nothing_else(method, path):
    rule = ACCESS[method, template(path)]

    async def tried(caller):
        ids = {"job_id": UNKNOWN, "task": "echo", "blob_id": "x", "cron": "of_b", "fingerprint": "0" * 32}
        ids["stream"] = "door"
        where = filled(path, ids)
        seen = {name: await ask(caller, method, where, key) for name, key in
                {"none": None, "bad": "fb_nobody", "late": LATE, "blind": BLIND, "reader": READER,
                 "a": A, "root": ROOT}.items()}  # fmt: skip
        return {name: answer.status_code for name, answer in seen.items()}, seen

    codes, seen = world(tried)
    if rule.scope is None:
        assert all(code not in {401, 403} for code in codes.values()), codes
        return
    for name in ("none", "bad", "late"):
        assert codes[name] == 401, (name, codes)
        assert seen[name].headers["www-authenticate"].startswith("Bearer")
        assert seen[name].json()["code"] == "unauthorized"
    assert seen["bad"].text == seen["late"].text
    may = {
        "blind": rule.scope is Scope.WORKER,
        "reader": rule.scope is Scope.READ,
        "a": rule.scope in {Scope.READ, Scope.SUBMIT, Scope.CANCEL},
        "root": True,
    }
    for name, let in may.items():
        assert (codes[name] not in {401, 403}) is let, (name, codes, seen[name].text)
        if not let:
            assert rule.scope.value in seen[name].json()["detail"]
            assert f'scope="{rule.scope.value}"' in seen[name].headers["www-authenticate"]


@pytest.mark.parametrize(("method", "path"), [r for r in ROUTES if "{" in r[1]], ids=str)
def test_what_another_tenant_owns_is_as_unknown_as_what_never_was(method, path):
    async def tried(caller):
        deadly = await deadly_of(caller, B)
        others = await things_of(caller, B)
        blob = await caller.put_blob(**bearer(B))
        own_seen = []
        for state, job_id in others.items():
            foreign, unknown = (
                filled(
                    path,
                    dict(
                        zip(("job_id", "task", "blob_id", "cron", "fingerprint", "stream"), ids, strict=True)
                    ),
                )
                for ids in (
                    (job_id, "echo", blob, "of_b", deadly, "door"),  # streams are of the application
                    (UNKNOWN, "echo", "0" * 56, "nobody", "0" * 32, "door"),
                )
            )
            one, two = await ask(caller, method, foreign, A), await ask(caller, method, unknown, A)
            assert told(one, job_id, blob, deadly) == told(two, UNKNOWN, "0" * 56, "0" * 32), (
                f"{method} {path} tells of a {state} job"
            )
            own_seen.append((await ask(caller, "GET", f"/v1/jobs/{job_id}", B)).json()["state"])
        assert own_seen == ["succeeded", "dead", "running", "queued", "cancelled"], "and changes nothing"
        assert (await ask(caller, "GET", f"/v1/blobs/{blob}", B)).content == b"hello world"
        probe = "HEAD" if path.endswith("/events") else method  # the events of an open job have no end yet
        ids = {"task": "echo", "blob_id": blob, "cron": "of_b", "fingerprint": deadly, "stream": "door"}
        own = [(await ask(caller, probe, filled(path, ids | {"job_id": one}), B))
               .status_code for one in others.values()]  # fmt: skip
        if "{job_id}" in path:
            wrong_body = {400, 415, 422}
            assert any(code not in {404} | wrong_body for code in own) or wrong_body & set(own), own

    world(tried)


@pytest.mark.parametrize(("method", "path"), [r for r in ROUTES if "{job_id}" in r[1]], ids=str)
def test_a_removed_job_is_gone_for_its_tenant_and_as_unknown_as_ever_to_others(method, path):
    async def tried(caller):
        mine = (await caller.submit(headers=bearer(A))).json()["job_id"]
        await finish(caller.front)
        await caller.front.broker.purge([mine], limit=1, now=caller.front.clock.now())
        gone, unknown = (filled(path, {"job_id": job_id}) for job_id in (mine, UNKNOWN))
        one, two = await ask(caller, method, gone, B), await ask(caller, method, unknown, B)
        assert told(one, mine) == told(two, UNKNOWN)
        own = await ask(caller, method, gone, A)
        never = await ask(caller, method, unknown, A)
        if never.status_code == 404:
            assert (own.status_code, own.json()["code"]) == (410, "gone")
        else:  # the body or the scope is asked first
            assert own.status_code == never.status_code

    world(tried)


@pytest.mark.parametrize(
    ("method", "path"), [r for r in ROUTES if r[0] == "GET" and "_id}" not in r[1]], ids=str
)
@pytest.mark.parametrize("query", ["", "?tenant=b", "?metadata.m=1", "?limit=1"])
def test_what_a_tenant_is_told_does_not_depend_on_what_others_did(method, path, query):
    shared = {"depth", "eta", "rates", "watermarks"}  # how long the common line is

    async def seen(caller, busy):
        if busy:
            await deadly_of(caller, B)
            await things_of(caller, B)
        mine = await caller.submit(headers=bearer(A))
        answer = await ask(caller, method, filled(path, {"task": "echo"}) + query, A)
        text = answer.text.replace(mine.json()["job_id"], "MINE")
        if (
            answer.headers.get("content-type") == "application/json"
            and "queues" in path
            and answer.is_success
        ):
            found = json.loads(text)
            for view in found.get("items", [found]):
                for name in shared & set(view):
                    view.pop(name)
            text = json.dumps(found)
        return answer.status_code, text

    async def quiet(caller):
        return await seen(caller, busy=False)

    async def busy(caller):
        return await seen(caller, busy=True)

    assert world(quiet) == world(busy)


def test_an_admin_sees_everybody_and_acts_for_whom_it_names():
    async def tried(caller):
        mine = (await caller.submit(headers=bearer(B))).json()["job_id"]
        assert (await caller.get(f"/v1/jobs/{mine}", headers=bearer(ROOT))).status_code == 200
        as_a, as_b = (bearer(ROOT) | {"forebay-tenant": name} for name in "ab")
        assert (await caller.get(f"/v1/jobs/{mine}", headers=as_a)).status_code == 404
        assert (await caller.get(f"/v1/jobs/{mine}", headers=as_b)).status_code == 200
        made = (await caller.submit(headers=as_a)).json()["job_id"]
        assert (await caller.get(f"/v1/jobs/{made}", headers=bearer(A))).status_code == 200
        assert (await caller.get(f"/v1/jobs/{made}", headers=bearer(B))).status_code == 404
        listed = (await caller.get("/v1/jobs?tenant=a", headers=bearer(ROOT))).json()["items"]
        assert [job["job_id"] for job in listed] == [made]
        assert (
            await caller.get("/v1/jobs", headers=bearer(ROOT) | {"forebay-tenant": "no/pe"})
        ).status_code == 422

    world(tried)


def test_the_tenant_header_of_any_other_key_is_nothing():
    async def tried(caller):
        made = (await caller.submit(headers=bearer(A) | {"forebay-tenant": "b"})).json()["job_id"]
        assert (await caller.get(f"/v1/jobs/{made}", headers=bearer(A))).status_code == 200
        assert (await caller.get(f"/v1/jobs/{made}", headers=bearer(B))).status_code == 404

    world(tried)


def test_without_keys_the_header_names_the_tenant_and_lasts_one_request():
    async def run():
        async with Caller(a_front()) as caller:
            as_a, as_b = ({"forebay-tenant": name} for name in "ab")
            made = (await caller.submit(headers=as_a)).json()["job_id"]
            assert (await caller.get(f"/v1/jobs/{made}", headers=as_b)).status_code == 404
            assert (await caller.get(f"/v1/jobs/{made}", headers=as_a)).status_code == 200
            assert (await caller.get(f"/v1/jobs/{made}")).status_code == 200
            plain = (await caller.submit()).json()["job_id"]
            assert (await caller.get(f"/v1/jobs/{plain}", headers=as_a)).status_code == 404

    asyncio.run(run())


def test_an_idempotency_key_belongs_to_its_tenant():
    async def tried(caller):
        once = {"idempotency-key": "same"}
        a = await caller.submit(payload=1, headers=bearer(A) | once)
        b = await caller.submit(payload=2, headers=bearer(B) | once)
        assert (a.status_code, b.status_code) == (202, 202)
        assert a.json()["job_id"] != b.json()["job_id"]
        again = await caller.submit(payload=1, headers=bearer(A) | once)
        assert again.json()["job_id"] == a.json()["job_id"]
        _, verdicts = await caller.bulk(
            {"task": "echo", "payload": 2, "idempotency_key": "same"}, headers=bearer(B)
        )
        assert verdicts[0]["job_id"] == b.json()["job_id"]

    world(tried)


def test_a_redrive_of_many_takes_the_callers_own_and_keeps_their_tenant():
    async def tried(caller):
        others = await things_of(caller, B)
        await lease(caller.front)  # what stands in line, so that the next leases get what they mean
        mine = await things_of(caller, A)
        answer = await caller.post("/v1/dead-letters/redrive", json={"task": "echo"}, headers=bearer(A))
        assert [item["job_id"] for item in answer.json()["items"]] == [mine["dead"]]
        made = answer.json()["items"][0]["redriven_as"]
        assert (await caller.get(f"/v1/jobs/{made}", headers=bearer(A))).status_code == 200
        named = await caller.post(
            "/v1/dead-letters/redrive", json={"ids": [others["dead"], UNKNOWN]}, headers=bearer(A)
        )
        one, two = named.json()["items"]
        assert (
            (one["code"], one["detail"])
            == (two["code"], two["detail"])
            == ("not_found", "no job has this id")
        )

    world(tried)


def test_a_cursor_of_another_tenant_is_none():
    async def tried(caller):
        for _ in range(3):
            await caller.submit(headers=bearer(B))
        cursor = (await caller.get("/v1/jobs?limit=1", headers=bearer(B))).json()["next_cursor"]
        assert (await caller.get(f"/v1/jobs?limit=1&cursor={cursor}", headers=bearer(B))).status_code == 200
        assert (await caller.get(f"/v1/jobs?limit=1&cursor={cursor}", headers=bearer(A))).status_code == 422

    world(tried)


BAD_HEADERS = [
    "", "Bearer", "Bearer ", "Bearer  ", "Basic YTpi", f"Basic {A}", A, f"Bearer {A}x", f"Bearer {A.upper()}",
    f"Bearer {A} {B}", f"Token {A}", "Bearer é", "Bearer " + "x" * 4096,
]  # fmt: skip


@pytest.mark.parametrize("header", BAD_HEADERS, ids=lambda h: ascii(h)[:24])
def test_what_is_no_key_is_refused_before_the_body_is_read(header):
    async def tried(caller):
        read = []

        async def body():
            read.append(1)
            yield b"{"

        answer = await caller.post(
            "/v1/jobs",
            content=body(),
            headers={"authorization": header.encode(), "content-type": "application/json"},
        )
        assert answer.status_code == 401
        assert header not in answer.text or not header
        assert not any(A in str(line) or header in str(line) for line in caller.front.log.lines if header)

    world(tried)


@pytest.mark.parametrize("second", [A, B, "fb_nobody"])
def test_two_keys_are_none(second):
    async def tried(caller):
        heads = [("authorization", f"Bearer {key}") for key in (A, second)]
        answer = await caller.get("/v1/jobs", headers=heads)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (
            401,
            'Bearer realm="forebay", error="invalid_token"',
        )

    world(tried)


def test_the_word_bearer_is_read_in_any_case():
    async def tried(caller):
        assert (await caller.get("/v1/jobs", headers={"authorization": f"bEARER {A}"})).status_code == 200

    world(tried)


def test_an_address_that_is_not_in_the_table_is_served_to_nobody():
    async def tried(caller):
        api = caller.door.warm()
        api.add_api_route("/v1/secret", lambda: {"all": "told"}, methods=["GET"])
        assert (await caller.get("/v1/secret", headers=bearer(ROOT))).status_code == 404
        assert (await caller.get("/v1/secret")).status_code == 401
        answer = await caller.patch("/v1/jobs", headers=bearer(ROOT))
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")

    world(tried)


def test_the_tenants_of_waiting_callers_do_not_mix():
    async def tried(caller):
        mine = (await caller.submit(headers=bearer(A))).json()["job_id"]
        other = (await caller.submit(headers=bearer(B))).json()["job_id"]
        waits = [
            caller.get(f"/v1/jobs/{job}?wait=0.2", headers=bearer(key))
            for job in (mine, other)
            for key in (A, B)
        ]
        answers = await asyncio.gather(*waits)
        assert [answer.status_code for answer in answers] == [200, 404, 404, 200]

    async def run():
        async with Caller(a_front(keys=KEYS)) as caller:
            await tried(caller)

    asyncio.run(run())
