"""The unmodified clients of other servers against a real one: openai, replicate, tritonclient."""

import gc
import json

import httpx
import pytest

from tests.e2e.harness import Served
from tests.waiting import until

openai = pytest.importorskip("openai", reason="the group test has it")
replicate = pytest.importorskip("replicate", reason="the group test has it")
triton = pytest.importorskip("tritonclient.http", reason="the group test has it")
numpy = pytest.importorskip("numpy")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the clients themselves
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
KEYED = {"FOREBAY_API_KEYS": "k-0123456789abcdef0123456789abcdef=a"}
KEY = "k-0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def left_to_no_other_test():
    """What these clients leave open is cleared away here, where the warnings of it are not ours."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("dialects"), "dialects.py", workers=2, env=KEYED) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def ai(url):
    with openai.OpenAI(base_url=f"{url}/openai/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def cog(url):
    client = replicate.Client(api_token=KEY, base_url=f"{url}/replicate", timeout=httpx.Timeout(60.0))
    yield client
    client._client.close()  # it has no way of its own


def headers():
    return {"Authorization": f"Bearer {KEY}"}


def test_openai_a_task_that_speaks_its_shape_answers_as_it_is(ai):
    told = ai.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hello"}])
    assert told.id == "c-1" and told.choices[0].message.content == "you said hello"


def test_openai_a_task_of_texts_is_a_model_too(ai):
    parts = [{"type": "text", "text": "quiet "}, {"type": "text", "text": "please"}]
    told = ai.chat.completions.create(model="shout", messages=[{"role": "user", "content": parts}])
    assert told.choices[0].message.content == "QUIET PLEASE" and told.model == "shout"


def test_openai_embeddings_of_one_text_and_of_many_in_their_order(ai):
    many = ai.embeddings.create(model="Embed", input=["a", "bbb", "cc"], encoding_format="float")
    assert [row.embedding for row in many.data] == [[1.0, 0.5], [3.0, 0.5], [2.0, 0.5]]
    one = ai.embeddings.create(model="Embed", input="four", encoding_format="float")
    assert one.data[0].embedding == [4.0, 0.5]


def test_openai_models_are_tasks(ai):
    assert {"chat", "Embed"} <= {one.id for one in ai.models.list()}
    assert ai.models.retrieve("chat").id == "chat"


def test_openai_refusals_are_the_errors_that_its_client_knows(ai, url):
    with pytest.raises(openai.NotFoundError) as gone:
        ai.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    assert gone.value.code == "unknown_task" and "no such task" in gone.value.message
    with pytest.raises(openai.UnprocessableEntityError) as odd:
        ai.chat.completions.create(model="chat", messages=[], temperature=1)
    assert odd.value.param == "messages"
    with pytest.raises(openai.InternalServerError):
        ai.chat.completions.create(model="broken", messages=[{"role": "user", "content": "x"}])
    with (
        openai.OpenAI(base_url=f"{url}/openai/v1", api_key="wrong", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError),
    ):
        other.models.list()


def test_replicate_run_gives_the_output(cog):
    assert cog.run("forebay/caption", input={"prompt": "a cat"}) == "a picture of a cat"
    version = cog.models.get("forebay", "shout").latest_version.id
    assert cog.run(f"forebay/shout:{version}", input={"text": "loud"}) == "LOUD"


def test_replicate_a_prediction_can_be_waited_for_looked_at_and_listed(cog):
    made = cog.predictions.create(version="caption", input={"prompt": "rain"})
    assert made.status == "starting" and made.input == {"prompt": "rain"}
    made.wait()
    assert (made.status, made.output, made.error) == ("succeeded", "a picture of rain", None)
    assert made.metrics["predict_time"] >= 0 and made.completed_at
    assert made.id in {one.id for one in cog.predictions.list().results}


def test_replicate_a_wait_that_runs_out_is_no_end(cog):
    made = cog.predictions.create(version="slow", input={"seconds": 3.0}, wait=1)
    assert made.status == "starting"
    made.wait()
    assert (made.status, made.output) == ("succeeded", "done")


def test_replicate_one_that_runs_is_cancelled_and_one_that_ended_stays(cog):
    made = cog.predictions.create(version="slow", input={"seconds": 60.0})
    made.cancel()
    made.wait()
    assert made.status == "canceled"
    made.cancel()
    assert made.status == "canceled"


def test_replicate_one_that_failed_says_why(cog):
    with pytest.raises(replicate.exceptions.ModelError) as failed:
        cog.run("forebay/broken", input={"text": "x"})
    assert "no such colour" in str(failed.value)
    with pytest.raises(replicate.exceptions.ReplicateError) as refused:
        cog.predictions.create(version="nope", input={})
    assert refused.value.status == 404 and "no such task" in refused.value.detail


def test_openai_a_batch_is_uploaded_run_and_read(ai):
    lines = [
        {"custom_id": f"c-{n}", "method": "POST", "url": "/v1/chat/completions",
         "body": {"model": "chat", "messages": [{"role": "user", "content": f"n {n}"}]}}
        for n in range(20)
    ]  # fmt: skip
    file = ai.files.create(file=("in.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    batch = ai.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    batch = until(lambda: (one := ai.batches.retrieve(batch.id)).status == "completed" and one, 60, "its end")
    assert batch.request_counts.completed == 20
    rows = [json.loads(line) for line in ai.files.content(batch.output_file_id).text.splitlines()]
    assert [row["response"]["body"]["choices"][0]["message"]["content"] for row in rows] == [
        f"you said n {n}" for n in range(20)
    ]


@pytest.fixture
def oip(url):
    client = triton.InferenceServerClient(url.removeprefix("http://"), network_timeout=60.0)
    yield client
    client.close()


@pytest.mark.parametrize("binary", [True, False])
def test_triton_tensors_go_in_and_come_out_in_both_forms(oip, binary):
    given = []
    for name, rows in (("INPUT0", [[1, 2], [3, 4]]), ("INPUT1", [[10, 20], [30, 40]])):
        given.append(triton.InferInput(name, [2, 2], "INT32"))
        given[-1].set_data_from_numpy(numpy.array(rows, "int32"), binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "NOTE")]
    told = oip.infer("add", given, outputs=wanted, request_id="r-1", headers=headers())
    assert told.as_numpy("OUTPUT0").tolist() == [[11, 22], [33, 44]]
    assert told.as_numpy("NOTE").tolist() in (["added"], [b"added"])
    assert told.get_response()["id"] == "r-1"


def test_triton_the_first_axis_of_one_tensor_is_a_batch(oip):
    rows = triton.InferInput("x", [3, 2], "FP32")
    rows.set_data_from_numpy(numpy.array([[1, 2], [3, 4], [5, 6]], "float32"))
    told = oip.infer("Double", [rows], headers=headers(), timeout=30_000_000, priority=1)
    assert told.as_numpy("output").tolist() == [[2, 4], [6, 8], [10, 12]]
    words = triton.InferInput("text", [2], "BYTES")
    words.set_data_from_numpy(numpy.array(["a", "b"], dtype=numpy.object_))
    assert [one.decode() for one in oip.infer("shout", [words], headers=headers()).as_numpy("output")] == [
        "A",
        "B",
    ]


def test_triton_says_what_is_there_and_how_it_is(oip):
    assert oip.is_server_live(headers=headers()) and oip.is_server_ready(headers=headers())
    assert oip.is_model_ready("add", headers=headers())
    assert not oip.is_model_ready("nope", headers=headers())
    assert oip.get_server_metadata(headers=headers())["extensions"] == ["binary_tensor_data"]
    about = oip.get_model_metadata("caption", headers=headers())
    assert [one["name"] for one in about["inputs"]] == ["prompt"]


def test_triton_a_deadline_that_cannot_be_met_and_an_unknown_model_are_errors(oip):
    one = triton.InferInput("x", [1], "FP32")
    one.set_data_from_numpy(numpy.array([5.0], "float32"))
    with pytest.raises(Exception, match="cannot be answered|deadline"):
        oip.infer("slow", [one], headers=headers(), timeout=100_000)
    with pytest.raises(Exception, match="no such task"):
        oip.infer("nope", [one], headers=headers())
