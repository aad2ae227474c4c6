"""Dialects at the door: keys, bodies, refusals, addresses, tensors."""

import asyncio
import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.task import TaskSpec
from forebay.server.dialects import is_dialect
from forebay.server.dialects.batches import parts_of
from forebay.server.dialects.inference import payloads_of
from forebay.server.dialects.replicate import payload_of, version_of
from forebay.server.dialects.shapes import last_text
from forebay.server.dialects.tensors import Tensor, of_value, read_binary, read_nested, write_binary
from tests.server.doors import Caller, a_front, call, finish, kill, lease

KEYS = {
    "k-submit-0123456789abcdef0123456789": "a:submit",
    "k-all-0123456789abcdef0123456789ab": "a:submit+read+cancel",
}
MADE = {"version": "echo", "input": {"text": "hi"}}
TEXT = TaskSpec(name="t", input_schema={"type": "string"})
OBJECT = TaskSpec(
    name="o", input_schema={"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}}
)
ANY = TaskSpec(name="x")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/v2", True), ("/v2/models/x", True), ("/v2x", False), ("/openai", True), ("/openaix", False), ("/v1/jobs", False),
     ("/replicate/v1/predictions", True)],
)  # fmt: skip
def test_an_address_is_of_a_dialect_by_its_first_part(path, is_one):
    assert is_dialect(path) is is_one


def test_a_prediction_is_a_job_and_a_job_a_prediction():
    async def run(caller):
        made = await caller.post("/replicate/v1/predictions", json=MADE)
        assert made.status_code == 201 and made.json()["status"] == "starting", made.text
        one = made.json()
        assert one["input"] == {"text": "hi"} and one["urls"]["get"].endswith(
            f"/replicate/v1/predictions/{one['id']}"
        )
        job = (await caller.get(f"/v1/jobs/{one['id']}")).json()
        assert job["task"] == "echo"
        await finish(caller.front)
        done = (await caller.get(f"/replicate/v1/predictions/{one['id']}")).json()
        assert (done["status"], done["output"]) == ("succeeded", "done") and done["completed_at"]

    call(run)


def test_what_failed_was_cancelled_or_runs_has_their_words():
    async def run(caller):
        ids = []
        for _ in range(3):
            ids.append(
                (await caller.post("/replicate/v1/models/any/echo/predictions", json={"input": {}})).json()[
                    "id"
                ]
            )
        await kill(caller.front, code="boom")
        await lease(caller.front)
        cancelled = await caller.post(f"/replicate/v1/predictions/{ids[2]}/cancel")
        assert cancelled.json()["status"] == "canceled"
        told = [(await caller.get(f"/replicate/v1/predictions/{one}")).json() for one in ids]
        assert [one["status"] for one in told] == ["failed", "processing", "canceled"]
        assert told[0]["error"].startswith("boom: ") and told[1]["error"] is None
        listed = (await caller.get("/replicate/v1/predictions")).json()
        assert {one["id"] for one in listed["results"]} == set(ids) and listed["next"] is None

    call(run)


def test_the_list_goes_on_at_its_next():
    async def run(caller):
        for _ in range(130):
            await caller.one()
        first = (await caller.get("/replicate/v1/predictions")).json()
        path = first["next"].removeprefix("http://127.0.0.1:8080")
        second = (await caller.get(path)).json()
        assert len({one["id"] for page in (first, second) for one in page["results"]}) == 130
        assert (await caller.get("/replicate/v1/predictions?x=1")).status_code == 422

    call(run)


REFUSED = [
    ("POST", "/replicate/v1/predictions", {"version": "nope", "input": {}}, 404, "unknown_task"),
    ("POST", "/replicate/v1/predictions", {"version": "echo", "input": 1}, 422, "invalid"),
    ("POST", "/replicate/v1/predictions", {"version": "echo", "input": {}, "inputs": 1}, 422, "invalid"),
    (
        "POST",
        "/replicate/v1/predictions",
        {"version": "echo", "input": {}, "webhook": "ftp://x"},
        422,
        "invalid",
    ),
    ("POST", "/replicate/v1/models/any/Clip/predictions", {"input": {}}, 422, "invalid"),
    ("GET", "/replicate/v1/predictions/nobody", None, 404, "not_found"),
    ("GET", "/replicate/v1/nothing", None, 404, "not_found"),
    ("DELETE", "/replicate/v1/predictions", None, 405, "method_not_allowed"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), REFUSED)
def test_a_refusal_of_replicate_has_its_detail(method, path, body, status, code):
    async def run(caller):
        answer = await caller.request(method, path, json=body)
        told = answer.json()
        assert (answer.status_code, told["status"], told["code"]) == (status, status, code)
        assert isinstance(told["detail"], str) and told["detail"]

    call(run)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/openai/v1/chat/completions", {"model": "nope", "messages": [{}]}, 404, None),
        ("/openai/v1/chat/completions", {"model": "echo", "messages": []}, 422, "messages"),
        ("/openai/v1/chat/completions", {"model": "echo", "messages": [1], "stream": True}, 422, "stream"),
        ("/openai/v1/chat/completions", {"messages": [1]}, 422, "model"),
        (
            "/openai/v1/embeddings",
            {"model": "echo", "input": "x", "encoding_format": "base64"},
            422,
            "encoding_format",
        ),
        ("/openai/v1/nothing", {}, 404, None),
    ],
)
def test_a_refusal_of_openai_has_its_error(path, body, status, param):
    async def run(caller):
        answer = await caller.post(path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (status, param) and error["message"] and error["code"]

    call(run)


def test_a_server_that_is_full_says_in_each_dialect_when_to_come_back():
    async def run(caller):
        await caller.one()
        answer = await caller.post("/replicate/v1/predictions", json=MADE)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.headers["retry-after-ms"]
        caller.front.lifecycle.draining = True
        answer = await caller.post(
            "/openai/v1/chat/completions", json={"model": "echo", "messages": [{"content": "x"}]}
        )
        assert (
            answer.status_code == 503
            and answer.headers["retry-after"]
            and answer.headers["connection"] == "close"
        )

    call(run, jobs_max=1)


def keyed(test):
    async def run():
        async with (
            asyncio.timeout(50),
            Caller(a_front(keys=",".join(f"{k}={t}" for k, t in KEYS.items()))) as caller,
        ):
            await test(caller)

    asyncio.run(run())


DOORS = [("POST", "/replicate/v1/predictions"), ("GET", "/replicate/v1/predictions"), ("GET", "/openai/v1/models"),
         ("POST", "/openai/v1/chat/completions"), ("GET", "/v2/models/echo"), ("POST", "/v2/models/echo/infer")]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), DOORS)
@pytest.mark.parametrize("key", [None, "Bearer nobody"])
def test_without_a_key_nothing_is_answered_and_no_body_is_read(method, path, key):
    async def tried(caller):
        heads = {"authorization": key} if key else {}
        answer = await caller.request(method, path, content=b"no json at all", headers=heads)
        assert answer.status_code == 401 and "www-authenticate" in answer.headers or answer.status_code == 401
        assert "API key" in answer.text

    keyed(tried)


def test_health_asks_for_no_key_as_ours_does_not():
    async def tried(caller):
        for path in ("/v2", "/v2/health/live", "/v2/health/ready"):
            assert (await caller.get(path)).status_code == 200

    keyed(tried)


def test_a_key_may_do_in_a_dialect_what_it_may_do_elsewhere():
    async def tried(caller):
        submit, whole = ({"authorization": f"Bearer {key}"} for key in KEYS)
        made = await caller.post("/replicate/v1/predictions", json=MADE, headers=submit)
        assert made.status_code == 201
        path = f"/replicate/v1/predictions/{made.json()['id']}"
        assert (await caller.get(path, headers=submit)).status_code == 403
        assert (await caller.get(path, headers=whole)).status_code == 200
        assert (await caller.post(f"{path}/cancel", headers=submit)).status_code == 403
        assert (await caller.post(f"{path}/cancel", headers=whole)).json()["status"] == "canceled"

    keyed(tried)


def test_a_page_of_another_origin_may_not_use_a_dialect_either():
    async def run(caller):
        for path in ("/replicate/v1/predictions", "/openai/v1/chat/completions", "/v2/models/echo/infer"):
            answer = await caller.post(path, json=MADE, headers={"origin": "https://elsewhere.example"})
            assert answer.status_code == 403

    call(run)


def test_a_body_beyond_the_bound_is_refused_in_a_dialect_too():
    async def run(caller):
        answer = await caller.post(
            "/replicate/v1/predictions", json={"version": "echo", "input": {"a": "x" * 3000}}
        )
        assert answer.status_code == 413 and "2048" in answer.json()["detail"]

    call(run, body_bytes_max=2048)


def test_an_input_becomes_the_payload_that_the_task_takes():
    assert payload_of(TEXT, {"text": "a"}) == "a" and payload_of(TEXT, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert payload_of(OBJECT, {"a": 1}) == {"a": 1} and payload_of(ANY, {"a": 1}) == {"a": 1}
    assert version_of(TEXT) != version_of(OBJECT) and len(version_of(TEXT)) == 64
    assert last_text([{"content": "a"}, {"content": [{"text": "b"}, {"text": "c"}]}]) == "bc"


def test_tensors_become_one_payload_or_one_for_each_item():
    rows, one = Tensor("x", "INT32", [2, 2], [1, 2, 3, 4]), Tensor("y", "INT32", [1], [5])
    assert payloads_of(OBJECT, [rows, one]) == ([{"x": [[1, 2], [3, 4]], "y": 5}], False)
    assert payloads_of(TEXT, [rows]) == ([[1, 2], [3, 4]], True)
    assert payloads_of(TaskSpec(name="l", input_schema={"type": "array"}), [one]) == ([[5]], False)


KINDS = {"INT32": st.integers(-(2**31), 2**31 - 1), "UINT8": st.integers(0, 255), "FP64": st.floats(allow_nan=False),
         "BOOL": st.booleans(), "BYTES": st.text(max_size=9)}  # fmt: skip


@given(st.data(), st.sampled_from(sorted(KINDS)), st.lists(st.integers(0, 3), max_size=3))
def test_a_tensor_is_the_same_after_its_bytes_and_after_its_lists(data, kind, shape):
    count = math.prod(shape)
    flat = data.draw(st.lists(KINDS[kind], min_size=count, max_size=count))
    tensor = Tensor("x", kind, shape, flat)
    assert read_binary("x", kind, shape, write_binary(tensor)) == tensor
    assert read_nested("x", kind, shape, flat) == tensor


@given(
    st.sampled_from(["INT32", "FP32", "BYTES", "INT4"]),
    st.lists(st.integers(-1, 9), max_size=3),
    st.binary(max_size=40),
)
def test_bytes_that_do_not_fill_a_shape_are_a_value_error_and_nothing_else(kind, shape, raw):
    try:
        found = read_binary("x", kind, shape, raw)
    except ValueError:
        return
    assert len(found.flat) == math.prod(shape)


@pytest.mark.parametrize(
    ("value", "kind", "shape", "flat"),
    [
        (3, "INT64", [1], [3]), (2.5, "FP64", [1], [2.5]), ("a", "BYTES", [1], ["a"]), (True, "BOOL", [1], [True]),
        ([[1, 2], [3, 4]], "INT64", [2, 2], [1, 2, 3, 4]), ([1, 2.5], "FP64", [2], [1.0, 2.5]),
        ([[1], [2, 3]], "BYTES", [2], ["[1]", "[2, 3]"]), ({"a": 1}, "BYTES", [1], ['{"a": 1}']),
        ([], "BYTES", [1], ["[]"]), (2**70, "FP64", [1], [float(2**70)]),
    ],
)  # fmt: skip
def test_an_output_is_the_tensor_that_holds_it(value, kind, shape, flat):
    found = of_value("o", value)
    assert (found.kind, found.shape, found.flat) == (kind, shape, flat)


def test_a_binary_head_that_lies_about_its_length_is_malformed():
    async def run(caller):
        for length in ("9999", "x", "-1"):
            heads = {"inference-header-content-length": length, "content-type": "application/octet-stream"}
            answer = await caller.post("/v2/models/echo/infer", content=struct.pack("<I", 7), headers=heads)
            assert answer.status_code == 400 and "error" in answer.json()

    call(run)


LINES = b"".join(
    b'{"custom_id": "c-%d", "method": "POST", "url": "/v1/chat/completions", "body": '
    b'{"model": "echo", "messages": [{"role": "user", "content": "n %d"}]}}\n' % (n, n)
    for n in range(3)
)


async def uploaded(caller, data=LINES, purpose="batch"):
    return await caller.post(
        "/openai/v1/files", data={"purpose": purpose}, files={"file": ("in.jsonl", data)}
    )


async def begun(caller, file_id, endpoint="/v1/chat/completions"):
    body = {
        "input_file_id": file_id,
        "endpoint": endpoint,
        "completion_window": "24h",
        "metadata": {"a": "b"},
    }
    return await caller.post("/openai/v1/batches", json=body)


def test_a_batch_is_its_lines_as_jobs_and_its_output_their_results(tmp_path):
    async def run(caller):
        file = (await uploaded(caller)).json()
        assert (file["bytes"], file["purpose"]) == (len(LINES), "batch")
        assert (await caller.get(f"/openai/v1/files/{file['id']}/content")).content == LINES
        batch = (await begun(caller, file["id"])).json()
        assert batch["status"] == "in_progress" and batch["request_counts"] == {
            "total": 3,
            "completed": 0,
            "failed": 0,
        }
        await finish(caller.front, output=b'{"choices": []}')
        await kill(caller.front, code="boom")
        await finish(caller.front, output=b'"x"')
        done = (await caller.get(f"/openai/v1/batches/{batch['id']}")).json()
        assert (done["status"], done["request_counts"]) == (
            "completed",
            {"total": 3, "completed": 2, "failed": 1},
        )
        assert done["metadata"] == {"a": "b"} and done["input_file_id"] == file["id"]
        text = (await caller.get(f"/openai/v1/files/{done['output_file_id']}/content")).text
        rows = [json.loads(line) for line in text.splitlines()]
        assert [row["custom_id"] for row in rows] == ["c-0", "c-1", "c-2"]
        assert rows[0]["response"]["body"] == {"choices": []} and rows[1]["error"]["code"] == "boom"

    call(run, blobs=tmp_path)


def test_a_batch_is_cancelled_with_all_that_waits(tmp_path):
    async def run(caller):
        batch = (await begun(caller, (await uploaded(caller)).json()["id"])).json()
        told = (await caller.post(f"/openai/v1/batches/{batch['id']}/cancel")).json()
        assert told["status"] == "cancelled" and told["request_counts"]["failed"] == 3

    call(run, blobs=tmp_path)


def test_a_batch_that_does_not_fit_is_refused_whole(tmp_path):
    async def run(caller):
        answer = await begun(caller, (await uploaded(caller)).json()["id"])
        assert (
            answer.status_code == 429
            and answer.headers["retry-after"]
            and answer.json()["error"]["code"] == "queue_full"
        )
        jobs = (await caller.get("/v1/jobs")).json()["items"]
        assert {job["status"] for job in jobs} == {"CANCELLED"}

    call(run, blobs=tmp_path, jobs_max=2)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "1 to 50,000"),
        (b"{", "line 1"),
        (LINES + b'{"custom_id": "x"}', "line 4"),
        (LINES.replace(b"echo", b"nope"), "no such task"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_submitted(tmp_path, data, told):
    async def run(caller):
        answer = await begun(caller, (await uploaded(caller, data)).json()["id"])
        assert answer.status_code in {400, 422} and told in answer.json()["error"]["message"]
        assert (await caller.get("/v1/jobs")).json()["items"] == []

    call(run, blobs=tmp_path)


def test_other_uploads_files_and_batches_are_refused(tmp_path):
    async def run(caller):
        assert (await uploaded(caller, purpose="fine-tune")).status_code == 422
        assert (await caller.post("/openai/v1/files", content=b"x")).status_code == 400
        for path in ("files/file-zz", "files/x/content", "batches/batch_00", "batches/../jobs", "files"):
            assert (await caller.get(f"/openai/v1/{path}")).status_code == 404

    call(run, blobs=tmp_path)


@given(st.binary(max_size=200))
def test_an_upload_is_its_bytes_whatever_they_are(data):
    head = b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--B\r\n'
    head += b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    if b"--B" not in data:
        assert parts_of("multipart/form-data; boundary=B", head + data + b"\r\n--B--\r\n") == (
            "a",
            data,
            "batch",
        )
